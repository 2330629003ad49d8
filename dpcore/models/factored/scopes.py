"""Sets of axes as bit masks, which makes unions, intersections and inclusions cheap enough to try thousands of them."""

import math
from functools import cache, lru_cache
from typing import TypeAlias

from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes

Scope: TypeAlias = int
"""A set of axes, with bit i for axis i. An axis determines the coarser versions of its column, so the set contains those as well."""


@lru_cache(maxsize=1 << 16)  # every forecast looks at the scopes of the tree
def axes_in(scope: Scope) -> Axes:
    """Return the axes of a scope, in ascending order. The finest version of a column comes first.

    >>> axes_in(0b1101)
    (0, 2, 3)
    """
    axes = []
    while scope:
        lowest = scope & -scope
        axes.append(lowest.bit_length() - 1)
        scope ^= lowest
    return tuple(axes)


def inside(part: Scope, whole: Scope) -> bool:
    """Return whether a scope is a subset of another."""
    return part & ~whole == 0


class Scopes:
    """Converts axes to scopes and back. The resolutions must not change afterwards."""

    def __init__(self, resolutions: Resolutions) -> None:
        self.resolutions = resolutions
        self.single: list[Scope] = []
        for axis in range(len(resolutions.shape)):
            versions = resolutions.versions(resolutions.column(axis))
            self.single.append(sum(1 << version for version in versions[versions.index(axis) :]))
        self._sizes, self._columns = resolutions.shape, self.single[: resolutions.columns]
        self.of = cache(self._of)
        self.axes = cache(self._axes)
        self.cells = lru_cache(maxsize=1 << 18)(self._cells)  # forecasts meet most scopes many times
        # The cells of all cliques that some sets make: a round changes few parts of a tree.
        self.forecasts: dict[tuple[Scope, ...], int] = {}

    def _of(self, axes: Axes) -> Scope:
        """Return the scope of some axes.

        Raises:
            UsageError: There is no such axis, or two axes are of the same column.
        """
        if any(axis not in range(len(self.single)) for axis in axes):
            raise UsageError(
                f"There is no such axis in the model: axes are 0 to {len(self.single) - 1}. Add coarser versions before making the model."
            )
        if len({self.resolutions.column(axis) for axis in axes}) < len(axes):
            raise UsageError(
                "Two axes are of the same column: name each column once, at the finest version that is needed."
            )
        scope = 0
        for axis in axes:
            scope |= self.single[axis]
        return scope

    def _axes(self, scope: Scope) -> Axes:
        """Return the axes of an array over a scope, the smallest ones first."""
        return tuple(sorted(self._finest(scope), key=lambda axis: (self._sizes[axis], axis)))

    def finest(self, axes: set[int]) -> Axes:
        """Return the finest of the given axes for each column."""
        return self.axes(sum(1 << axis for axis in axes))

    def _cells(self, scope: Scope) -> int:
        """Return the number of cells of an array over a scope."""
        return math.prod([self._sizes[axis] for axis in self._finest(scope)])

    def _finest(self, scope: Scope) -> list[int]:
        """Return the finest version of every column in a scope, which determines the others. It is the first one."""
        return [(own & -own).bit_length() - 1 for column in self._columns if (own := scope & column)]
