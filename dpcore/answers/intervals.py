"""Intervals for the numbers of a query, and what each number is based on.

The standard error of a number is the root mean square difference between the release's replicates and its pilot. There are few replicates,
so the variance of a count is averaged with the usual variance of counts of that size. If the columns of a number were never measured
together, errors are larger than the replicates know: by how much, the release's own rounds tell (docs/decisions/0044).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dpcore.answers.direct import Direct, Measured
from dpcore.answers.ensemble import Ensemble
from dpcore.answers.evaluate import Prepared, combined
from dpcore.answers.merging import Merging
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
from dpcore.answers.shares import is_share, moved, never_negative
from dpcore.answers.tilting import Resolved
from dpcore.errors import UsageError
from dpcore.models.model import Weights

# Chosen on releases of three tables, so that 95 % intervals cover 95 %: docs/decisions/0044
WIDER = {"mwem": 0.93, "adaptive": 0.97, "pmw": 1.05}  # the standard error of a count is multiplied by this
OTHERS_WIDER = 1.1  # and that of another number by this
CLUMPS = (
    3.0  # a mean, sum or quantile over columns never measured together varies as if rows came in clumps of this many
)
IN_SIX = (
    0.4**2
)  # if there are too few rounds to connect all columns, a guess varies as if its rows came in 1 / 0.4^2 = 6 clumps
USUAL = 8  # the usual variance weighs as much as this many replicates
ONE_ROW = 1.0  # is added to variances before their logarithms are averaged: nobody needs to know a count better
IN_PAIRS, APART, UNCONNECTED = 1.2, 1.5, 2.0  # factors for columns that were not measured together
SUM_WIDER = 1.1  # of a sum of releases, whose fits leave less noise and the same structure: docs/decisions/0059
SAME_NOISE = 0.5  # a noisy sum adds this part of what an independent one would, since the model has seen the same noise
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
        return [Basis.MODEL if each else self.basis for each in self.inferred.tolist()]


@dataclass(frozen=True)
class Judged:
    """The basis of a number, the factor of its standard error, and the wanted level of its interval."""

    basis: Basis
    factor: float
    level: float


@dataclass(frozen=True)
class Doubt:
    """The basis of a mean, sum or quantile, how many standard errors its interval extends, and the clumps in which rows may come."""

    basis: Basis
    errors: float
    clumps: Weights | float


class Intervals:
    """Makes the intervals of a release's numbers. Keep it for several queries, since it keeps models and marginals.

    If the release was published without replicates, they are made here, which takes ten times as long as fitting the model.
    """

    def __init__(self, release: Release) -> None:
        self._known = release.uncertainty or make_uncertainty(release)
        self._measured = Measured(release)
        self._parts = len(release.manifest.get("parts") or ()) or 1
        self._wider = WIDER[release.manifest["strategy"]] * (SUM_WIDER if self._parts > 1 else 1.0)
        self._least = _least_variance(release)
        self._total = self._known.model.total
        self._constrained = bool(release.zeros.possible)
        self.ensemble = Ensemble(release, self._known)
        self.limit = release.limit

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
        merging = self.ensemble.merging(query)
        cells = max(merging.cells, merging.groups * len(query.numbers()))
        if most_cells is not None and cells > most_cells:
            raise UsageError(
                f"the question needs {cells:,} cells, and at most {most_cells:,} are computed here; ask about fewer columns or wider bins, or let "
                "the steward publish a release (dpflow session release) and use dpflow answer"
            )
        values, differences = self.ensemble.evaluated(merging)
        found = {
            number: self._interval(merging, number, value, differences[number], level)
            for number, value in values.items()
        }
        scale, hidden = _normal(level) / _normal(HIDDEN_LEVEL), self.ensemble.hidden(merging)
        for number, each in found.items():
            below, above = self._within_cells(merging, number, errors=_normal(level))
            for change in scale * hidden.get(number, np.zeros((0, merging.groups))):
                below, above = np.maximum(below, -change), np.maximum(above, change)
            if below.any() or above.any():
                found[number] = _extended(merging, number, each, below, above)
        for number, each in found.items():
            if is_share(number):
                found[number] = replace(each, high=np.maximum(np.minimum(each.high, 1.0), each.value))
        return merging, found

    def _within_cells(self, merging: Merging, number: Number, *, errors: float) -> tuple[Weights, Weights]:
        """Return how far a number may be off to either side, because its counts and sums are of only some of the values of a cell."""
        below, above = np.zeros(merging.groups), np.zeros(merging.groups)
        parts = dict.fromkeys(part for part in aggregates(number) if isinstance(part, Count | Sum))
        if not any(self.ensemble.cut_columns(merging, part) for part in parts):
            return below, above
        values = self.ensemble.parts(merging, number)
        usual = combined(number, values.__getitem__, groups=merging.groups)
        sides = {part: self.ensemble.within_cells(merging, part, errors=errors) for part in parts}
        for some in moved(number, values, sides):
            found = combined(number, some.__getitem__, groups=merging.groups, overall=values.__getitem__)
            change = np.nan_to_num(found - usual)
            below, above = below + np.minimum(change, 0.0) ** 2, above + np.maximum(change, 0.0) ** 2
        return np.sqrt(below), np.sqrt(above)

    def _interval(
        self, merging: Merging, number: Number, value: Weights, differences: Weights, level: float
    ) -> Interval:
        basis, factor = self._judged(merging, aggregates(number))
        if basis is Basis.MEASURED and self.ensemble.needs_unmeasured_values(merging, number):
            basis = Basis.MODEL
        if isinstance(number, Count):
            return self._of_count(merging, number, value, differences, Judged(basis, factor, level))
        clumps = self._clumps(merging, number, basis) if factor >= APART else 0.0
        errors = student(level, len(differences)) * OTHERS_WIDER * self._of_parts(factor)
        resolved = self._resolved(merging, number)
        if resolved:
            return self._of_tilted(merging, number, value, resolved, Doubt(basis, errors, clumps))
        half = errors * np.sqrt(self._squares(merging, number, differences, clumps))
        if factor >= APART and isinstance(number, Arithmetic | Overall):
            unmeasured = np.sqrt(self._of_unmeasured_counts(merging, number))
            half = np.hypot(half, student(level, len(differences)) * unmeasured)
        low, high = value - half, value + half
        if never_negative(number):
            low = np.maximum(low, 0.0)
        if isinstance(number, Quantile):
            ends = self.ensemble.quantile_ends(merging, number, errors, clumps=clumps)
            low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
        value, low, high = _within_range(merging, number, (value, low, high))
        return Interval(value, low, high, basis)

    def _clumps(self, merging: Merging, number: Number, basis: Basis) -> Weights | float:
        """Return the clumps in which rows of a mean, sum or quantile may come, if its columns were never measured together."""
        least = max(CLUMPS, self._known.scale.unmeasured)
        if not isinstance(number, Mean | Sum | Quantile) or not self._is_blind(basis):
            return least
        in_six = IN_SIX / (OTHERS_WIDER * UNCONNECTED) ** 2  # the standard error is multiplied by both
        return np.maximum(least, in_six * self.ensemble.rows(merging, number))

    def _is_blind(self, basis: Basis) -> bool:
        """Return whether a guess is one because the release has too few rounds, and not because the columns hardly depend on each other."""
        return basis is Basis.GUESS and not self._measured.could_connect

    def _squares(self, merging: Merging, number: Number, differences: Weights, clumps: Weights | float) -> Weights:
        squares: Weights = np.mean(differences**2, axis=0)
        if np.any(clumps) and isinstance(number, Mean | Sum):
            squares = squares + clumps * self.ensemble.sampling_variance(merging, number)
        return squares

    def _of_unmeasured_counts(self, merging: Merging, number: Number) -> Weights:
        """Return the variance of a computed number, such as a share, that is due to counts over columns never measured together.

        Each such count has that variance, which no replicate shows. The number changes as if its counts moved by their standard deviations,
        one at a time.
        """
        values = self.ensemble.parts(merging, number)
        usual = combined(number, values.__getitem__, groups=merging.groups)
        found = np.zeros(merging.groups)
        for part, value in values.items():
            basis, factor = self._judged(merging, [part])
            if isinstance(part, Count) and factor >= APART:
                moved = {**values, part: value + np.sqrt(self._unmeasured(value, basis))}
                changed = combined(number, moved.__getitem__, groups=merging.groups, overall=values.__getitem__)
                found = found + np.nan_to_num(changed - usual) ** 2
        return found

    def _unmeasured(self, counts: Weights, basis: Basis) -> Weights:
        """Return the variance of counts over columns that were never measured together: as if rows came in clumps."""
        least = self._known.scale.unmeasured
        clumps = np.maximum(least, IN_SIX * counts) if self._is_blind(basis) else least
        found: Weights = clumps * counts * (1 - np.minimum(counts / self._total, 1.0))
        return found

    def _of_tilted(
        self,
        merging: Merging,
        number: Number,
        value: Weights,
        resolved: Mapping[Aggregate, Resolved],
        doubt: Doubt,
    ) -> Interval:
        """Return the interval of a number of groups whose values within cells were not measured.

        It lies around the number that tilted groups would have. The number itself stays the model's, and inside the interval.
        """
        tilted = self.ensemble.tilted(merging, number, resolved, errors=doubt.errors)
        half = doubt.errors * np.sqrt(self._squares(merging, number, tilted.differences, doubt.clumps))
        low, high = tilted.value - half, tilted.value + half
        if isinstance(number, Quantile):
            ends = self.ensemble.quantile_ends(
                merging, number, doubt.errors, clumps=doubt.clumps, resolved=resolved[number]
            )
            low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
        below, above = tilted.value - low, high - tilted.value
        low, high = tilted.value - np.hypot(below, tilted.below), tilted.value + np.hypot(above, tilted.above)
        within = np.abs(tilted.value - value) + np.maximum(tilted.below, tilted.above)
        inferred = within > np.maximum(below, above)
        low, high = np.minimum(low, value), np.maximum(high, value)
        value, low, high = _within_range(merging, number, (value, low, high))
        return Interval(value, low, high, doubt.basis, inferred)

    def _resolved(self, merging: Merging, number: Number) -> dict[Aggregate, Resolved]:
        """Return the measured cells of each aggregate whose groups depend on how values lie within cells."""
        found: dict[Aggregate, Resolved] = {}
        for each in aggregates(number):
            if isinstance(each, Count) or not self.ensemble.has_leaves(each.column):
                continue
            others = [axis for axis in merging.rows(each).axes if axis != each.column]
            if others:
                found[each] = Resolved(*self._measured.cells_with(each.column, others))
        return found

    def _of_count(
        self, merging: Merging, number: Count, value: Weights, differences: Weights, judged: Judged
    ) -> Interval:
        form = merging.form(number)
        direct = self._measured.counts(merging, form)
        usual = self._usual(value, direct, columns=len(form.axes))
        if self.ensemble.asks_for_times_of_week(merging, form.axes):
            # What is usual was learned from counts of whole cells.
            usual = np.maximum(usual, np.mean(differences**2, axis=0))
        variances = (self._wider * self._of_parts(judged.factor)) ** 2 * _steadied(differences, usual) + self._least
        if judged.factor >= APART:
            variances = variances + self._unmeasured(value, judged.basis)
        errors = student(judged.level, len(differences) + USUAL)
        if direct is None:
            low, high = value - errors * np.sqrt(variances), value + errors * np.sqrt(variances)
        else:
            low, high = _combined(value, variances, direct, errors=errors, normal=_normal(judged.level))
        never = value == 0
        if never.any():
            excluded = (differences == 0).all(axis=0) if self._constrained else np.zeros(len(value), dtype=np.bool_)
            never &= ~form.possible | excluded  # such as `age < 20 and age > 60`, or what constraints exclude
            low, high = np.where(never, 0.0, low), np.where(never, 0.0, high)
        return Interval(value, np.maximum(low, 0.0), np.maximum(high, 0.0), judged.basis)

    def _usual(self, counts: Weights, direct: Direct | None, *, columns: int) -> Weights:
        """Return the usual variance of counts. A model has little room to err where it was measured."""
        found = self._known.scale.usual(counts, columns=columns)
        if direct is None or not any(self._known.scale.measured):  # nothing was learned from measured counts
            return found
        known = np.isfinite(direct.variances)
        variances = np.where(known, direct.variances, 1.0)
        return np.where(known, self._known.scale.usual_measured(counts, variances, columns=columns), found)

    def _judged(self, merging: Merging, parts: Iterable[Aggregate]) -> tuple[Basis, float]:
        """Return the basis of a number, and the factor of its standard error: those of its worst part."""
        basis, factor = Basis.MEASURED, 1.0
        for part in parts:
            axes = merging.rows(part).axes
            if self._measured.covers(merging, axes):
                continue
            if not self._measured.connected(axes):
                return Basis.GUESS, UNCONNECTED
            basis = worst_of((basis, Basis.MODEL if self._measured.together(axes) else Basis.GUESS))
            factor = max(factor, IN_PAIRS if self._measured.in_pairs(axes) else APART)
        return basis, factor

    def _of_parts(self, factor: float) -> float:
        """Return the factor for a sum: what was never measured is the same in all parts, so it adds up, while noise partly cancels out."""
        return math.sqrt(1 + (factor**2 - 1) * self._parts)


def _least_variance(release: Release) -> float:
    """Return the least variance of a count. `pmw` corrects no error below 2 alpha rows, and its replicates do not either."""
    if release.manifest["strategy"] != "pmw":
        return 0.0
    return float((release.manifest["spec"]["strategy"]["alpha"] * release.model.total) ** 2)


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
    averaged = np.exp(own * np.log(squares - bias_squared + ONE_ROW) + (1 - own) * np.log(usual + ONE_ROW))
    return np.asarray(averaged + bias_squared)


def _combined(
    value: Weights, variances: Weights, direct: Direct, *, errors: float, normal: float
) -> tuple[Weights, Weights]:
    """Return the ends of the intervals of counts that the model and noisy sums tell together.

    The interval lies around an average by inverse variances, and is never wider than that of the noisy sum alone. The number itself stays
    the model's and inside the interval, so that the counts of groups add up.
    """
    known = np.isfinite(direct.variances)
    sums = np.where(known, direct.variances, 1.0)
    weight = np.where(known, SAME_NOISE * variances / (SAME_NOISE * variances + sums), 0.0)
    centre = weight * np.where(known, direct.counts, 0.0) + (1 - weight) * value
    half = errors * np.sqrt((1 - SAME_NOISE * weight) * variances)
    half = np.where(known, np.minimum(half, normal * np.sqrt(sums)), half)
    return np.minimum(centre - half, value), np.maximum(centre + half, value)


def _extended(prepared: Prepared, number: Number, found: Interval, below: Weights, above: Weights) -> Interval:
    """Extend an interval to either side, by errors that are independent of those that it includes."""
    low = found.value - np.hypot(found.value - found.low, below)
    high = found.value + np.hypot(found.high - found.value, above)
    if never_negative(number):
        low = np.maximum(low, 0.0)
    _, low, high = _within_range(prepared, number, (found.value, low, high))
    inferred = found.inferred
    if inferred is not None:
        inferred = inferred | (np.maximum(below, above) > np.maximum(found.value - found.low, found.high - found.value))
    return replace(found, low=low, high=high, inferred=inferred)


def _within_range(prepared: Prepared, number: Number, numbers: Sequence[Weights]) -> Sequence[Weights]:
    """Return a mean or quantile and the ends of its interval, moved to the least and the greatest value of its column.

    Rounding errors may move a mean of equal values beyond that value, too.
    """
    if not isinstance(number, Mean | Quantile):
        return numbers
    column = prepared.column(number.column)
    if column.spread is None:
        values = column.means[~column.null]
        first, last = values.min(), values.max()
    else:
        first, last = column.spread.bounds[0], column.spread.bounds[-1] - column.spread.whole
        if not column.is_moment:
            first, last = (float(column.spread.value(np.asarray([place]))[0]) for place in (first, last))
    return [np.clip(each, first, last) for each in numbers]


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

    This is Student's quantile by its expansion around the normal one, which is exact to a percent from eight squares on.

    >>> round(student(0.95, 10), 2), round(student(0.95, 18), 2)
    (2.23, 2.1)
    """
    z = _normal(level)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def _normal(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
