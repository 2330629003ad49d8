"""Numeric attributes: integers in bins of equal or, as `discover` finds them, different widths, and numbers in bins between edges."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf, nextafter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe import reading
from dpcore.universe.attribute import Attribute, Codes, Outside, refuse_too_many_cells
from dpcore.universe.grid import Grid
from dpcore.universe.places import ABOVE, ALIEN, BELOW, NULL, Places, all_of, cut, signed_type
from dpcore.universe.reading import AnyIntegers, Floats, Integers

_LARGEST = 2**53  # up to here a double holds every whole number exactly, so none is rounded when it is read


@dataclass(frozen=True, kw_only=True)
class Integer(Attribute):
    """Whole numbers from minimum to maximum, both inclusive, in bins of `width`. The last bin may be narrower.

    Whole numbers are compared exactly. Fractions are rounded down. Text and decimals are read as the nearest double.

    >>> Integer(minimum=0, maximum=99, width=5).labels[-1]
    '[95, 100)'
    """

    minimum: int
    maximum: int
    width: int = 1
    outside: Outside = field(default=Outside.CLIP)

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

    @property
    def ordered(self) -> bool:
        """True: bins ascend."""
        return True

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column in a release."""
        return pa.int64()

    def _cell_labels(self) -> tuple[str, ...]:
        starts = range(self.minimum, self.maximum + 1, self.width)
        if self.width == 1:
            return tuple(map(str, starts))
        return tuple(f"[{start}, {min(start + self.width, self.maximum + 1)})" for start in starts)

    def _reads(self, kind: pa.DataType) -> bool:
        return reading.is_text(kind) or reading.is_number(kind)

    def _place(self, array: pa.Array) -> Places:
        kind = array.type
        if reading.is_whole(kind):
            return self._bin_native(reading.native_wholes(array))
        if pa.types.is_floating(kind):
            return self._bin(reading.floats(array))
        if reading.is_parsed(kind):
            values, states = reading.parsed_numbers(array)
            return np.where(states < 0, states, self._bin(values))
        return all_of(len(array), ALIEN)

    def _bin(self, values: Floats) -> Places:
        null = np.isnan(values)
        limited = np.clip(np.floor(values), -2 * _LARGEST, 2 * _LARGEST)
        places = self._bin_whole(np.where(null, 0, limited).astype(np.int64))
        np.putmask(places, null, NULL)
        return places

    def _bin_native(self, values: AnyIntegers) -> Places:
        """Bin whole numbers in their own integer type if it can hold the bounds and the width, else as int64."""
        limits = np.iinfo(values.dtype)
        if not limits.min <= self.minimum <= self.maximum <= limits.max or self.width > limits.max:
            return self._bin_whole(values.astype(np.int64))
        return self._bin_whole(values)

    def _bin_whole(self, values: AnyIntegers) -> Places:
        unsigned = np.dtype(f"u{values.dtype.itemsize}")
        # The distance from the minimum is below 2^bits, hence exact in unsigned arithmetic modulo 2^bits.
        steps = np.clip(values, self.minimum, self.maximum).view(unsigned)
        steps -= unsigned.type(self.minimum % (1 << 8 * unsigned.itemsize))
        if self.width > 1:
            steps //= unsigned.type(self.width)
        places = steps.astype(signed_type(self.cells))
        if values.size and values.min() < self.minimum:
            np.putmask(places, values < self.minimum, BELOW)
        if values.size and values.max() > self.maximum:
            np.putmask(places, values > self.maximum, ABOVE)
        return places

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        starts = self.minimum + cells * self.width
        return rng.integers(starts, np.minimum(starts + self.width, self.maximum + 1))


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
    def _bounds(self) -> Integers:
        return np.array([self.minimum, *self.cuts, self.maximum + 1], dtype=np.int64)

    def _cell_labels(self) -> tuple[str, ...]:
        bounds = self._bounds.tolist()
        return tuple(str(low) if high == low + 1 else f"[{low}, {high})" for low, high in pairwise(bounds))

    def _bin_whole(self, values: AnyIntegers) -> Places:
        if values.dtype == np.uint64:  # NumPy would compare these with the bounds as doubles
            values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
        return cut(values.astype(np.int64, copy=False), self._bounds)

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        return rng.integers(self._bounds[cells], self._bounds[cells + 1])


@dataclass(frozen=True)
class Number(Attribute):
    """Numbers in bins between ascending edges. Each bin includes its lower edge; the last bin also includes its upper edge.

    Every number is read as the nearest double. Infinity lies above or below the edges; NaN is a null.

    >>> Number((0, 100, 500)).labels
    ('[0, 100)', '[100, 500]')
    """

    edges: tuple[float, ...]
    outside: Outside = field(default=Outside.CLIP, kw_only=True)

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
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise SpecError("the edges of a number attribute must ascend, each above the one before")
        refuse_too_many_cells(self.cells)

    @property
    def cells(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    @property
    def ordered(self) -> bool:
        """True: bins ascend."""
        return True

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column in a release."""
        return pa.float64()

    @cached_property
    def _bounds(self) -> Floats:
        """The edges, with the last one moved up to the next double, so that the last bin includes it."""
        return np.array([*self.edges[:-1], nextafter(self.edges[-1], inf)])

    @cached_property
    def _grid(self) -> Grid:
        return Grid(self._bounds)

    def _cell_labels(self) -> tuple[str, ...]:
        texts = [repr(edge).removesuffix(".0") for edge in self.edges]
        brackets = [")"] * (self.cells - 1) + ["]"]
        return tuple(f"[{low}, {high}{end}" for low, high, end in zip(texts, texts[1:], brackets, strict=False))

    def _reads(self, kind: pa.DataType) -> bool:
        return reading.is_text(kind) or reading.is_number(kind)

    def _place(self, array: pa.Array) -> Places:
        kind = array.type
        if reading.is_whole(kind) or pa.types.is_floating(kind):
            return self._grid.place(reading.floats(array))
        if reading.is_parsed(kind):
            values, states = reading.parsed_numbers(array)
            return np.where(states < 0, states, self._grid.place(values))
        return all_of(len(array), ALIEN)

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        edges = np.array(self.edges)
        low, high = edges[cells], edges[cells + 1]
        share = rng.random(len(cells))
        # low + share * (high - low) would overflow in the widest bins. The result is clipped, since rounding may reach an edge.
        return np.clip(low * (1 - share) + high * share, low, np.nextafter(high, -np.inf))


_LARGEST_DOUBLE = np.finfo(np.float64).max.item()
