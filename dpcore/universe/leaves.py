"""A public distribution over the places of a grid, in intervals that a private tree found, and columns that have one."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.universe.attribute import Attribute, Codes, Outside

Positions = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FARTHER = 0.5  # of two neighbours that do not stand out, the one farther from those that do is expected to have this part of the density
MOST_CELLS = 64
"""The most cells of a column at full resolution. Models and interactions see these cells only."""


@dataclass(frozen=True)
class Leaves:
    """Intervals that together cover the places 0 .. size - 1 of a grid, each with a mass: a whole number of thousandths of a row.

    >>> Leaves(starts=(0, 1, 10), masses=(500, 0, 20), size=100).draw(np.array([0, 0]), np.array([1, 1]), np.random.default_rng(1))
    array([0, 0])
    """

    starts: tuple[int, ...]
    masses: tuple[int, ...]
    size: int

    def __post_init__(self) -> None:
        """Reject leaves that do not cover the grid, and negative masses."""
        inner = (*self.starts, self.size)
        ascending = all(low < high for low, high in pairwise(inner))
        if self.starts[:1] != (0,) or not ascending or len(self.masses) != len(self.starts) or min(self.masses) < 0:
            raise UsageError("leaves must start at 0 and ascend, and each needs a mass of 0 or more; report this")

    @cached_property
    def _bounds(self) -> Positions:
        return np.array([*self.starts, self.size], dtype=np.int64)

    @cached_property
    def _held(self) -> Positions:
        """The mass of all leaves before each one, and of all together at the end."""
        return np.concatenate([[0], np.cumsum(np.array(self.masses, dtype=np.int64))])

    @cached_property
    def expected(self) -> Floats:
        """The rows that are expected of each leaf, relative to others, in a cell whose leaves have no mass."""
        return np.diff(self._bounds) * nearness(self._bounds, np.diff(self._held) > 0)

    def draw(self, low: Positions, high: Positions, rng: np.random.Generator) -> Positions:
        """Draw a place from each interval [low, high) of whole leaves: a leaf by its mass, then a place uniformly within it.

        If the leaves of an interval have no mass, they are drawn by what is expected of them.
        """
        first, last = np.searchsorted(self._bounds, low), np.searchsorted(self._bounds, high)
        tickets = rng.integers(self._held[first], np.maximum(self._held[last], self._held[first] + 1))
        leaf = np.searchsorted(self._held, tickets, side="right") - 1
        empty = self._held[last] <= self._held[first]
        if empty.any():
            before = np.append(0.0, np.cumsum(self.expected))
            drawn = np.searchsorted(before, rng.uniform(before[first], before[last]), side="right") - 1
            leaf = np.where(empty, np.clip(drawn, first, last - 1), leaf)
        return rng.integers(self._bounds[leaf], self._bounds[leaf + 1])


def nearness(bounds: Positions, large: npt.NDArray[np.bool_]) -> Floats:
    """Return the density that is expected of each interval of a range: it falls with the distance from the nearest large one.

    The distance is counted in widths of the widest interval. If no interval is large, all densities are equal.

    >>> nearness(np.array([0, 1, 10, 20, 30]), np.array([True, False, False, False])).tolist()
    [1.0, 1.0, 0.5, 0.25]
    """
    marked = np.flatnonzero(large)
    if not len(marked):
        return np.ones(len(large))
    after = np.searchsorted(marked, np.arange(len(large)))
    left, right = marked[np.maximum(after - 1, 0)], marked[np.minimum(after, len(marked) - 1)]
    gaps = [np.maximum(bounds[:-1] - bounds[near + 1], bounds[near] - bounds[1:]) for near in (left, right)]
    away = np.maximum(np.minimum(*gaps), 0) / np.diff(bounds).max()
    return np.asarray(FARTHER ** np.ceil(away))


@dataclass(frozen=True, kw_only=True)
class Fine(Attribute):
    """A column at full resolution: a public grid of places, cells that are intervals of it, and leaves that are intervals of cells.

    The model learns the cells. A released value is drawn from the leaves within its cell. Before a tree has found cells and leaves,
    `starts` and `leaves` are None: then there are as many cells of about equal width as may be found.

    Attributes:
        starts: The first place of each cell after the first one.
        leaves: The distribution over the places.
    """

    starts: tuple[int, ...] | None = None
    leaves: Leaves | None = None
    outside: Outside = field(default=Outside.CLIP)

    @property
    @abstractmethod
    def places(self) -> int:
        """The number of places of the grid."""

    @abstractmethod
    def cut_at(self, starts: Sequence[int] | None, *, leaves: Leaves | None = None) -> Self:
        """Return the column with other cells."""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self._inner) + 1

    @property
    def _inner(self) -> tuple[int, ...]:
        if self.starts is not None:
            return self.starts
        places = self.places
        most = min(MOST_CELLS, places)
        return tuple(places * part // most for part in range(1, most))

    @cached_property
    def cell_bounds(self) -> Positions:
        """The first place of each cell, and the number of places."""
        return np.array([0, *self._inner, self.places], dtype=np.int64)

    def _draw_places(self, cells: Codes, rng: np.random.Generator) -> Positions:
        low, high = self.cell_bounds[cells], self.cell_bounds[cells + 1]
        return rng.integers(low, high) if self.leaves is None else self.leaves.draw(low, high, rng)
