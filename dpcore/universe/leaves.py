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

    def draw(self, low: Positions, high: Positions, rng: np.random.Generator) -> Positions:
        """Draw a place from each interval [low, high) of whole leaves: a leaf by its mass, then a place uniformly within it.

        An interval whose leaves have no mass is drawn from uniformly.
        """
        first, last = np.searchsorted(self._bounds, low), np.searchsorted(self._bounds, high)
        begin, end = self._held[first], self._held[last]
        empty = end <= begin
        tickets = rng.integers(begin, np.where(empty, begin + 1, end))
        leaf = np.searchsorted(self._held, tickets, side="right") - 1
        start = np.where(empty, low, self._bounds[np.minimum(leaf, len(self.starts) - 1)])
        stop = np.where(empty, high, self._bounds[np.minimum(leaf, len(self.starts) - 1) + 1])
        return rng.integers(start, stop)


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
