"""Numeric attributes: integers in bins of equal or, as `discover` finds them, different widths, and numbers in bins between edges."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf, nextafter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import Codes, Floats, Ordered, refuse_too_many_cells

Integers = npt.NDArray[np.int64]

_LARGEST = 2**53  # up to here a double holds every whole number exactly, so none is rounded when it is read
_LARGEST_DOUBLE = np.finfo(np.float64).max.item()


def short(number: float) -> str:
    """Return a double as text, a whole number without its decimal point."""
    return repr(number).removesuffix(".0")


def interval_labels(texts: Iterable[str], *, alone: Iterable[Any], last: str) -> tuple[str, ...]:
    """Return the names of intervals between the numbers in these texts; for a cell with a single number, that number.

    >>> interval_labels(["0", "1", "9"], alone=[True, False], last="]")
    ('0', '[1, 9]')
    """
    pairs = list(pairwise(texts))
    ends = [")"] * (len(pairs) - 1) + [last]
    return tuple(
        low if single else f"[{low}, {high}{end}" for (low, high), single, end in zip(pairs, alone, ends, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class Integer(Ordered):
    """Whole numbers from minimum to maximum, both inclusive, in bins of `width`. The last bin may be narrower.

    Fractions are rounded down. Every number is read as the nearest double.

    >>> Integer(minimum=0, maximum=99, width=5).labels[-1]
    '[95, 100)'
    """

    minimum: int
    maximum: int
    width: int = 1

    arrow_type = pa.int64()

    def __post_init__(self) -> None:
        """Reject an empty range, bounds that a double cannot hold exactly, and an invalid width."""
        super().__post_init__()
        for name, value in (("minimum", self.minimum), ("maximum", self.maximum), ("width", self.width)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise SpecError(f"the {name} of an integer attribute must be a whole number")
        if max(abs(self.minimum), abs(self.maximum)) > _LARGEST:
            raise SpecError(f"the bounds of an integer attribute must lie between -{_LARGEST} and {_LARGEST}")
        if self.minimum > self.maximum:
            raise SpecError("the minimum of an integer attribute is above its maximum: swap them")
        if not 1 <= self.width <= 2 * _LARGEST + 1:
            raise SpecError("the width of an integer attribute's bins must lie between 1 and the whole range")
        refuse_too_many_cells(self.cells)

    @property
    def cells(self) -> int:
        """Number of bins."""
        return (self.maximum - self.minimum) // self.width + 1

    @cached_property
    def whole_bounds(self) -> Integers:
        """The first number of each bin, and the one after the maximum."""
        return np.append(self.minimum + self.width * np.arange(self.cells), self.maximum + 1)

    @cached_property
    def bin_bounds(self) -> Floats:
        """Those numbers. A double after the maximum is above it, even if it cannot hold the next whole number."""
        return np.append(self.whole_bounds[:-1], float(max(self.maximum + 1, nextafter(self.maximum, inf))))

    def _cell_labels(self) -> tuple[str, ...]:
        bounds = self.whole_bounds
        return interval_labels(map(str, bounds.tolist()), alone=(np.diff(bounds) == 1) & (self.width == 1), last=")")

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        return rng.integers(self.whole_bounds[cells], self.whole_bounds[cells + 1])


@dataclass(frozen=True, kw_only=True)
class UnevenInteger(Integer):
    """Whole numbers from minimum to maximum, both inclusive. A new bin starts at each cut.

    >>> UnevenInteger(minimum=0, maximum=99, cuts=(1, 10)).labels
    ('0', '[1, 10)', '[10, 100)')
    """

    cuts: tuple[int, ...]

    def __post_init__(self) -> None:
        """Reject cuts that do not ascend between the bounds."""
        object.__setattr__(self, "cuts", tuple(self.cuts))
        if any(isinstance(start, bool) or not isinstance(start, int) for start in self.cuts):
            raise SpecError("the cuts of an integer attribute must be whole numbers")
        super().__post_init__()
        if any(low >= high for low, high in pairwise((self.minimum, *self.cuts, self.maximum + 1))):
            raise SpecError("the cuts of an integer attribute must ascend, above the minimum and up to the maximum")
        if self.width != 1:
            raise SpecError("an integer attribute has either cuts or a width: leave the width out")

    @property
    def cells(self) -> int:
        """Number of bins."""
        return len(self.cuts) + 1

    @cached_property
    def whole_bounds(self) -> Integers:
        """The minimum, the cuts, and the number after the maximum."""
        return np.array([self.minimum, *self.cuts, self.maximum + 1], dtype=np.int64)


@dataclass(frozen=True)
class Number(Ordered):
    """Numbers in bins between ascending edges. Each bin includes its lower edge; the last bin also includes its upper edge.

    Every number is read as the nearest double. Infinity lies above or below the edges; NaN is a null.

    >>> Number((0, 100, 500)).labels
    ('[0, 100)', '[100, 500]')
    """

    edges: tuple[float, ...]

    arrow_type = pa.float64()

    def __post_init__(self) -> None:
        """Reject edges that are not numbers, not finite or not ascending."""
        super().__post_init__()
        edges = tuple(self.edges)
        if any(isinstance(edge, bool) or not isinstance(edge, int | float) for edge in edges):
            raise SpecError("the edges of a number attribute must be numbers")
        if any(not -_LARGEST_DOUBLE <= edge <= _LARGEST_DOUBLE for edge in edges):
            raise SpecError(
                "the edges of a number attribute must be finite: use outside for values beyond the last edge"
            )
        object.__setattr__(self, "edges", tuple(map(float, edges)))
        if len(edges) < 2:
            raise SpecError("a number attribute needs at least two edges, the bounds of one bin")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise SpecError("the edges of a number attribute must ascend, each above the one before")
        refuse_too_many_cells(len(edges) - 1)

    @cached_property
    def bin_bounds(self) -> Floats:
        """The edges, with the last one moved up to the next double, so that the last bin includes it."""
        return np.array([*self.edges[:-1], nextafter(self.edges[-1], inf)])

    def _cell_labels(self) -> tuple[str, ...]:
        return interval_labels(map(short, self.edges), alone=[False] * self.cells, last="]")

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        edges = np.array(self.edges)
        low, high = edges[cells], edges[cells + 1]
        share = rng.random(len(cells))
        # low + share * (high - low) would overflow in the widest bins. The result is clipped, since rounding may reach an edge.
        return np.clip(low * (1 - share) + high * share, low, np.nextafter(high, -np.inf))
