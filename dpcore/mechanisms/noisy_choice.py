"""Choose one of several named properties by how many rows have it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_rows import Column
from dpcore.mechanisms.descriptions import Named
from dpcore.mechanisms.exponential import ExponentialMechanism, Flavour, ReportNoisyMax
from dpcore.mechanisms.noisy_count import MOST_TARGET, counts_of
from dpcore.mechanisms.query import Exact, Query
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.scalars import is_whole

MOST_CANDIDATES = 10_000


class Wanted(Named):
    """Which property is wanted. It also decides the noise, so it has no default."""

    MOST = "most"
    """The one that most rows have."""
    FEWEST = "fewest"
    """The one that fewest rows have."""
    NEAREST = "nearest"
    """The one whose number of rows is nearest to a target."""


@dataclass(frozen=True, kw_only=True)
class NoisyChoice(Query[str]):
    """Choose one of several properties of rows, such as two conditions, by noisy counts. A row may have several of them.

    >>> from dpcore.privacy.protection import Neighbours
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
        epsilon: The epsilon of the selection.
        flavour: The noise of the scores.
        protection: The unit to protect, and the neighbouring relation.
        target: The number of rows to be near to, for `Wanted.NEAREST`; else None.
    """

    name: ClassVar[str] = "noisy-choice"

    candidates: tuple[str, ...]
    wanted: Wanted
    epsilon: float
    flavour: Flavour
    protection: Protection
    target: int | None

    def __post_init__(self) -> None:
        """Validate the candidates, the target and the noise before any draw."""
        super().__post_init__()
        self._normalise(candidates=_checked_names(self.candidates), wanted=Wanted(self.wanted))
        _check_target(self.target, wanted=self.wanted)
        self._normalise(epsilon=self._selection.epsilon, flavour=self._selection.flavour)

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
        bought = ExponentialMechanism.for_amount(amount, currency=currency, sensitivity=1)
        return cls(
            candidates=_checked_names(candidates),
            wanted=Wanted(wanted),
            epsilon=bought.epsilon,
            flavour=bought.flavour,
            protection=protection,
            target=target,
        )

    def price(self, currency: Currency) -> int:
        """Return the price of the selection, as an amount."""
        return self._selection.price(currency)

    def read(self, *properties: Column, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact count of each property, for `answer` to choose. Raise for unusable columns.

        Args:
            properties: For each candidate, whether each row has it, such as `table["age"] >= 65`. A null counts as false.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
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

    @cached_property
    def _selection(self) -> ReportNoisyMax:
        return ReportNoisyMax.of_counts(
            epsilon=self.epsilon,
            protection=self.protection,
            flavour=self.flavour,
            monotone=self.wanted is not Wanted.NEAREST,
        )


def _checked_names(candidates: Iterable[str]) -> tuple[str, ...]:
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise UsageError("candidates must be a list of names")
    names = tuple(candidates)
    if not names or len(names) > MOST_CANDIDATES or not all(isinstance(name, str) and name for name in names):
        raise UsageError(f"name from 1 to {MOST_CANDIDATES:,} candidates, each by a text")
    if len(set(names)) < len(names):
        raise UsageError("two candidates have the same name; name each differently")
    return names


def _check_target(target: int | None, *, wanted: Wanted) -> None:
    if (wanted is Wanted.NEAREST) != (target is not None):
        raise UsageError("give a target for `nearest`, and None for the others")
    if target is not None and (not is_whole(target) or not 0 <= target <= MOST_TARGET):
        raise UsageError("a target must be a whole number of rows")
