"""A noisy mean of numbers, each clipped to its declared bounds."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from dpcore.mechanisms.bounded_rows import Column, kept_steps
from dpcore.mechanisms.bounded_sum import check_sums_fit
from dpcore.mechanisms.calibration import checked_amount
from dpcore.mechanisms.grid import Step, ValueGrid
from dpcore.mechanisms.noise import KIND_OF_NOISE, LEAST_NOISE, Noise, bought_noise, one_number
from dpcore.mechanisms.query import COARSER, Exact, Query
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.universe import Attribute

SUM_SHARE = Fraction(5, 8)
"""The share of an amount that the sum gets under add-remove. It is close to the least error where the mean lies half-way
between the middle and a bound, which is a share of 0.61 in pure epsilon and of 2/3 in zCDP and GDP. The count matters less
nearer to the middle, and more nearer to a bound."""


@dataclass(frozen=True)
class MeanEstimate:
    """A noisy mean and the noisy number of rows behind it. Both are public.

    Attributes:
        mean: The noisy mean, within the declared bounds.
        rows: The noisy number of rows with a usable value.
        standard_error: The standard error of the mean due to the noise alone. It covers neither rounding to the grid nor
            sampling of the rows.
    """

    mean: float
    rows: int
    standard_error: float


@dataclass(frozen=True, kw_only=True)
class BoundedMean(Query[MeanEstimate]):
    """Average a numeric column of clipped, gridded values: middle + noisy centred sum / noisy count.

    >>> from dpcore.universe import Integer
    >>> patients = Protection(unit="patient", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE)
    >>> ages = BoundedMean.for_epsilon(1.0, delta=0, attribute=Integer(minimum=0, maximum=99), step=1, protection=patients)
    >>> ages.price(Currency.PURE) <= 10**12
    True

    Guarantee:
        That of its two independent noises on whole numbers, whose prices add: pure epsilon for discrete Laplace, rho for
        the Gaussian ones, mu^2 for the rounded one.

    Sensitivity:
        Sums are centred at the middle of the bounds and taken in half steps, so that they are whole: a value adds from -r
        to r half steps, with r the distance of the bounds in steps. A unit's centred sum and count lie in the triangle of
        (0, 0), (-m r, m) and (m r, m), with m = k w for k rows that count up to w each. Add or remove one unit: both move
        at once, by at most m r and m. Replace one: by the difference of two points of that triangle. Prices are convex in
        the movement, so the worst ones are at differences of corners: (m r, m), where a unit with usable values is replaced
        by one without, and (2 m r, 0), from one bound to the other. The price is the larger of the two. So under
        replace-one the count is free: a sum that is paid for in the second movement leaves the count half of epsilon, or
        3/4 of rho or mu^2, in the first. The count must be measured under replace-one too, because rows without a usable
        value are not in the mean, and their number is private.

    Randomness:
        The operating system's, through `entropy`, for the noises and for which rows of a unit are kept.

    Reference:
        Li, Lyu, Su and Yang 2016, Differential privacy: from theory to practice.

    Attributes:
        noise: The kind of noise, of both the sum and the count.
        sum_scale: The scale, or sigma, of the sum's noise, in half steps.
        count_scale: The scale, or sigma, of the count's noise, in rows.
        grid: The grid that values are rounded to.
        protection: The unit to protect, and the neighbouring relation.
    """

    name: ClassVar[str] = "bounded-mean"

    noise: Shape
    sum_scale: float
    count_scale: float
    grid: ValueGrid
    protection: Protection

    def __post_init__(self) -> None:
        """Check, before any draw, that sums fit in 64 bits and that both noises are valid."""
        super().__post_init__()
        check_sums_fit(self.grid, protection=self.protection)
        self._normalise(noise=Shape(self.noise))
        sums, counts = self.noises
        self._normalise(sum_scale=sums.scale, count_scale=counts.scale)

    @classmethod
    def for_amount(
        cls, amount: int, *, currency: Currency, attribute: Attribute, step: Step, protection: Protection
    ) -> Self:
        """Return the mean with the least noise that costs at most `amount`.

        The sum is served first. Under add-remove, where both share the amount, it gets SUM_SHARE.

        Args:
            amount: The amount to spend.
            currency: The currency of the amount.
            attribute: The declared column: an Integer or a Number.
            step: The spacing of the grid that values are rounded to.
            protection: The unit to protect, and the neighbouring relation.
        """
        kind, grid = LEAST_NOISE[Currency(currency)], ValueGrid.of(attribute, step=step)
        draft = cls(noise=kind.shape, sum_scale=1.0, count_scale=1.0, grid=grid, protection=protection)
        together, *alone = draft.movements
        for_sum = amount if alone else math.floor(checked_amount(amount) * SUM_SHARE)
        farthest = one_number(max(distance for distance, _ in draft.movements))
        sums = bought_noise(for_sum, currency=currency, sensitivity=farthest, otherwise=COARSER)
        left = amount - replace(sums, sensitivity=one_number(together[0])).price(currency)
        counts = bought_noise(
            left, currency=currency, sensitivity=one_number(together[1]), otherwise="keep fewer rows per unit"
        )
        return replace(draft, sum_scale=sums.scale, count_scale=counts.scale)

    @property
    def movements(self) -> tuple[tuple[int, int], ...]:
        """The worst movements of centred sum and count, in half steps and rows. The one that moves both comes first."""
        m = self.protection.most
        together = (m * self.grid.width, m)
        alone = (2 * m * self.grid.width, 0)
        return (together, alone) if self.protection.neighbours is Neighbours.REPLACE_ONE else (together,)

    def price(self, currency: Currency) -> int:
        """Return the price of one draw as an amount: the price of the most expensive change that one unit can make."""
        return max(
            sum(
                replace(noise, sensitivity=one_number(distance)).price(currency)
                for noise, distance in zip(self.noises, movement, strict=True)
                if distance
            )
            for movement in self.movements
        )

    def read(self, values: Column, *, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact centred sum and number of the kept rows, for `answer` to add noise. Raise for unusable columns.

        Args:
            values: The private column. A row without a usable value is left out.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
        steps, times = kept_steps(values, grid=self.grid, protection=self.protection, ids=ids, weights=weights)
        twice_middle = self.grid.lowest + self.grid.highest
        centred = ((2 * steps - twice_middle) * times).sum()
        totals = [np.array([total], dtype=np.int64) for total in (centred, times.sum())]
        return Exact(totals, protection=self.protection)

    def answer(self, exact: Exact) -> MeanEstimate:
        """Add noise to both numbers and return their mean."""
        noisy_sum, noisy_rows = (
            int(noise.draw(number)[0]) for noise, number in zip(self.noises, exact.for_noise(), strict=True)
        )
        return self._estimate(noisy_sum, noisy_rows)

    @cached_property
    def noises(self) -> tuple[Noise, Noise]:
        """The noise of the sum and the noise of the count, each for the farthest that one unit moves it."""
        kind = KIND_OF_NOISE[self.noise]
        sums, counts = (one_number(max(distances)) for distances in zip(*self.movements, strict=True))
        return kind(scale=self.sum_scale, sensitivity=sums), kind(scale=self.count_scale, sensitivity=counts)

    def _estimate(self, noisy_sum: int, noisy_rows: int) -> MeanEstimate:
        """Compute the mean from values that are already public."""
        rows, width = max(noisy_rows, 1), self.grid.width
        offset = Fraction(noisy_sum, rows)
        offset = max(min(offset, Fraction(width)), Fraction(-width))
        sums, counts = (noise.standard_deviation for noise in self.noises)
        half_step = float(self.grid.step) / 2
        return MeanEstimate(
            mean=self.grid.value((self.grid.lowest + self.grid.highest + offset) / 2),
            rows=noisy_rows,
            standard_error=half_step * math.hypot(sums, float(offset) * counts) / rows,
        )
