"""A noisy sum of numbers, each clipped to its declared bounds."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_rows import Column, kept_steps
from dpcore.mechanisms.grid import MOST_STEPS, Step, ValueGrid
from dpcore.mechanisms.noise import one_number
from dpcore.mechanisms.query import COARSER, Exact, NoisyNumbers, Query
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.universe import Attribute


@dataclass(frozen=True, kw_only=True)
class BoundedSum(NoisyNumbers, Query[float]):
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
        noise: The kind of noise.
        scale: The scale, or sigma, of the noise, in steps.
        grid: The grid that values are rounded to.
        protection: The unit to protect, and the neighbouring relation.
    """

    name: ClassVar[str] = "bounded-sum"
    otherwise: ClassVar[str] = COARSER

    grid: ValueGrid
    protection: Protection

    def __post_init__(self) -> None:
        """Check, before any draw, that the noise is valid and that sums fit in 64 bits."""
        super().__post_init__()
        check_sums_fit(self.grid, protection=self.protection)

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
        return cls._bought(amount, currency=currency, grid=ValueGrid.of(attribute, step=step), protection=protection)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one neighbour step can move the sum, in steps."""
        farthest = self.grid.reach
        if self.protection.neighbours is Neighbours.REPLACE_ONE:
            farthest = max(self.grid.highest, 0) - min(self.grid.lowest, 0)
        return one_number(self.protection.most * farthest)

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, in the values' own unit."""
        return super().standard_deviation * float(self.grid.step)

    def read(self, values: Column, *, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact sum of the kept rows, for `answer` to add noise. Raise for unusable columns.

        Args:
            values: The private column. A row without a usable value adds nothing.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
        steps, times = kept_steps(values, grid=self.grid, protection=self.protection, ids=ids, weights=weights)
        return Exact(np.array([(steps * times).sum()], dtype=np.int64), protection=self.protection)

    def answer(self, exact: Exact) -> float:
        """Return the sum with its noise."""
        return self.grid.value(int(self.on_numbers.draw(exact.for_noise())[0]))


def check_sums_fit(grid: ValueGrid, *, protection: Protection) -> None:
    """Raise if the grid is so fine that sums of weighted rows could exceed 64 bits."""
    if grid.reach * protection.row_weight > MOST_STEPS:
        most = MOST_STEPS // protection.row_weight
        raise UsageError(
            f"sums of rows with these weights could exceed 64 bits; {COARSER}, with at most {most} steps from 0 to a bound"
        )
