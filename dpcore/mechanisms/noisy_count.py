"""A noisy count of the rows that have a property."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from dpcore.mechanisms.bounded_rows import Column, bounded_rows, check_given, read_column
from dpcore.mechanisms.currency_noise import Noise, NoiseKind, bought_noise, kind_in
from dpcore.mechanisms.descriptions import (
    Description,
    checked_protection,
    describe_protection,
    number_in,
    protection_in,
)
from dpcore.mechanisms.exact import Exact
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Protection, Sensitivity
from dpcore.universe import Boolean

_TRUE = 1
_KEPT_ROWS = "keep fewer rows per unit"


@dataclass(frozen=True, kw_only=True)
class NoisyCount:
    """Count the rows that have a property, with noise.

    >>> from dpcore.privacy.protection import Neighbours
    >>> patients = Protection(unit="patient", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE)
    >>> count = NoisyCount.for_epsilon(1.0, delta=0, protection=patients)
    >>> count.sensitivity.l1, count.scale, count.price(Currency.PURE)
    (2, 2.0, 1000000000000)

    Guarantee:
        That of its noise on one whole number: pure epsilon for discrete Laplace, rho for the Gaussian ones, mu^2 for the
        rounded one.

    Sensitivity:
        The most that a unit counts, m = k w for k rows that count up to w each, under either relation: replacing a unit
        takes at most m away and adds at most m. This mechanism enforces the bound of k rows itself, among the rows that
        have the property.

    Randomness:
        The operating system's, through `entropy`, for the noise and for which rows of a unit are kept.

    Reference:
        Dwork, McSherry, Nissim and Smith 2006.

    Attributes:
        protection: The unit to protect, and the neighbouring relation.
        noise: The kind of noise.
        scale: The scale, or sigma, of the noise.
    """

    name: ClassVar[str] = "noisy-count"

    protection: Protection
    noise: NoiseKind
    scale: float

    def __post_init__(self) -> None:
        """Validate the noise before any draw."""
        checked_protection(self.protection)
        object.__setattr__(self, "noise", NoiseKind(self.noise))
        self.noise.at(self.scale, sensitivity=self.sensitivity)
        object.__setattr__(self, "scale", float(self.scale))

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, protection: Protection) -> Self:
        """Return the count with the least noise that costs at most `amount`."""
        sensitivity = checked_protection(protection).count_sensitivity
        noise, scale = bought_noise(amount, currency=currency, sensitivity=sensitivity, otherwise=_KEPT_ROWS)
        return cls(protection=protection, noise=noise, scale=scale)

    @classmethod
    def for_epsilon(
        cls, epsilon: float, *, delta: float, protection: Protection, currency: Currency | None = None
    ) -> Self:
        """Return the count with the least noise that satisfies (epsilon, delta).

        Without the currency of the account that pays, it is pure epsilon at delta 0, and zCDP otherwise.
        """
        chosen, amount = budget_of(epsilon, delta=delta, currency=currency)
        return cls.for_amount(amount, currency=chosen, protection=protection)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from its description."""
        return cls(
            protection=protection_in(description), noise=kind_in(description), scale=number_in(description, "scale")
        )

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one neighbour step can move the count."""
        return self.protection.count_sensitivity

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, in rows."""
        return self._on_counts.standard_deviation

    def price(self, currency: Currency) -> int:
        """Return the price of one draw, as an amount."""
        return self._on_counts.price(currency)

    def draw(self, property_of_rows: Column, *, ids: Column = None, weights: Column = None) -> int:
        """Return a noisy number of rows.

        Args:
            property_of_rows: Whether each row has the property, such as `table["age"] >= 65`. A null counts as false.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
        return self.answer(self.read(property_of_rows, ids=ids, weights=weights))

    def read(self, property_of_rows: Column, *, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact number of rows, bounded by unit, for `answer` to add noise. Raise for unusable columns."""
        found = count_rows(property_of_rows, protection=self.protection, ids=ids, weights=weights)
        return Exact(np.array([found], dtype=np.int64), protection=self.protection)

    def answer(self, exact: Exact) -> int:
        """Return the number with its noise."""
        return int(self._on_counts.draw(exact.for_noise())[0])

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return {
            "name": self.name,
            "noise": self.noise.value,
            "scale": repr(self.scale),
            **describe_protection(self.protection),
        }

    @cached_property
    def _on_counts(self) -> Noise:
        return self.noise.at(self.scale, sensitivity=self.sensitivity)


def count_rows(property_of_rows: Column, *, protection: Protection, ids: Column, weights: Column) -> int:
    """Return the exact number of rows with a property, which is private. Of these rows, each unit keeps at most as many as declared."""
    check_given(protection, ids=ids, weights=weights)
    truth = Boolean()
    parts = [truth.encode(part) == _TRUE for part in read_column(property_of_rows, reads=truth.reads)]
    has = np.concatenate([np.empty(0, dtype=np.bool_), *parts])
    _, times = bounded_rows(has.astype(np.int64), has, protection=protection, ids=ids, weights=weights)
    return int(times.sum())
