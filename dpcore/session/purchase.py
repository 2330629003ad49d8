"""What a session buys for a question: noisy rows, and maybe noisy sums of one column, of every class of cells that the question distinguishes.

Each number of the question is computed from these by linear parts: the rows of a condition, and the sum of their values as distances from the
middle of the column's range. Classes are disjoint, and all of them are bought with one vector of noise (`Weighing`). A count has one part. A
mean has two, a share has two counts of which one contains the other. How far noise moves a number follows from its slopes along its parts.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpcore.answers.evaluate import Prepared, combined, mean_of, of_groups
from dpcore.answers.query import (
    Aggregate,
    All,
    Arithmetic,
    Condition,
    Constant,
    Count,
    IsNull,
    Mean,
    Not,
    Number,
    Output,
    Overall,
    Quantile,
    Query,
    Sum,
    Term,
    aggregates,
)
from dpcore.answers.shares import is_share, never_negative
from dpcore.marginals.measurements import Counts
from dpcore.mechanisms.noise import LEAST_NOISE, Noise
from dpcore.mechanisms.pricing import widest_noise
from dpcore.mechanisms.weighing import Weighing
from dpcore.models.lifted import Grid
from dpcore.models.model import Weights
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection, Sensitivity
from dpcore.session.questions import SLACK
from dpcore.session.values import Values

LEAST = 0.5  # the least noise that is sold: with less, most counts would be exact
LEAST_WIDTH = 1e-100  # half widths below are zero: their squares cannot be computed
CLOSE, CLOSE_SCALE = 1e-3, 1e-10  # how close the largest noise is approached, and its scale
STEPS = 200  # after how many steps at most


@dataclass(frozen=True)
class Part:
    """A linear part of a number: the rows of each group that satisfy a condition.

    Attributes:
        where: The condition.
        valued: Whether it is the sum of their values, as distances from the middle, and not their number.
        overall: Whether it is over all groups together.
    """

    where: Condition
    valued: bool = False
    overall: bool = False


Amounts = Mapping[Part, Weights]


def rows_of(aggregate: Aggregate) -> Condition:
    """Return which rows an aggregate is about: of a sum or mean, those with a value."""
    if isinstance(aggregate, Count):
        return aggregate.where
    return All((aggregate.where, Not(IsNull(Term(aggregate.column)))))


def parts_of(number: Number) -> Iterator[Part]:
    """Yield the linear parts of a number. It must have no quantile."""
    match number:
        case Arithmetic(_, left, right):
            yield from parts_of(left)
            yield from parts_of(right)
        case Overall(inner):
            yield from (replace(part, overall=True) for part in parts_of(inner))
        case Constant():
            return
        case _:
            yield Part(rows_of(number))
            if isinstance(number, Sum | Mean):
                yield Part(rows_of(number), valued=True)


def summed_columns(number: Number) -> set[int] | None:
    """Return the columns whose values a number needs; None if it has a quantile, which is no function of sums."""
    parts = list(aggregates(number))
    if any(isinstance(part, Quantile) for part in parts):
        return None
    return {part.column for part in parts if not isinstance(part, Count)}


def counting(query: Query, numbers: Iterable[Number]) -> Query:
    """Return the query for the rows that numbers are about, in the same groups."""
    wheres = dict.fromkeys(part.where for number in numbers for part in parts_of(number))
    outputs = tuple(Output(str(place), Count(where)) for place, where in enumerate(wheres))
    return Query(outputs, query.where, query.keys)


@dataclass(frozen=True, eq=False)
class Purchase:
    """Noisy numbers of the classes of a grid.

    Attributes:
        merging: The query for rows, made ready.
        grid: The classes.
        values: The column whose sums are bought; None for counts alone.
        weighing: What a row adds to the numbers of its class; None for counts alone.
        per_row: What it adds to the last of them, the number of rows.
        deviation: The standard deviation of the noise of each number.
    """

    merging: Prepared
    grid: Grid
    values: Values | None
    weighing: Weighing | None
    per_row: int
    deviation: float

    @property
    def rows_noise(self) -> float:
        """The standard deviation of the number of rows of a class."""
        return self.deviation * self._grain / self.per_row

    @property
    def _grain(self) -> int:
        return 1 if self.weighing is None else self.weighing.grain

    def split(self, noisy: Counts) -> tuple[Weights, Weights | None]:
        """Return the rows of each class, and the sums of the distances of their values from the middle, from what was measured."""
        if self.values is None:
            return noisy.astype(np.float64), None
        place = self.grid.columns.index(self.values.column)
        classes = self.grid.shape[place]
        pairs = np.moveaxis(noisy.reshape(*noisy.shape[:-1], classes, 2), -2, place) * float(self._grain)
        return np.asarray(pairs[..., 1] / self.per_row), np.asarray(pairs[..., 0] * self.values.step, dtype=np.float64)

    def amounts(self, noisy: Counts, numbers: Iterable[Number]) -> Amounts:
        """Return all linear parts of some numbers, from what was measured."""
        rows, sums = self.split(noisy)
        return {
            part: self._totals(part, sums if part.valued and sums is not None else rows)
            for part in {part for number in numbers for part in parts_of(number)}
        }

    def value(self, number: Number, amounts: Amounts) -> Weights:
        """Return a number of each group by its linear parts."""
        middle, groups = 0.0 if self.values is None else self.values.middle, self.merging.groups

        def of(overall: bool) -> Callable[[Aggregate], Weights]:  # noqa: FBT001  a name for two functions
            def value_of(aggregate: Aggregate) -> Weights:
                rows = amounts[Part(rows_of(aggregate), overall=overall)]
                if isinstance(aggregate, Count):
                    return rows / groups if overall else rows  # `combined` adds up all groups
                sums = amounts[Part(rows_of(aggregate), valued=True, overall=overall)]
                if isinstance(aggregate, Mean):
                    return middle + mean_of(sums, rows)
                return (middle * rows + sums) / (groups if overall else 1)

            return value_of

        return combined(number, of(overall=False), groups=groups, overall=of(overall=True))

    def errors(self, number: Number, amounts: Amounts, *, reach: float) -> tuple[Weights, Weights]:
        """Return the variance of a number due to noise, and how far rounding of values may move it.

        A slope is that of the secant between the ends of a part's interval, which extends so many standard errors. Where that interval holds
        no rows to divide by, the number is not known at all.
        """
        parts = list(dict.fromkeys(parts_of(number)))
        slopes, rounding = [], np.zeros(self.merging.groups)
        for part in parts:
            spread = reach * np.sqrt(self._covariance(part, part))
            low, high = (self.value(number, {**amounts, part: amounts[part] + sign * spread}) for sign in (-1.0, 1.0))
            slope = np.divide(high - low, 2 * spread, out=np.zeros_like(spread), where=spread > 0)
            if not part.valued:
                none = self.value(number, {**amounts, part: np.maximum(amounts[part] - spread, 0.0)})
                slope = np.where(np.isnan(none), np.inf, slope)
            elif self.values is not None:
                rows = np.maximum(amounts[Part(part.where, overall=part.overall)], 0.0)
                rounding = rounding + np.abs(slope) * rows * self.values.error
            slopes.append(slope)
        with np.errstate(invalid="ignore"):
            variance = sum(
                (
                    slope * slope_beside * self._covariance(part, beside)
                    for slope, part in zip(slopes, parts, strict=True)
                    for slope_beside, beside in zip(slopes, parts, strict=True)
                ),
                start=np.zeros(self.merging.groups),
            )
        return np.where(np.isnan(variance), np.inf, np.maximum(variance, 0.0)), rounding

    def ends(self, number: Number) -> tuple[float, float]:
        """Return what a number cannot be below, and above."""
        if isinstance(number, Mean) and self.values is not None:
            return self.values.ends
        return 0.0 if never_negative(number) else -math.inf, 1.0 if is_share(number) else math.inf

    def _covariance(self, part: Part, beside: Part) -> Weights:
        """Return the covariance of two parts: that of the classes that both have."""
        if part.valued != beside.valued:
            return np.zeros(self.merging.groups)
        step = 1.0 if self.values is None else self.values.step
        noise = self.deviation * self._grain * step if part.valued else self.rows_noise
        where = part.where if part.where == beside.where else All((part.where, beside.where))
        both = Part(where, overall=part.overall and beside.overall)
        return noise**2 * self._totals(both, np.ones(self.grid.shape))

    def _totals(self, part: Part, classes: Weights) -> Weights:
        """Return the sums over the classes of each group."""
        totals = self.merging.form(Count(part.where)).totals(of_groups(classes, self.grid.columns, self.grid.groups))
        return np.full(totals.shape, totals.sum()) if part.overall else totals


def plan(  # noqa: PLR0913  what is measured, for whom, and how it is paid
    merging: Prepared,
    grid: Grid,
    values: Values | None,
    *,
    needed: Callable[[Purchase], float],
    currency: Currency,
    protection: Protection,
) -> tuple[Purchase, Noise] | None:
    """Return the cheapest purchase, and its noise; None if almost exact numbers would be needed.

    The more a row adds to the number of rows, the less noise that has, and the more the sum beside it. The cheapest of all powers of two is taken.

    Args:
        merging: The query for rows, made ready.
        grid: The classes.
        values: The column whose sums are bought; None for counts alone.
        needed: Returns how large the deviation of a purchase may be, if slopes were those that it has now.
        currency: The currency of the account.
        protection: The unit to protect.
    """
    plans: list[tuple[Purchase, Noise]] = []
    largest = 1 if values is None else int(np.abs(values.steps).max())
    for per_row in (1 << power for power in range(largest.bit_length())):
        weighing, sensitivity = None, protection.sensitivity
        if values is not None:
            weighing = Weighing(_weights(values, grid, per_row))
            sensitivity = weighing.sensitivity(protection)
        noise = _largest(needed, Purchase(merging, grid, values, weighing, per_row, deviation=1.0))
        if noise < LEAST * largest:
            continue
        if weighing is not None:
            grain = math.ceil(noise / widest_noise(currency, sensitivity).standard_deviation)
            weighing = Weighing(weighing.weights, max(grain, 1))
            noise, sensitivity = noise / weighing.grain, weighing.sensitivity(protection)
        sold = cheapest(noise, currency=currency, sensitivity=sensitivity)
        if sold is not None:
            plans.append((Purchase(merging, grid, values, weighing, per_row, sold.standard_deviation), sold))
    return min(plans, key=lambda plan: plan[1].price(currency), default=None)


def _largest(needed: Callable[[Purchase], float], purchase: Purchase) -> float:
    """Return the largest deviation that is enough. The larger it is, the steeper are the slopes, and the less is enough."""
    deviation = needed(purchase)
    for _ in range(STEPS):
        if not LEAST < deviation < math.inf:
            break
        enough = needed(replace(purchase, deviation=deviation))
        if enough >= deviation * (1 - CLOSE):
            return min(deviation, enough)
        deviation = math.sqrt(deviation * max(enough, deviation / 16))
    return deviation


def _weights(values: Values, grid: Grid, per_row: int) -> Counts:
    """Return what a row adds to the two numbers of each class of its value: its steps from the middle, and `per_row`."""
    classes = grid.groups[grid.columns.index(values.column)][values.cells]
    weights = np.zeros((len(classes), int(classes.max()) + 1, 2), dtype=np.int64)
    weights[np.arange(len(classes)), classes] = np.stack([values.steps, np.full(len(classes), per_row)], axis=1)
    return weights.reshape(len(classes), -1)


def needed_noise(
    halves: Weights, target: Weights, per_noise: Weights, *, normal: float, rounding: Weights | float = 0.0
) -> float:
    """Return the largest standard deviation of noise that makes all numbers accurate enough, combined with what is known.

    A number with standard error s, averaged by inverse variances with a bought one of variance v, has the variance 1 / (1 / s^2 + 1 / v).
    So v = 1 / (1 / a^2 - 1 / s^2) for a wanted standard error a. A sum of k cells of noise sigma has the variance k sigma^2.

    Args:
        halves: The half width of each number now.
        target: The wanted half width of each.
        per_noise: The variance of each bought number, at noise of standard deviation 1: of a count, the cells that it is summed from.
        normal: How many standard errors a half width has.
        rounding: What rounding adds to the standard error of each, whatever the noise.

    >>> round(needed_noise(np.array([100.0]), np.array([60.0]), np.array([1.0]), normal=1.0), 6)
    75.0
    """
    short = halves > target * (1 + SLACK)
    if not short.any():
        return math.inf
    if (target[short] < LEAST_WIDTH).any():
        return 0.0  # a share of nothing, or as good as exact
    before, after = halves[short] / normal, target[short] / normal
    bought = 1 / np.sqrt(1 / after**2 - 1 / before**2) - np.broadcast_to(rounding, halves.shape)[short]
    return max(float((bought / np.sqrt(per_noise[short])).min()), 0.0)


def cheapest(noise: float, *, currency: Currency, sensitivity: Sensitivity) -> Noise | None:
    """Return the cheapest noise with at most this standard deviation; None if no noise is as small, or none as wide.

    >>> cheapest(10.0, currency=Currency.ZCDP, sensitivity=Sensitivity(1, 1, 1)).price(Currency.ZCDP)
    5000000000
    """
    kind = LEAST_NOISE[currency]
    if noise < LEAST:
        return None
    least = widest_noise(currency, sensitivity).price(currency)
    widest = kind.for_amount(least, currency=currency, sensitivity=sensitivity)
    if noise >= widest.standard_deviation:
        return widest
    scale = noise
    for _ in range(STEPS):  # the standard deviation is almost in proportion to the scale
        scaled = kind(scale=scale, sensitivity=sensitivity)
        if 1 - CLOSE_SCALE <= scaled.standard_deviation / noise <= 1:
            break
        scale *= noise / scaled.standard_deviation * (1 - CLOSE_SCALE / 2)
    return scaled
