"""A noisy sum of numbers, each clipped to its declared bounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_rows import Column, Wholes, bounded_rows, check_given, read_column
from dpcore.mechanisms.currency_noise import Noise, NoiseKind, bought_noise, kind_in, one_number
from dpcore.mechanisms.descriptions import (
    Description,
    checked_protection,
    describe_protection,
    number_in,
    protection_in,
)
from dpcore.mechanisms.exact import Exact
from dpcore.mechanisms.grid import MOST_STEPS, Step, ValueGrid
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.universe import Attribute

COARSER = "choose a coarser step"


@dataclass(frozen=True, kw_only=True)
class BoundedSum:
    """Add up a numeric column of clipped, gridded values, with noise.

    >>> from dpcore.universe import Integer
    >>> patients = Protection(unit="patient", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE)
    >>> days = Integer(minimum=0, maximum=30)
    >>> BoundedSum.for_epsilon(1.0, delta=0, attribute=days, step=1, protection=patients).sensitivity.l1
    60

    Guarantee:
        That of its noise on one whole number of steps: pure epsilon for discrete Laplace, rho for the Gaussian ones, mu^2
        for the rounded one.

    Sensitivity:
        In whole steps, with m = k w for a unit of k rows that count up to w each, and values of lo .. hi steps. A unit may
        have fewer rows, and a row may have no usable value, so a unit adds between min(0, m lo) and max(0, m hi). Add or
        remove one unit: m max(|lo|, |hi|). Replace one: m (max(hi, 0) - min(lo, 0)), even for a unit of one row. It is not
        hi - lo if 0 lies outside lo .. hi, because a row with a usable value may be replaced by a row without one.

    Randomness:
        The operating system's, through `entropy`, for the noise and for which rows of a unit are kept.

    Reference:
        Dwork, McSherry, Nissim and Smith 2006; Mironov 2012 for why it is on a grid.

    Attributes:
        grid: The grid that values are rounded to.
        protection: The unit to protect, and the neighbouring relation.
        noise: The kind of noise.
        scale: The scale, or sigma, of the noise, in steps.
    """

    name: ClassVar[str] = "bounded-sum"

    grid: ValueGrid
    protection: Protection
    noise: NoiseKind
    scale: float

    def __post_init__(self) -> None:
        """Check, before any draw, that sums fit in 64 bits and that the noise is valid."""
        check_sums_fit(self.grid, protection=self.protection)
        object.__setattr__(self, "noise", NoiseKind(self.noise))
        self.noise.at(self.scale, sensitivity=self.sensitivity)
        object.__setattr__(self, "scale", float(self.scale))

    @classmethod
    def for_amount(
        cls, amount: int, *, currency: Currency, attribute: Attribute, step: Step, protection: Protection
    ) -> Self:
        """Return the sum with the least noise that costs at most `amount`.

        Args:
            amount: The amount to spend.
            currency: The currency of the amount.
            attribute: The declared column: an Integer or a Number.
            step: The spacing of the grid that values are rounded to.
            protection: The unit to protect, and the neighbouring relation.
        """
        grid = ValueGrid.of(attribute, step=step)
        check_sums_fit(grid, protection=protection)
        sensitivity = one_number(_distance(grid, protection))
        noise, scale = bought_noise(amount, currency=currency, sensitivity=sensitivity, otherwise=COARSER)
        return cls(grid=grid, protection=protection, noise=noise, scale=scale)

    @classmethod
    def for_epsilon(  # noqa: PLR0913  what is asked, for whom, and how it is paid
        cls,
        epsilon: float,
        *,
        delta: float,
        attribute: Attribute,
        step: Step,
        protection: Protection,
        currency: Currency | None = None,
    ) -> Self:
        """Return the sum with the least noise that satisfies (epsilon, delta).

        Without the currency of the account that pays, it is pure epsilon at delta 0, and zCDP otherwise.
        """
        chosen, amount = budget_of(epsilon, delta=delta, currency=currency)
        return cls.for_amount(amount, currency=chosen, attribute=attribute, step=step, protection=protection)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from its description."""
        return cls(
            grid=ValueGrid.from_description(description),
            protection=protection_in(description),
            noise=kind_in(description),
            scale=number_in(description, "scale"),
        )

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one neighbour step can move the sum, in steps."""
        return one_number(_distance(self.grid, self.protection))

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, in the values' own unit."""
        return self._on_steps.standard_deviation * float(self.grid.step)

    def price(self, currency: Currency) -> int:
        """Return the price of one draw, as an amount."""
        return self._on_steps.price(currency)

    def draw(self, values: Column, *, ids: Column = None, weights: Column = None) -> float:
        """Return a noisy sum.

        Args:
            values: The private column. A row without a usable value adds nothing.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
        return self.answer(self.read(values, ids=ids, weights=weights))

    def read(self, values: Column, *, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact sum of the kept rows, for `answer` to add noise. Raise for unusable columns."""
        steps, times = kept_steps(values, grid=self.grid, protection=self.protection, ids=ids, weights=weights)
        return Exact(np.array([(steps * times).sum()], dtype=np.int64), protection=self.protection)

    def answer(self, exact: Exact) -> float:
        """Return the sum with its noise."""
        return self.grid.value(int(self._on_steps.draw(exact.for_noise())[0]))

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return {
            "name": self.name,
            "noise": self.noise.value,
            "scale": repr(self.scale),
            **self.grid.describe(),
            **describe_protection(self.protection),
        }

    @cached_property
    def _on_steps(self) -> Noise:
        return self.noise.at(self.scale, sensitivity=self.sensitivity)


def kept_steps(
    values: Column, *, grid: ValueGrid, protection: Protection, ids: Column, weights: Column
) -> tuple[Wholes, Wholes]:
    """Return the kept rows with a usable value, as private arrays: each one's value in steps, and how often it counts."""
    check_given(protection, ids=ids, weights=weights)
    parts = [grid.read(part) for part in read_column(values, reads=grid.reads)]
    steps = np.concatenate([np.empty(0, dtype=np.int64), *(steps for steps, _ in parts)])
    known = np.concatenate([np.empty(0, dtype=np.bool_), *(known for _, known in parts)])
    return bounded_rows(steps, known, protection=protection, ids=ids, weights=weights)


def check_sums_fit(grid: ValueGrid, *, protection: Protection) -> None:
    """Raise if the grid is so fine that sums of weighted rows could exceed 64 bits."""
    if grid.reach * checked_protection(protection).row_weight > MOST_STEPS:
        most = MOST_STEPS // protection.row_weight
        raise UsageError(
            f"sums of rows with these weights could exceed 64 bits; {COARSER}, with at most {most} steps from 0 to a bound"
        )


def _distance(grid: ValueGrid, protection: Protection) -> int:
    if protection.neighbours is Neighbours.REPLACE_ONE:
        return protection.most * (max(grid.highest, 0) - min(grid.lowest, 0))
    return protection.most * grid.reach
