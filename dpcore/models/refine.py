"""Fit a model to the measurements, but stop before it fits their noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcore.marginals.workload import Axes
from dpcore.models.curvature import Curvature, Vector, dot
from dpcore.models.evidence import Evidence
from dpcore.models.model import Fittable, Weights
from dpcore.models.overlaps import Overlaps

Functions = Mapping[Axes, Weights]
"""The logarithm of a multiplicative-weights distribution: a function for each set of columns.

Repeated multiplication by functions of marginals only adds to these functions. They determine the distribution and are far smaller.
"""

STANDS_OUT = 2.0  # standard deviations of noise above which an expected count is worth a parameter
RATE = 1 / 20  # of the noise: a step moves a count of 20 times its noise half of the way to its measurement
CLOSE = 0.03  # a step is solved when its slope has fallen to this fraction
MOST_DIRECTIONS = 40  # the most search directions for one step
SHORTER = 0.5  # a step that increases the error is repeated with the rate times this
LONGER = 1.3  # after all others the rate grows by this
LEAST_GAIN = 1.0  # what the noise of one count is worth: a step that lowers the error by less, and no more than the one before, is the last
CELL_TRIES = 4e8  # a large dense model gets fewer tries, so that tries x cells stays below this


def affordable_tries(cells: int, *, most: int, least: int = 1) -> int:
    """Return the most evaluations of a dense model with so many cells.

    >>> affordable_tries(10**6, most=500), affordable_tries(10**8, most=500)
    (400, 4)
    """
    return max(least, min(most, int(CELL_TRIES / cells)))


def refine(
    model: Fittable, evidence: Evidence, functions: Functions, *, tries: int, per_cell: float = 0.5
) -> dict[Axes, Weights]:
    """Fit a model to all measured marginals by implicit multiplicative-weights steps, and return its functions.

    A step multiplies every cell by exp(rate x sum over its marginals of (measured - expected) / variance): each marginal is weighted by
    its precision. `expected` is taken after the step, not before it, so a long step does not overshoot, and a few long steps end about
    where many short ones would. The end of a step is the minimum of a convex function. Finding it takes evaluations of the model, at most
    `tries` for all steps; explicit steps take sixteen times as many on Adult at epsilon 10 (docs/decisions/0016). If the tries run out, the
    model is left at the smallest error found.

    The steps end early once the squared error, in units of the noise, is what noise alone would leave. For the true distribution it would
    be about the number of measured cells. A model leaves one less for every parameter fitted to the data, and `per_cell` parameters are
    allowed for every cell that stands out of its noise. Further steps would copy the noise into the release: on Adult with seven columns at
    epsilon 1, the error of 3-way marginals falls to 0.033 and rises again to 0.048 (Morozov's discrepancy principle; docs/decisions/0006).

    Args:
        model: The model. It is left at the returned functions, with room for a function of every measured marginal.
        evidence: At least one marginal.
        functions: The starting point. Functions of unmeasured marginals are ignored, and missing functions are zero.
        tries: The most evaluations of the model. With 0 the model is only set to the starting point.
        per_cell: Parameters that the model may fit for each cell that stands out.

    References: Hardt, Ligett and McSherry 2012 (MWEM); Rockafellar 1976 (proximal points).
    """
    search = _Search(model, evidence, functions, tries=tries)
    here = search.lowest
    rate, before = RATE * float(search.variance.mean()) ** 0.5, -math.inf
    while search.tries > 0 and here.error > search.enough(here, per_cell):
        there = search.step(here, rate)
        if there is here:
            break
        if there.error > here.error:
            rate *= SHORTER
            search.curvature.forget()
            continue
        gain, here, rate = here.error - there.error, there, rate * LONGER
        if gain < LEAST_GAIN and gain <= before:
            break
        before = gain
    return search.settle(here if here.error <= search.enough(here, per_cell) else search.lowest)


class Misfit(NamedTuple):
    """How far a model is from measurements: its squared error in units of the noise, the number of counts, and how many expected ones stand out."""

    error: float
    cells: int
    standing_out: int


def misfit(model: Fittable, functions: Functions, evidence: Evidence) -> Misfit:
    """Set a model to its functions, which are of measured marginals, and return how far it is from the measurements."""
    search = _Search(model, evidence, functions, tries=0)
    return Misfit(search.lowest.error, len(search.measured), search.standing_out(search.lowest))


@dataclass(frozen=True, eq=False)
class _Point:
    """A distribution: the logarithms of its functions, its expected counts, and its squared error in units of the noise."""

    logarithms: Vector
    expected: Vector
    error: float


class _Search:
    """The search for the best fit, with all measured marginals stacked as one vector of cells."""

    def __init__(self, model: Fittable, evidence: Evidence, functions: Functions, *, tries: int) -> None:
        self.tries = tries
        self.curvature = Curvature()
        self._model = model
        self._shapes = {axes: target.counts.shape for axes, target in evidence}
        # What constraints exclude is no evidence, and no cell: its count would be noise alone.
        self._cells = [_possible_cells(model, axes) for axes in evidence.axes]
        counts = [target.counts.ravel()[cells] for (_, target), cells in zip(evidence, self._cells, strict=True)]
        variances = [target.variance.ravel()[cells] for (_, target), cells in zip(evidence, self._cells, strict=True)]
        sizes = list(map(len, counts))
        self.measured, self.variance = np.concatenate(counts), np.concatenate(variances)
        self._places = [slice(end - size, end) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
        self._overlaps = Overlaps(
            (axes, np.indices(shape).reshape(len(shape), math.prod(shape))[:, cells])
            for (axes, shape), cells in zip(self._shapes.items(), self._cells, strict=True)
        )
        self.lowest = self.at(self._stacked(functions))  # the point with the smallest error so far

    def at(self, logarithms: Vector) -> _Point:
        """Set the model to these logarithms, and return its expected counts and error."""
        self._model.assign(self._split(logarithms))
        marginals = self._model.marginals(self._shapes)
        expected = np.concatenate(
            [marginals[axes].ravel()[cells] for axes, cells in zip(self._shapes, self._cells, strict=True)]
        )
        residual = self.measured - expected
        return _Point(logarithms, expected, dot(residual, residual / self.variance))

    def settle(self, point: _Point) -> dict[Axes, Weights]:
        """Set the model to a point, and return its functions."""
        functions = self._split(point.logarithms)
        self._model.assign(functions)
        return functions

    def standing_out(self, point: _Point) -> int:
        """Return how many expected counts stand out of the noise of their measurement."""
        return int(np.count_nonzero(point.expected > STANDS_OUT * self.variance**0.5))

    def enough(self, point: _Point, per_cell: float) -> float:
        """Return the error at which only noise is left to fit."""
        return len(self.measured) - per_cell * self.standing_out(point)

    def step(self, start: _Point, rate: float) -> _Point:
        """Return the end of an implicit step, or the last point before the tries run out.

        The end satisfies here = start + rate x (measured - expected here) / variance. The left side minus the right side, times
        variance / rate, is the gradient of a strictly convex function of the logarithms:
        rows x log(total weight) - measured x logarithms + |here - start|^2 x variance / (2 x rate).
        """
        pull = self.variance / rate
        here, slope = start, start.expected - self.measured
        diagonal = here.expected + pull
        close = CLOSE**2 * dot(slope, slope / diagonal)
        for _ in range(MOST_DIRECTIONS):
            if self.tries <= 0 or dot(slope, slope / diagonal) <= close:
                break
            direction = self.curvature.step(slope, self._overlaps.scaling(here.expected, pull))
            here, slope = self._along(here, slope, direction, start.logarithms, pull)
            diagonal = here.expected + pull
        return here

    def _along(
        self, here: _Point, slope: Vector, direction: Vector, start: Vector, pull: Vector
    ) -> tuple[_Point, Vector]:
        """Return a point along a direction that is not far beyond the minimum there, and the slope at it."""
        there = here

        def slope_at(logarithms: Vector) -> Vector:
            nonlocal there
            there = self.at(logarithms)
            self.lowest = min(self.lowest, there, key=lambda point: point.error)
            return there.expected - self.measured + pull * (logarithms - start)

        reach = float(np.abs(direction).max())
        _, slope, self.tries = self.curvature.search(
            here.logarithms, slope, direction, reach=reach, slope_at=slope_at, tries=self.tries
        )
        return there, slope

    def _stacked(self, functions: Functions) -> Vector:
        """Return the functions as one vector, with zeros for missing ones."""
        vector = np.zeros(len(self.measured))
        for axes, place, cells in zip(self._shapes, self._places, self._cells, strict=True):
            if axes in functions:
                vector[place] = functions[axes].ravel()[cells]
        return vector

    def _split(self, vector: Vector) -> dict[Axes, Weights]:
        """Return a vector as functions, which are zero where constraints leave no cell."""
        functions: dict[Axes, Weights] = {}
        for (axes, shape), place, cells in zip(self._shapes.items(), self._places, self._cells, strict=True):
            functions[axes] = np.zeros(shape)
            functions[axes].ravel()[cells] = vector[place]
        return functions


def _possible_cells(model: Fittable, axes: Axes) -> slice | NDArray[np.intp]:
    """Return the possible cells of a marginal, as positions in the flat array."""
    possible = model.possible(axes)
    return slice(None) if possible is None else np.flatnonzero(possible)
