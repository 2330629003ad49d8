"""Keep the trends of measured pairs of ordered columns.

A fit that stops before it copies noise also weakens what many cells show only together: the error of each cell is below its noise, but all
of them lean the same way. In a table of hospital stays, a correlation of 0.47 became 0.38, eight standard deviations away from its
measurement (docs/decisions/0016). A trend is one number for each pair of columns: the sum of counts times the product of both standardized
ranks. One number has little noise, so it can be fitted closely. The single columns keep their marginals.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.curvature import Curvature, Vector, dot
from dpcore.models.evidence import Evidence, Orders, Target
from dpcore.models.model import Model, Weights
from dpcore.models.refine import Functions

STANDS_OUT = 3.0  # standard deviations by which a model must miss a trend before it is corrected
CLOSE = 0.5  # standard deviations to which it is corrected
SAME = 1e-3  # the share of the rows by which the marginal of a column may change, on average
TRIES = 40  # evaluations of the model
TINY = 1e-9


@dataclass(frozen=True, eq=False)
class _Trend:
    """The trend of two columns in a measured marginal.

    Attributes:
        axes: The axes of the marginal.
        scores: The score of each of its cells, which can be broadcast over the marginal.
        measured: The sum of noisy counts times scores.
        deviation: The standard deviation of its noise.
    """

    axes: Axes
    scores: Weights
    measured: float
    deviation: float

    def expected(self, marginal: Weights) -> float:
        """Return the trend of a model's marginal."""
        return float(np.sum(marginal * self.scores))


def keep_trends(model: Model, evidence: Evidence, functions: Functions, *, orders: Orders) -> dict[Axes, Weights]:
    """Correct a fitted model where it misses measured trends, and return its functions.

    Args:
        model: The model, at `functions`. It is left at the returned functions.
        evidence: The measurements that it was fitted to.
        functions: Its functions.
        orders: The ordered columns.
    """
    resolutions = model.resolutions
    ordered = {axis for column in orders for axis in resolutions.versions(column)}
    joint = {axes: target for axes, target in evidence if sum(axis in ordered for axis in axes) > 1}
    singles = [axes for axes in evidence.axes if len(axes) == 1]
    marginals = model.marginals([*singles, *joint])
    best: dict[Axes, _Trend] = {}
    for axes, target in joint.items():
        for pair in combinations([axis for axis in axes if axis in ordered], 2):
            ranks = [_ranks(resolutions, axis, inside=orders[resolutions.column(axis)]) for axis in pair]
            trend = _trend(pair, axes, target, marginals[axes], ranks=ranks, possible=model.possible(axes))
            columns = tuple(map(resolutions.column, pair))
            if columns not in best or trend.deviation < best[columns].deviation:
                best[columns] = trend
    missed = [
        trend
        for trend in best.values()
        if abs(trend.expected(marginals[trend.axes]) - trend.measured) > STANDS_OUT * trend.deviation
    ]
    if not missed:
        return dict(functions)
    before = _misfit(model, evidence)
    corrected = _Correction(model, functions, {axes: marginals[axes] for axes in singles}, missed).solve()
    if _misfit(model, evidence) > max(before, sum(target.counts.size for _, target in evidence)):
        model.assign(functions)  # the trend contradicts other counts by more than noise explains
        return dict(functions)
    return corrected


def _misfit(model: Model, evidence: Evidence) -> float:
    """Return the squared error of a model's marginals, in units of the noise: about the number of cells if noise is all that is wrong."""
    marginals = model.marginals(evidence.axes)
    return math.fsum(
        float(np.sum((marginals[axes] - target.counts) ** 2 / target.variance)) for axes, target in evidence
    )


def _ranks(resolutions: Resolutions, axis: int, *, inside: int) -> Vector:
    """Return the place of each cell in the order of its column: of merged cells the mean; not a number for cells outside of the order.

    >>> of = Resolutions((5,))
    >>> coarse = of.coarsen(0, [0, 0, 1, 1, 2])
    >>> _ranks(of, coarse, inside=4).tolist()
    [0.5, 2.5, nan]
    """
    groups = np.asarray(resolutions.groups(resolutions.column(axis), axis))[:inside]
    sizes = np.bincount(groups, minlength=resolutions.shape[axis])
    sums = np.bincount(groups, weights=np.arange(inside), minlength=resolutions.shape[axis])
    ranks: Vector = np.divide(sums, sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
    return ranks


def _trend(  # noqa: PLR0913  a measured marginal, its model, and what is known of its cells
    pair: Axes,
    axes: Axes,
    target: Target,
    marginal: Weights,
    *,
    ranks: Sequence[Vector],
    possible: npt.NDArray[np.bool_] | None,
) -> _Trend:
    """Return the trend of two columns. Counts that constraints exclude are noise alone, and no part of it."""
    scores = np.ones([1] * len(axes))
    for axis, ranked in zip(pair, ranks, strict=True):
        place = axes.index(axis)
        counts = marginal.sum(axis=tuple(at for at in range(len(axes)) if at != place))
        scores = scores * _standardized(counts, ranked).reshape([-1 if at == place else 1 for at in range(len(axes))])
    allowed = np.ones(marginal.shape) if possible is None else possible.astype(np.float64)
    counts = target.counts * allowed
    scale = float(marginal.sum()) / max(float(counts.sum()), 1.0)
    variance = float(np.sum(allowed * target.variance * scores**2))
    measured = float(np.sum(counts * scores)) * scale
    return _Trend(axes, scores, measured, max(math.sqrt(variance), TINY))


def _standardized(counts: Vector, ranks: Vector) -> Vector:
    """Return ranks with mean 0 and variance 1 over these counts. Cells outside of the order get 0.

    >>> _standardized(np.array([1.0, 2.0, 1.0, 5.0]), np.array([0.0, 1.0, 2.0, np.nan])).round(3).tolist()
    [-1.414, 0.0, 1.414, 0.0]
    """
    inside = ~np.isnan(ranks)
    shares = np.where(inside, counts, 0.0) / max(float(counts[inside].sum()), TINY)
    ranks = np.where(inside, ranks, 0.0)
    centred = np.where(inside, ranks - dot(shares, ranks), 0.0)
    spread = math.sqrt(dot(shares, centred**2))
    return centred / spread if spread > TINY else np.zeros(len(ranks))


class _Correction:
    """The search for a model with the measured trends, and with the marginals of single columns as they are.

    It is the minimum of a convex function of the columns' logarithms and of one factor for each trend. Its slope is expected - measured.
    """

    def __init__(
        self, model: Model, functions: Functions, columns: Mapping[Axes, Weights], trends: Sequence[_Trend]
    ) -> None:
        self._model, self._functions, self._columns, self._trends = model, functions, columns, trends
        self._measured = np.concatenate([*columns.values(), [trend.measured for trend in trends]])
        self._cells = len(self._measured) - len(trends)
        self._close = np.array([CLOSE * trend.deviation for trend in trends])
        self._highest = np.array([float(np.abs(trend.scores).max()) for trend in trends])

    def solve(self) -> dict[Axes, Weights]:
        """Return the functions of the best model found, which is the given one if none is better."""
        curvature, here, tries = Curvature(), np.zeros(len(self._measured)), TRIES
        slope = self._slope_at(here)
        best, least = here, self._error(slope)
        while tries > 0 and least > 1:
            direction = curvature.step(slope, partial(np.multiply, 1 / self._diagonal), first=1 / 8)
            reach = max(self._reach(direction), TINY)
            here, slope, tries = curvature.search(
                here, slope, direction, reach=reach, slope_at=self._slope_at, tries=tries
            )
            if self._error(slope) < least:
                best, least = here, self._error(slope)
        self._slope_at(best)
        return self._functions_at(best)

    def _slope_at(self, point: Vector) -> Vector:
        """Set the model to a point, and note about the curvature along each coordinate. Return the slope there."""
        self._model.assign(self._functions_at(point))
        marginals = self._model.marginals([*self._columns, *(trend.axes for trend in self._trends)])
        counts = [marginals[axes] for axes in self._columns]
        trends = [trend.expected(marginals[trend.axes]) for trend in self._trends]
        squares = [float(np.sum(marginals[trend.axes] * trend.scores**2)) for trend in self._trends]
        self._diagonal = np.concatenate([*counts, squares]) + TINY
        slope: Vector = np.concatenate([*counts, trends]) - self._measured
        return slope

    def _functions_at(self, point: Vector) -> dict[Axes, Weights]:
        functions, start = dict(self._functions), 0
        for axes, counts in self._columns.items():
            functions[axes] = functions[axes] + point[start : start + len(counts)]
            start += len(counts)
        for trend, factor in zip(self._trends, point[start:].tolist(), strict=True):
            functions[trend.axes] = functions[trend.axes] + factor * trend.scores
        return functions

    def _error(self, slope: Vector) -> float:
        """Return the largest error: that of a trend, or of the columns together, in units of what is allowed."""
        allowed = SAME * self._model.total * max(len(self._columns), 1)
        columns = float(np.abs(slope[: self._cells]).sum()) / allowed
        return max(columns, float(np.max(np.abs(slope[self._cells :]) / self._close)))

    def _reach(self, direction: Vector) -> float:
        """Return about the largest change of a logarithm along a direction."""
        columns = float(np.abs(direction[: self._cells]).max(initial=0.0))
        return columns + dot(np.abs(direction[self._cells :]), self._highest)
