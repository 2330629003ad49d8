"""Columns and coarser versions of them: what a model of a large universe distributes over."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import UsageError
from dpcore.queries import Axes

Groups = NDArray[np.intp]
"""For every cell of a column, or of a version of it, the cell of a coarser version that it belongs to."""


class Resolutions:
    """The columns of a universe, each at one resolution or more.

    Axis i below the number of columns is column i itself. Every later axis is a coarser version of a column, in which cells are taken
    together. The versions of a column are nested: each takes cells of the one before together.

    >>> resolutions = Resolutions((4, 2))
    >>> resolutions.coarsen(0, [0, 0, 1, 1])
    2
    >>> resolutions.shape, resolutions.versions(0)
    ((4, 2, 2), (0, 2))
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.columns = len(shape)
        self._sizes = list(shape)
        self._column = list(range(len(shape)))
        self._versions: list[list[int]] = [[axis] for axis in range(len(shape))]
        self._groups: dict[tuple[int, int], Groups] = {}

    def coarsen(self, column: int, groups: Sequence[int] | Groups) -> int:
        """Add a coarser version of a column and return its axis.

        Args:
            column: the column itself.
            groups: for every cell of the column, the cell of the new version; they count from 0 without a gap.

        Raises:
            UsageError: a group is missing, or the new version splits a cell of an earlier one.
        """
        whole = np.asarray(groups, dtype=np.intp)
        size = len(np.unique(whole))
        if whole.shape != (self._sizes[column],) or whole.min() != 0 or whole.max() != size - 1:
            raise UsageError("A coarser version names a group for every cell of its column, counting from 0.")
        axis = len(self._sizes)
        found: dict[tuple[int, int], Groups] = {}
        for finer in self._versions[column]:
            within = self.groups(column, finer)
            coarser = np.zeros(self._sizes[finer], dtype=np.intp)
            coarser[within] = whole
            if not np.array_equal(coarser[within], whole):
                raise UsageError("A coarser version takes whole cells of the version before it together.")
            found[finer, axis] = coarser
        self._groups |= found
        self._sizes.append(size)
        self._column.append(column)
        self._versions[column].append(axis)
        return axis

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of every axis."""
        return tuple(self._sizes)

    def column(self, axis: int) -> int:
        """Return the column that an axis is a version of."""
        return self._column[axis]

    def versions(self, column: int) -> tuple[int, ...]:
        """Return the axes of a column, from the column itself to its coarsest version."""
        return tuple(self._versions[column])

    def groups(self, finer: int, coarser: int) -> Groups:
        """Return, for every cell of an axis, the cell that it belongs to on a coarser axis of the same column, or on the same."""
        return np.arange(self._sizes[finer], dtype=np.intp) if finer == coarser else self._groups[finer, coarser]

    def named(self, axes: Axes, names: Sequence[str]) -> tuple[str, ...]:
        """Return what to call these axes, given the columns' names.

        >>> resolutions = Resolutions((4, 2))
        >>> resolutions.named((1, resolutions.coarsen(0, [0, 0, 1, 1])), ["age", "sex"])
        ('sex', 'age in 2 groups')
        """
        return tuple(
            names[axis] if axis < self.columns else f"{names[self._column[axis]]} in {self._sizes[axis]} groups"
            for axis in axes
        )

    def shape_of(self, axes: Iterable[int]) -> tuple[int, ...]:
        """Return the shape of an array over these axes."""
        return tuple(self._sizes[axis] for axis in axes)

    def cells(self, axes: Axes) -> int:
        """Return how many cells an array over these axes has."""
        return math.prod(self._sizes[axis] for axis in axes)
