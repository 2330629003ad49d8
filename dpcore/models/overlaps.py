"""Scale a slope to a step, where functions overlap.

A column is in many measured marginals, and the function of each changes how many rows have each of the column's values. Whoever scales each
cell for itself takes such a step as often as there are functions. So a function is split into its mean, a main effect of each of its
columns, and the rest. Its mean changes no count. The main effects of a column in all functions change the same counts: they are scaled
together, by the Sherman-Morrison formula. The rest is scaled cell by cell.

This is a preconditioner: it decides how many evaluations a step takes. Where the step ends it changes by less than a step is solved to.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from dpcore.marginals.workload import Axes
from dpcore.models.curvature import Vector

Places = NDArray[np.intp]


class Overlaps:
    """Which cells of some functions have the same value of a column.

    A margin is all cells of one function that have the same value of one of its columns.
    """

    def __init__(self, functions: Iterable[tuple[Axes, Places]]) -> None:
        """Number the margins of functions that are stacked as one vector: for each its axes, and along each of them the codes of its cells."""
        owners, cells, margins, effects, functions_of = ([np.empty(0, np.intp)] for _ in range(5))
        values = [np.empty((2, 0), np.intp)]
        begin, count, effect = 0, 0, 0
        for function, (axes, codes) in enumerate(functions):
            size = codes.shape[1]
            owners.append(np.full(size, function))
            shared = (
                zip(axes, codes, strict=True) if len(axes) == len(codes) else ()
            )  # a grid has one key for all its columns
            for axis, code in shared:
                own, places = np.unique(code, return_inverse=True)
                cells.append(np.arange(begin, begin + size))
                margins.append(count + places)
                values.append(np.stack([np.full(len(own), axis), own]))
                effects.append(np.full(len(own), effect))
                functions_of.append(np.full(len(own), function))
                count, effect = count + len(own), effect + 1
            begin += size
        self._owners, self._cells, self._margins = map(np.concatenate, (owners, cells, margins))
        self._effects, self._functions = np.concatenate(effects), np.concatenate(functions_of)
        self._values = np.unique(np.concatenate(values, axis=1), axis=1, return_inverse=True)[1].ravel()

    def scaling(self, expected: Vector, pull: Vector) -> Callable[[Vector], Vector]:
        """Return a function that multiplies by about the inverse of the Hessian: the covariance of the cells, plus `pull` on the diagonal."""
        diagonal = expected + pull
        whole, of_margins, pull_of_margins = self._whole(diagonal), self._of_margins(diagonal), self._of_margins(pull)
        of_all = self._whole(pull)
        whole, of_all = (
            np.where(whole > 0, whole, 1.0),
            np.where(of_all > 0, of_all, 1.0),
        )  # a function may have no possible cell
        means_by = whole / of_all
        counts = np.zeros(self._values.max(initial=-1) + 1)
        counts[self._values] = self._of_margins(expected)  # all functions of a column expect the same
        shared = counts / (1 + counts * np.bincount(self._values, 1 / pull_of_margins))

        def split(slope: Vector) -> tuple[Vector, Vector]:
            """Return the mean of each function, and what is left for each margin."""
            means = self._whole(slope) / whole
            return means, self._of_margins(slope) - of_margins * means[self._functions]

        def scaled(slope: Vector) -> Vector:
            means, mains = split(slope)
            rest = slope / diagonal - self._spread(means, mains / of_margins)
            more_means, more_mains = split(rest * diagonal)  # columns depend on each other, so some was left
            rest -= self._spread(more_means, more_mains / of_margins)
            mains = mains / pull_of_margins
            mains -= (shared * np.bincount(self._values, mains))[self._values] / pull_of_margins
            mains -= np.bincount(self._effects, of_margins * mains)[self._effects] / whole[self._functions]
            return rest + self._spread(means * means_by, mains)

        return scaled

    def _whole(self, vector: Vector) -> Vector:
        return np.asarray(np.bincount(self._owners, vector), np.float64)

    def _of_margins(self, vector: Vector) -> Vector:
        return np.asarray(np.bincount(self._margins, vector[self._cells]), np.float64)

    def _spread(self, means: Vector, mains: Vector) -> Vector:
        """Return the sum of its function's mean and main effects for each cell."""
        return means[self._owners] + np.bincount(self._cells, mains[self._margins], len(self._owners))
