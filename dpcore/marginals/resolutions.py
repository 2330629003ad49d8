"""Columns at several resolutions: the axes of a model of a large universe."""

import math
from collections.abc import Iterable, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes

Groups = NDArray[np.intp]
"""For every cell of an axis, the cell of a coarser axis that contains it."""


class Resolutions:
    """The columns of a universe, each at one or more resolutions.

    Axis i, below the number of columns, is column i itself. Every later axis is a coarser version of a column, which merges cells.
    The versions of a column are nested: each merges whole cells of the one before.

    >>> resolutions = Resolutions((4, 2))
    >>> resolutions.coarsen(0, [0, 0, 1, 1])
    2
    >>> resolutions.shape, resolutions.versions(0)
    ((4, 2, 2), (0, 2))
    """

    def __init__(self, shape: Sequence[int]) -> None:
        """Start with the columns themselves.

        Raises:
            UsageError: If there is no column, or a column has no cells.
        """
        if not shape or any(size < 1 for size in shape):
            raise UsageError(
                "There is no column, or a column has no cells: give at least one column, each of one cell or more."
            )
        self.columns = len(shape)
        # Dictionaries by axis: unlike a list, a dictionary does not accept a negative axis.
        self._sizes = dict(enumerate(shape))
        self._column = {axis: axis for axis in self._sizes}
        self._versions: dict[int, tuple[int, ...]] = {column: (column,) for column in self._sizes}
        self._groups: dict[tuple[int, int], Groups] = {}

    def coarsen(self, column: int, groups: Sequence[int] | Groups) -> int:
        """Add a coarser version of a column and return its axis.

        Args:
            column: The column.
            groups: For every cell of the column, the cell of the new version, numbered from 0 without gaps.

        Raises:
            UsageError: If there is no such column, a group is missing, or the new version splits a cell of an earlier one.
        """
        versions, groups = self.versions(column), np.asarray(groups)
        size = len(np.unique(groups))
        if (
            groups.dtype.kind not in "iu"
            or groups.shape != (self._sizes[column],)
            or groups.min() != 0
            or groups.max() != size - 1
        ):
            raise UsageError(
                "A coarser version needs a group for every cell of its column: give whole numbers from 0, without gaps."
            )
        axis, whole = len(self._sizes), groups.astype(np.intp)
        merged: dict[tuple[int, int], Groups] = {}
        for finer in versions:
            within = self.groups(column, finer)
            coarser = np.zeros(self._sizes[finer], dtype=np.intp)
            coarser[within] = whole
            if not np.array_equal(coarser[within], whole):
                raise UsageError("A coarser version must merge whole cells of the version before it.")
            merged[finer, axis] = coarser
        self._groups |= merged
        self._sizes[axis] = size
        self._column[axis] = column
        self._versions[column] = (*versions, axis)
        return axis

    def with_grouping(self, column: int, groups: Sequence[int] | Groups) -> "tuple[Resolutions, int]":
        """Return a copy with one more axis, and that axis: classes of a column's cells that need not be nested with its versions.

        Measurements can refer to the axis. No model can, since it is not among the column's versions.

        >>> resolutions, axis = Resolutions((3, 2)).with_grouping(0, [0, 1, 0])
        >>> axis, resolutions.shape, resolutions.versions(0)
        (2, (3, 2, 2), (0,))
        """
        apart = Resolutions(self.shape[: self.columns])
        axis = apart.coarsen(column, groups)  # checks them
        grown, own = copy(self), len(self._sizes)
        grown._sizes = {**self._sizes, own: apart.shape[axis]}  # noqa: SLF001  its own copy
        grown._column = {**self._column, own: column}  # noqa: SLF001  its own copy
        grown._groups = {**self._groups, (column, own): apart.groups(column, axis)}  # noqa: SLF001  its own copy
        return grown, own

    def is_version(self, axis: int) -> bool:
        """Return whether an axis is a column or one of its nested versions."""
        return axis in self.versions(self.column(axis))

    @property
    def nested(self) -> "Resolutions":
        """The columns and their nested versions only, as a model needs them. Other axes are numbered after all of these."""
        nested = copy(self)
        nested._sizes = {axis: size for axis, size in self._sizes.items() if self.is_version(axis)}  # noqa: SLF001  its own copy
        nested._column = {axis: self._column[axis] for axis in nested._sizes}  # noqa: SLF001  its own copy
        return nested

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of every axis."""
        return tuple(self._sizes.values())

    def column(self, axis: int) -> int:
        """Return the column that an axis is a version of."""
        try:
            return self._column[axis]
        except KeyError:
            raise self._unknown() from None

    def versions(self, column: int) -> tuple[int, ...]:
        """Return the axes of a column, from the column itself to its coarsest version."""
        try:
            return self._versions[column]
        except KeyError:
            raise UsageError(f"There is no such column: columns are numbered from 0 to {self.columns - 1}.") from None

    def groups(self, finer: int, coarser: int) -> Groups:
        """Return, for every cell of an axis, the cell that contains it on a coarser axis of the same column, or on the same axis."""
        if finer == coarser:
            return np.arange(*self.shape_of((finer,)), dtype=np.intp)
        try:
            return self._groups[finer, coarser]
        except KeyError:
            raise UsageError(
                "Groups exist only from an axis to a coarser version of the same column: see `versions`."
            ) from None

    def membership(self, finer: int, coarser: int) -> NDArray[np.float64]:
        """Return a matrix with a row for each cell of an axis: 1 for the cell of a coarser axis that contains it, otherwise 0."""
        return np.eye(self.cells((coarser,)))[self.groups(finer, coarser)]

    def named(self, axes: Axes, names: Sequence[str]) -> tuple[str, ...]:
        """Return display names for these axes, given the columns' names.

        >>> resolutions = Resolutions((4, 2))
        >>> resolutions.named((1, resolutions.coarsen(0, [0, 0, 1, 1])), ["age", "sex"])
        ('sex', 'age in 2 groups')
        """
        return tuple(
            names[self.column(axis)] + (f" in {size} groups" if axis >= self.columns else "")
            for axis, size in zip(axes, self.shape_of(axes), strict=True)
        )

    def shape_of(self, axes: Iterable[int]) -> tuple[int, ...]:
        """Return the shape of an array over these axes."""
        try:
            return tuple([self._sizes[axis] for axis in axes])
        except KeyError:
            raise self._unknown() from None

    def cells(self, axes: Axes) -> int:
        """Return the number of cells of an array over these axes."""
        return math.prod(self.shape_of(axes))

    def _unknown(self) -> UsageError:
        return UsageError(
            f"There is no such axis: columns and their versions are numbered from 0 to {len(self._sizes) - 1}."
        )
