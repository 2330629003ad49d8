"""Choose one of several named properties by how many rows have it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_rows import Column
from dpcore.mechanisms.descriptions import (
    Description,
    checked_protection,
    describe_protection,
    number_in,
    protection_in,
    whole_in,
)
from dpcore.mechanisms.exact import Exact
from dpcore.mechanisms.noisy_count import count_rows
from dpcore.mechanisms.noisy_max import MaxNoise, ReportNoisyMax
from dpcore.mechanisms.top_categories import bought_selection, noise_in
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection

MOST_CANDIDATES = 10_000
MOST_TARGET = 1 << 60


class Wanted(StrEnum):
    """Which property is wanted. It also decides the noise, so it has no default."""

    MOST = "most"
    """The one that most rows have."""
    FEWEST = "fewest"
    """The one that fewest rows have."""
    NEAREST = "nearest"
    """The one whose number of rows is nearest to a target."""


@dataclass(frozen=True, kw_only=True)
class NoisyChoice:
    """Choose one of several properties of rows, such as two conditions, by noisy counts. A row may have several of them.

    >>> rows = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
    >>> choice = NoisyChoice.for_epsilon(1.0, delta=0, candidates=["old", "smoker"], wanted="most", target=None, protection=rows)
    >>> choice.price(Currency.PURE)
    1000000000000

    Guarantee:
        That of report noisy max on the scores. With Gumbel noise it is the exponential mechanism.

    Sensitivity:
        The score of a property is its count, the negative of it, or -|count - target|. Each moves by at most what a unit counts. If a
        unit is added or removed, counts move in one direction, so the first two scores are monotone and need half the noise. This
        mechanism bounds a unit's rows itself, for each property among the rows that have it.

    Randomness:
        The operating system's, through `entropy`, for the selection and for which rows of a unit are kept.

    Reference:
        McSherry and Talwar 2007; Dwork and Roth 2014, Claim 3.9.

    Attributes:
        candidates: The names of the properties.
        wanted: Which of them is wanted.
        target: The number of rows to be near to, for `Wanted.NEAREST`; else None.
        protection: The unit to protect, and the neighbouring relation.
        epsilon: The epsilon of the selection.
        noise: The noise of the scores.
    """

    name: ClassVar[str] = "noisy-choice"

    candidates: tuple[str, ...]
    wanted: Wanted
    target: int | None
    protection: Protection
    epsilon: float
    noise: MaxNoise

    def __post_init__(self) -> None:
        """Validate the candidates, the target and the noise before any draw."""
        checked_protection(self.protection)
        object.__setattr__(self, "candidates", _checked_names(self.candidates))
        object.__setattr__(self, "wanted", _checked_wanted(self.wanted, self.target))
        one = self._selection
        object.__setattr__(self, "epsilon", one.epsilon)
        object.__setattr__(self, "noise", one.noise)

    @classmethod
    def for_amount(  # noqa: PLR0913  what is chosen from, by what, and who pays
        cls,
        amount: int,
        *,
        currency: Currency,
        candidates: Iterable[str],
        wanted: Wanted | str,
        target: int | None,
        protection: Protection,
    ) -> Self:
        """Return the choice with the least noise that costs at most `amount`.

        Args:
            amount: The amount to spend.
            currency: The currency of the amount.
            candidates: The names of the properties, one of which is the answer.
            wanted: `most`, `fewest` or `nearest`.
            target: For `nearest`, the number of rows; else None.
            protection: The unit to protect, and the neighbouring relation.
        """
        noise, epsilon = bought_selection(amount, currency=currency)
        return cls(
            candidates=_checked_names(candidates),
            wanted=_checked_wanted(wanted, target),
            target=target,
            protection=protection,
            epsilon=epsilon,
            noise=noise,
        )

    @classmethod
    def for_epsilon(  # noqa: PLR0913  likewise
        cls,
        epsilon: float,
        *,
        delta: float,
        candidates: Iterable[str],
        wanted: Wanted | str,
        target: int | None,
        protection: Protection,
    ) -> Self:
        """Return the choice with the least noise that satisfies (epsilon, delta): in pure epsilon at delta 0, through zCDP otherwise."""
        currency, amount = budget_of(epsilon, delta=delta)
        return cls.for_amount(
            amount, currency=currency, candidates=candidates, wanted=wanted, target=target, protection=protection
        )

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from its description."""
        try:
            names = json.loads(str(description.get("candidates")))
        except ValueError:
            raise UsageError("this description does not name its candidates; record it with describe()") from None
        target = whole_in(description, "target") if "target" in description else None
        return cls(
            candidates=names,
            wanted=_checked_wanted(str(description.get("wanted")), target),
            target=target,
            protection=protection_in(description),
            epsilon=number_in(description, "epsilon"),
            noise=noise_in(description),
        )

    def price(self, currency: Currency) -> int:
        """Return the price of the selection, as an amount."""
        return self._selection.price(currency)

    def draw(self, *properties: Column, ids: Column = None, weights: Column = None) -> str:
        """Return the name of the chosen property.

        Args:
            properties: For each candidate, whether each row has it, such as `table["age"] >= 65`. A null counts as false.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
        return self.answer(self.read(*properties, ids=ids, weights=weights))

    def read(self, *properties: Column, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact count of each property, for `answer` to choose. Raise for unusable columns."""
        if len(properties) != len(self.candidates):
            raise UsageError(f"pass one column for each of the {len(self.candidates)} candidates, in their order")
        return counts_of(properties, protection=self.protection, ids=ids, weights=weights)

    def answer(self, exact: Exact) -> str:
        """Return the name of the chosen property."""
        counts = exact.for_noise()
        if self.wanted is Wanted.NEAREST:
            scores = -np.abs(counts - self.target)
        else:
            scores = counts if self.wanted is Wanted.MOST else -counts
        return self.candidates[self._selection.draw(scores)]

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        described: Description = {
            "name": self.name,
            "candidates": json.dumps(self.candidates),
            "wanted": self.wanted.value,
            "epsilon": repr(self.epsilon),
            "noise": self.noise.value,
            **describe_protection(self.protection),
        }
        return described if self.target is None else described | {"target": self.target}

    @cached_property
    def _selection(self) -> ReportNoisyMax:
        return ReportNoisyMax(
            epsilon=self.epsilon,
            sensitivity=self.protection.count_sensitivity.linf,
            noise=self.noise,
            monotone=self.protection.neighbours is Neighbours.ADD_REMOVE and self.wanted is not Wanted.NEAREST,
        )


def counts_of(properties: Iterable[Column], *, protection: Protection, ids: Column, weights: Column) -> Exact:
    """Return the exact counts of several properties, bounded by unit, as private values."""
    found = [count_rows(each, protection=protection, ids=ids, weights=weights) for each in properties]
    return Exact(np.array(found, dtype=np.int64), protection=protection)


def _checked_names(candidates: Iterable[str]) -> tuple[str, ...]:
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise UsageError("candidates must be a list of names")
    names = tuple(candidates)
    if not names or len(names) > MOST_CANDIDATES or not all(isinstance(name, str) and name for name in names):
        raise UsageError(f"name from 1 to {MOST_CANDIDATES:,} candidates, each by a text")
    if len(set(names)) < len(names):
        raise UsageError("two candidates have the same name; name each differently")
    return names


def _checked_wanted(wanted: Wanted | str, target: int | None) -> Wanted:
    try:
        known = Wanted(str(wanted))
    except ValueError:
        raise UsageError(f"wanted must be one of: {', '.join(Wanted)}") from None
    if (known is Wanted.NEAREST) != (target is not None):
        raise UsageError("give a target for `nearest`, and None for the others")
    if target is not None and (
        isinstance(target, bool) or not isinstance(target, int) or not 0 <= target <= MOST_TARGET
    ):
        raise UsageError("a target must be a whole number of rows")
    return known
