"""Fit a model to counts over grids: cells of some columns, merged into the classes that a question distinguishes.

A grid is coarser than a marginal, and the grids of different questions are not nested. So no axis stands for their classes. Here a grid is
one more function of the model: it has a number for each class, and all cells of a class share it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.marginals.resolutions import Groups
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import Possible, added
from dpcore.models.model import Fittable, Model, Weights
from dpcore.models.projection import contracted


@dataclass(frozen=True, eq=False)
class Grid:
    """Classes of the cells of some columns.

    Attributes:
        columns: The columns, ascending.
        groups: For each column, the class of every cell, numbered from 0.
    """

    columns: Axes
    groups: tuple[Groups, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of classes of each column."""
        return tuple(int(groups.max()) + 1 for groups in self.groups)

    def summed(self, array: Weights) -> Weights:
        """Sum an array over the columns' cells by classes.

        >>> Grid((0, 3), (np.array([0, 1]), np.array([0, 0, 1]))).summed(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).tolist()
        [[3.0, 3.0], [9.0, 6.0]]
        """
        return contracted(
            array, [np.eye(classes)[groups] for groups, classes in zip(self.groups, self.shape, strict=True)]
        )

    def spread(self, array: Weights) -> Weights:
        """Repeat the number of each class for all of its cells.

        >>> Grid((0,), (np.array([0, 0, 1]),)).spread(np.array([5.0, 7.0])).tolist()
        [5.0, 5.0, 7.0]
        """
        return array[np.ix_(*self.groups)] if self.groups else array


def key_of(number: int) -> Axes:
    """Return the key of a grid among the functions of a lifted model, by its number from 0. No marginal has this key."""
    return (-1 - number,)


def is_grid(key: Axes) -> bool:
    """Return whether a key is that of a grid."""
    return bool(key) and key[0] < 0


class LiftedModel(Fittable):
    """A model that has grids among its functions and marginals, under the keys of `key_of`."""

    def __init__(self, model: Model, grids: Sequence[Grid]) -> None:
        self.model = model
        self._grids = grids

    def assign(self, functions: Mapping[Axes, Weights]) -> None:
        """Make the distribution proportional to exp of a sum of functions, of marginals or grids."""
        self.model.assign(flattened(functions, self._grids))

    def possible(self, axes: Axes) -> Possible | None:
        """Return which cells of a marginal, or classes of a grid, the constraints allow; None if all of them are possible."""
        if not is_grid(axes):
            return self.model.possible(axes)
        cells = self.model.possible(self._grid(axes).columns)
        return None if cells is None else self._grid(axes).summed(cells.astype(np.float64)) > 0

    def marginal(self, axes: Axes) -> Weights:
        """Return the counts that the model expects in every cell of a marginal, or every class of a grid."""
        return self.marginals([axes])[axes]

    def marginals(self, sets: Iterable[Axes]) -> dict[Axes, Weights]:
        """Return the counts of several marginals and grids."""
        axes_of = {key: self._grid(key).columns if is_grid(key) else key for key in sets}
        plain = self.model.marginals(dict.fromkeys(axes_of.values()))
        return {
            key: self._grid(key).summed(plain[axes]) if is_grid(key) else plain[axes] for key, axes in axes_of.items()
        }

    def _grid(self, key: Axes) -> Grid:
        return self._grids[-1 - key[0]]


def flattened(functions: Mapping[Axes, Weights], grids: Sequence[Grid]) -> dict[Axes, Weights]:
    """Return functions of marginals only, with those of grids added to the functions of their columns."""
    plain = {key: function for key, function in functions.items() if not is_grid(key)}
    for key, function in functions.items():
        if is_grid(key):
            grid = grids[-1 - key[0]]
            plain = added(plain, {grid.columns: grid.spread(function)})
    return plain
