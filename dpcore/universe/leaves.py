"""A public distribution over the places of a grid, in intervals that a private tree found, and columns that have one."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import lcm
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, PlainSerializer

from dpcore.errors import SpecError, UsageError
from dpcore.universe.attribute import Codes, Floats, Ordered

Positions = npt.NDArray[np.int64]
Wholes = Annotated[
    tuple[int, ...],
    PlainSerializer(lambda wholes: " ".join(map(str, wholes))),
    BeforeValidator(lambda text: tuple(map(int, text.split()))),
]
"""Thousands of whole numbers. In JSON, one text is shorter than a list with a line for each."""

LARGEST = 2**51  # up to here no multiple of a step is rounded to an edge between two of them
MOST_DECIMALS = 22  # a double holds the powers of ten up to 10^22
MOST_BITS = 1000  # a power of two may be a longer denominator, but not beyond the range of doubles
FARTHER = 0.5  # of two neighbours that do not stand out, the one farther from those that do is expected to have this part of the density
MOST_CELLS = 64
"""The most cells of a column at full resolution. Models and interactions see these cells only."""


@dataclass(frozen=True)
class Leaves:
    """Intervals that together cover the places 0 .. size - 1 of a grid, each with a mass: a whole number of thousandths of a row.

    >>> Leaves(starts=(0, 1, 10), masses=(500, 0, 20), size=100).draw(np.array([0, 0]), np.array([1, 1]), np.random.default_rng(1))
    array([0, 0])
    """

    starts: Wholes
    masses: Wholes
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


@dataclass(frozen=True)
class Scale:
    """The multiples of a step from a lowest to a highest number: (low + place x step) / per, all whole, so that values are exact.

    >>> Scale.of(Fraction("0"), Fraction("0.3"), step=Fraction("0.01")).values(np.array([29, 30])).tolist()
    [0.29, 0.3]
    """

    low: int
    step: int
    per: int
    size: int

    @classmethod
    def of(cls, low: Fraction, high: Fraction, *, step: Fraction) -> "Scale":
        """Return the scale.

        Raises:
            SpecError: If the step does not divide the range, or a double cannot hold every multiple.
        """
        steps = (high - low) / step
        if steps.denominator != 1:
            raise SpecError(
                "`step` does not divide the range from `min` to `max`; write a `max` that is `min` plus whole steps"
            )
        per = lcm(low.denominator, step.denominator)
        if max(abs(low), abs(high)) * per > LARGEST:
            raise SpecError(
                f"the range has too many steps to be exact: `min` and `max` may be at most 2^51 (about 2.2e15) times {Fraction(1, per)}; "
                "write a larger `step`, or a narrower range"
            )
        if per.bit_length() > MOST_BITS or int(float(per)) != per:
            raise SpecError(
                f"`min`, `max` and `step` may have at most {MOST_DECIMALS} decimal places, since doubles would round the numbers between "
                "them; write a larger `step`, or declare the column in a smaller unit"
            )
        return cls(low=int(low * per), step=int(step * per), per=per, size=int(steps) + 1)

    def values(self, places: npt.NDArray[np.integer[Any]]) -> Floats:
        """Return the doubles nearest to the numbers at these places."""
        return (self.low + places.astype(np.int64) * self.step) / np.float64(self.per)

    def lower_edges(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the lower edges of these places, all above 0, exactly rounded: numerator and denominator are exact doubles."""
        return (2 * self.low + (2 * places - 1) * self.step) / np.float64(2 * self.per)

    def edges(self, starts: Sequence[int]) -> tuple[float, ...]:
        """Return the edges of cells: half a step below the first number of each, since values are read as the nearest number."""
        lowest, highest = self.values(np.array([0, self.size - 1])).tolist()
        return (lowest, *self.lower_edges(np.array(starts, dtype=np.int64)).tolist(), highest)


@dataclass(frozen=True, kw_only=True)
class Fine(Ordered):
    """A column at full resolution: a public grid of places, cells that are intervals of it, and leaves that are intervals of cells.

    The model learns the cells. A released value is drawn from the leaves within its cell. Before a tree has found cells and leaves,
    `starts` and `leaves` are None: then there are as many cells of about equal width as may be found.

    Attributes:
        starts: The first place of each cell after the first one.
        leaves: The distribution over the places.
    """

    starts: Wholes | None = None
    leaves: Leaves | None = None

    @property
    @abstractmethod
    def line(self) -> Scale:
        """The finest numbers that values are read as. Days and moments are seconds since 1970."""

    @property
    def places(self) -> int:
        """The number of places of the grid."""
        return self.line.size

    @property
    def first_place(self) -> int:
        """The finest place of the lowest number, as `spread_of` counts places: whole numbers and times are counted from zero."""
        return self.line.low // self.line.step

    def cut_at(self, starts: Sequence[int] | None, *, leaves: Leaves | None = None) -> Self:
        """Return the column with other cells."""
        return replace(self, starts=None if starts is None else tuple(starts), leaves=leaves)

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
