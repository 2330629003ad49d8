"""Intervals for the numbers of a query, and what each number is based on.

The standard error of a number is the root mean square difference between the release's replicates and its pilot. There are few replicates,
so the variance of a count is averaged with the usual variance of counts of that size. If the columns of a number were not measured
together, errors are larger than the replicates know (docs/decisions/0044).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dpcore.answers.cells import Column
from dpcore.answers.direct import Direct, Measured
from dpcore.answers.ensemble import Ensemble, Tilted
from dpcore.answers.evaluate import Prepared
from dpcore.answers.query import (
    Aggregate,
    Arithmetic,
    Count,
    Mean,
    Number,
    Overall,
    Quantile,
    Query,
    Sum,
    aggregates,
)
from dpcore.answers.release import Release
from dpcore.answers.replicates import make_uncertainty
from dpcore.answers.shares import is_share, never_negative
from dpcore.answers.sides import Sides, carried
from dpcore.answers.tilting import Resolved, Valued
from dpcore.errors import UsageError
from dpcore.models.model import Weights

# Chosen on twelve tables, and tested on eight others: docs/decisions/0044
# The standard error of a number that no measurement covers, or that depends on values within cells, is multiplied by this, unless it is a
# count. So is that of a count of a sum of releases, in which what their fits have smoothed away adds up.
WIDER = 1.3
# What no measurement covers varies as a sample of rows does; a guess does as if rows came in clumps of so many.
CLUMPS = 5.0
# If there are too few rounds to connect all columns, the rows of a guess vary as if they came in 1 / 0.4^2 = 6 clumps.
OF_SIX = 0.4**2
SAME_NOISE = 0.5  # a noisy sum adds this part of what an independent one would, since the model has seen the same noise
USUAL = 8  # the usual variance weighs as much as this many replicates
HIDDEN_LEVEL = 0.95  # an interval of this level includes all rows that a tree may have lost, unless they are many
MOST_LEVEL = 0.9999


class Basis(StrEnum):
    """What a number is based on, from the best to the worst.

    `measured`: one noisy measurement covers all of its columns. `model`: the model infers it from several measurements, or mostly from how
    values lie within cells. `guess`: two of its columns were never measured together, so how they depend on each other follows from other
    columns alone; if no measurement connects them, they are taken to be independent.
    """

    MEASURED = "measured"
    MODEL = "model"
    GUESS = "guess"


def worst_of(bases: Iterable[Basis]) -> Basis:
    """Return the worst of some bases.

    >>> worst_of([Basis.MODEL, Basis.MEASURED])
    <Basis.MODEL: 'model'>
    """
    return max(bases, key=list(Basis).index, default=Basis.MEASURED)


@dataclass(frozen=True, eq=False)
class Interval:
    """A number of each group, the ends of its interval, and its basis.

    Attributes:
        value: The number of each group.
        low: The lower end of its interval.
        high: The upper end.
        basis: What the number is based on.
        inferred: Groups whose interval is mostly about values within cells, where only the whole table was measured: `model` at best.
    """

    value: Weights
    low: Weights
    high: Weights
    basis: Basis
    inferred: npt.NDArray[np.bool_] | None = None

    @property
    def bases(self) -> list[Basis]:
        """The basis of each group."""
        if self.inferred is None or self.basis is not Basis.MEASURED:
            return [self.basis] * len(self.value)
        return [Basis.MODEL if inferred else self.basis for inferred in self.inferred.tolist()]

    def extended(self, sides: Sides) -> "Interval":
        """Return the interval, extended to either side by errors that are independent of those that it includes."""
        below, above = self.value - self.low, self.high - self.value
        inferred = self.inferred
        if inferred is not None:
            inferred = inferred | (sides.largest > np.maximum(below, above))
        low, high = (
            self.value - np.hypot(below, np.sqrt(sides.below)),
            self.value + np.hypot(above, np.sqrt(sides.above)),
        )
        return replace(self, low=low, high=high, inferred=inferred)


class Intervals:
    """Makes the intervals of a release's numbers. Keep it for several queries, since it keeps models and marginals.

    If the release was published without replicates, they are made here, which takes ten times as long as fitting the model.
    """

    def __init__(self, release: Release) -> None:
        uncertainty = release.uncertainty or make_uncertainty(release)
        self._scale, self._total = uncertainty.scale, uncertainty.model.total
        self._measured = Measured(release)
        self._counts_wider = WIDER if release.parts > 1 else 1.0
        # Steps correct no error below 2 alpha rows, and those of replicates do not either.
        self._least_error = release.steps.alpha * self._total if release.steps else 0.0
        self._constrained = bool(release.zeros.possible)
        self.ensemble = Ensemble(release, uncertainty)
        self.limit = release.limit
        self._rows_deviation = release.sizes_deviation

    def of(
        self, query: Query, *, level: float, most_cells: int | None = None
    ) -> tuple[Prepared, dict[Number, Interval]]:
        """Return a query made ready, and the interval of every number of it.

        Args:
            query: The query.
            level: The wanted probability that an interval contains the true number, such as 0.95.
            most_cells: The most cells that may be computed; None if there is no limit but those of every question.
        """
        checked_level(level)
        prepared = self.ensemble.prepared(query)
        cells = max(prepared.cells, prepared.groups * len(query.numbers()))
        if most_cells is not None and cells > most_cells:
            raise UsageError(
                f"the question needs {cells:,} cells, and at most {most_cells:,} are computed here; ask about fewer columns or wider bins, or let "
                "the steward publish a release (dpflow session release) and use dpflow answer"
            )
        values, differences = self.ensemble.evaluated(prepared)
        errors, hidden, intervals = _normal(level), self.ensemble.hidden(prepared), {}
        for number, value in values.items():
            if isinstance(number, Count):
                interval = self._of_count(prepared, number, value, differences[number], level)
                if self._rows_deviation:  # measurements do not tell how many rows they left out
                    unknown = (errors * self._rows_deviation * value) ** 2
                    interval = interval.extended(Sides(unknown, unknown))
            else:
                interval = self._of_other(prepared, number, value, differences[number], level)
            sides = self.ensemble.cut_cells(prepared, number, errors=errors)
            if number in hidden:
                sides = sides.or_larger(hidden[number].times(errors / _normal(HIDDEN_LEVEL)))
            intervals[number] = _within_range(prepared, number, interval.extended(sides))
        return prepared, intervals

    def _of_other(
        self, prepared: Prepared, number: Number, value: Weights, differences: Weights, level: float
    ) -> Interval:
        """Return the interval of a number other than a count.

        If the values of its groups within cells were not measured, it lies around the number that tilted groups would have. The number
        itself stays the model's, and inside the interval.
        """
        basis = judged = self._judged(prepared, aggregates(number))
        if basis is Basis.MEASURED and self.ensemble.needs_unmeasured_values(prepared, number):
            basis = Basis.MODEL
        student_errors = student(level, len(differences))
        errors = student_errors * (1.0 if basis is Basis.MEASURED else WIDER)
        resolved = self._resolved(prepared, number)
        tilted = Tilted(value, differences, Sides.none(prepared.groups))
        if resolved:
            tilted = self.ensemble.tilted(prepared, number, resolved, errors=errors)
        squares = np.mean(tilted.differences**2, axis=0)
        clumps: Weights | float = 0.0
        if judged is not Basis.MEASURED and isinstance(number, Mean | Sum | Quantile):
            clumps = self._clumps(prepared, number, self.ensemble.rows(prepared, number), judged)
            if not isinstance(number, Quantile):
                squares = squares + clumps * self.ensemble.sampling_variance(prepared, number)
        squares = errors**2 * squares
        if judged is not Basis.MEASURED and isinstance(number, Arithmetic | Overall) and not resolved:
            squares = squares + student_errors**2 * self._of_unmeasured_counts(prepared, number)
        low, high = tilted.value - np.sqrt(squares), tilted.value + np.sqrt(squares)
        if isinstance(number, Quantile):
            ends = self.ensemble.quantile_ends(prepared, number, errors, clumps=clumps, resolved=resolved.get(number))
            low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
        if not resolved:
            return Interval(value, low, high, basis)
        inferred = np.abs(tilted.value - value) + tilted.sides.largest > np.maximum(
            tilted.value - low, high - tilted.value
        )
        around = Interval(tilted.value, low, high, basis).extended(tilted.sides)
        return Interval(value, np.minimum(around.low, value), np.maximum(around.high, value), basis, inferred)

    def _clumps(self, prepared: Prepared, number: Aggregate, rows: Weights, basis: Basis) -> Weights | float:
        """Return the clumps in which rows seem to come, as far as nothing was measured; 0 for a single column, whose values were measured.

        They are large if the columns are a guess because the release has too few rounds, and not because they hardly depend on each other.
        """
        if len(prepared.rows(number).axes) < 2:
            return 0.0
        if basis is not Basis.GUESS:
            return float(basis is Basis.MODEL)
        return CLUMPS if self._measured.could_connect else np.maximum(CLUMPS, OF_SIX * rows)

    def _unmeasured(self, prepared: Prepared, number: Count, counts: Weights) -> Weights:
        """Return the variance of counts that is due to how columns depend on each other, if that was not measured: as if rows came in clumps."""
        clumps = self._clumps(prepared, number, counts, self._judged(prepared, [number]))
        return np.asarray(clumps * counts * (1 - np.minimum(counts / self._total, 1.0)))

    def _of_unmeasured_counts(self, prepared: Prepared, number: Number) -> Weights:
        """Return the variance of a computed number, such as a share, that is due to counts which no measurement covers.

        Each such count has that variance, which no replicate shows. The number changes as if its counts moved by their standard deviations,
        one at a time.
        """
        values, moves = self.ensemble.parts(prepared, number), []
        for part, value in values.items():
            if isinstance(part, Count):
                moves.append([{**values, part: value + np.sqrt(self._unmeasured(prepared, part, value))}])
        sides = carried(number, values, moves, groups=prepared.groups)
        return sides.below + sides.above

    def _resolved(self, prepared: Prepared, number: Number) -> dict[Valued, Resolved]:
        """Return the measured cells of each aggregate whose groups depend on how values lie within cells."""
        resolved: dict[Valued, Resolved] = {}
        for part in aggregates(number):
            if isinstance(part, Count) or not self.ensemble.has_leaves(part.column):
                continue
            others = [axis for axis in prepared.rows(part).axes if axis != part.column]
            if others:
                resolved[part] = Resolved(*self._measured.cells_with(part.column, others))
        return resolved

    def _of_count(
        self, prepared: Prepared, number: Count, value: Weights, differences: Weights, level: float
    ) -> Interval:
        basis = self._judged(prepared, [number])
        form = prepared.form(number)
        direct = self._measured.counts(prepared, form)
        usual = self._usual(value, direct, columns=len(form.axes))
        if self.ensemble.asks_for_times_of_week(prepared, form.axes):
            # What is usual was learned from counts of whole cells.
            usual = np.maximum(usual, np.mean(differences**2, axis=0))
        variances = self._counts_wider**2 * _steadied(differences, usual) + self._least_error**2
        variances = variances + self._unmeasured(prepared, number, value)
        low, high = _combined(
            value, variances, direct, errors=student(level, len(differences) + USUAL), normal=_normal(level)
        )
        # No row can be in some groups, such as `age < 20 and age > 60`, or constraints exclude them.
        excluded = (differences == 0).all(axis=0) if self._constrained else np.zeros(len(value), dtype=np.bool_)
        never = (value == 0) & (~form.possible | excluded)
        return Interval(value, np.where(never, 0.0, low), np.where(never, 0.0, high), basis)

    def _usual(self, counts: Weights, direct: Direct, *, columns: int) -> Weights:
        """Return the usual variance of counts. A model has little room to err where it was measured."""
        usual = self._scale.usual(counts, columns=columns)
        if not any(self._scale.measured):  # nothing was learned from measured counts
            return usual
        measured = self._scale.usual_measured(counts, direct.finite, columns=columns)
        return np.where(direct.known, measured, usual)

    def _judged(self, prepared: Prepared, parts: Iterable[Aggregate]) -> Basis:
        """Return the basis of a number: that of its worst part."""
        return worst_of(
            Basis.MODEL if self._measured.together(axes) else Basis.GUESS
            for axes in (prepared.rows(part).axes for part in parts)
            if not self._measured.covers(prepared, axes)
        )


def _steadied(differences: Weights, usual: Weights) -> Weights:
    """Return the variances of counts, bias included, by their differences from the pilot in each replicate.

    There are few replicates, so their spread is averaged with the usual variance of such counts, on a logarithmic scale. Bias is added
    afterwards, since it is no matter of chance: in nearly empty cells, a model without negative counts is always too high.
    """
    replicates, bias = len(differences), differences.mean(axis=0)
    squares = np.mean(differences**2, axis=0)
    spread = squares - bias**2
    bias_squared = np.maximum(bias**2 - spread / max(replicates - 1, 1), 0.0)  # without what chance alone gives
    own = replicates / (replicates + USUAL)
    # One row is added before logarithms are averaged: nobody needs to know a count better.
    averaged = np.exp(own * np.log(squares - bias_squared + 1.0) + (1 - own) * np.log(usual + 1.0))
    return np.asarray(averaged + bias_squared)


def _combined(
    value: Weights, variances: Weights, direct: Direct, *, errors: float, normal: float
) -> tuple[Weights, Weights]:
    """Return the ends of the intervals of counts that the model and noisy sums tell together.

    The interval lies around an average by inverse variances, and is never wider than that of the noisy sum alone. The number itself stays
    the model's and inside the interval, so that the counts of groups add up.
    """
    weight = np.where(direct.known, SAME_NOISE * variances / (SAME_NOISE * variances + direct.finite), 0.0)
    centre = weight * direct.counts + (1 - weight) * value
    half = np.minimum(errors * np.sqrt((1 - SAME_NOISE * weight) * variances), normal * np.sqrt(direct.variances))
    return np.minimum(centre - half, value), np.maximum(centre + half, value)


def _within_range(prepared: Prepared, number: Number, interval: Interval) -> Interval:
    """Return an interval within the values that a number can have.

    Those are the values of its column for a mean or quantile, no negative counts and sums of what is never negative, no share above 1.
    Rounding errors may move a mean of equal values beyond that value, too.
    """
    value, low, high = interval.value, interval.low, interval.high
    if isinstance(number, Mean | Quantile):
        first, last = _ends(prepared.column(number.column))
        low, high = np.where(np.isnan(low), first, low), np.where(np.isnan(high), last, high)  # a replicate has no row
        value, low, high = (np.clip(numbers, first, last) for numbers in (value, low, high))
        low, high = np.where(np.isnan(value), np.nan, low), np.where(np.isnan(value), np.nan, high)
    if isinstance(number, Sum):
        first, last = _ends(prepared.column(number.column))
        low, high = (np.maximum(low, 0.0) if first >= 0 else low), (np.minimum(high, 0.0) if last <= 0 else high)
    if never_negative(number):
        low = np.maximum(low, 0.0)
    if is_share(number):
        high = np.maximum(np.minimum(high, 1.0), value)
    return replace(interval, value=value, low=low, high=high)


def _ends(column: Column) -> tuple[float, float]:
    """Return the least and the greatest value of a column, or their places."""
    if column.spread is None:
        values = column.means[~column.null]
        return values.min(), values.max()
    places = column.spread.bounds[0], column.spread.bounds[-1] - column.spread.whole
    if column.is_moment:
        return places
    first, last = column.spread.value(np.array(places)).tolist()
    return float(first), float(last)


def checked_level(level: float) -> float:
    """Return a level of confidence, or raise.

    >>> checked_level(0.9)
    0.9
    """
    if not 0 < level <= MOST_LEVEL:
        raise UsageError(f"the level must be above 0 and at most {MOST_LEVEL}; use 0.95 for 95 % intervals")
    return level


def student(level: float, degrees: int) -> float:
    """Return how many standard errors an interval extends to either side, if the standard error comes from so many squares.

    This is Student's quantile by its expansion around the normal one (Abramowitz and Stegun 1964, 26.7.5), which is exact to two percent from
    five squares on, and to a thousandth at the level 0.95.

    >>> round(student(0.95, 10), 2), round(student(0.95, 18), 2)
    (2.23, 2.1)
    """
    z = _normal(level)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / degrees + second / degrees**2 + third / degrees**3 + fourth / degrees**4


def _normal(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
