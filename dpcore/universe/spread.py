"""How released values are distributed within the cells of a column: what `decode` draws from, as numbers.

A value of an ordered column has a place on a line: whole numbers, multiples of a step, days and moments have whole places, and other
numbers are their own places. Each cell is a run of segments, and values are spread evenly over each segment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.universe.attribute import Attribute, Floats
from dpcore.universe.categorical import Boolean, Categorical

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Segments:
    """Disjoint intervals of places in ascending order, the cell of each, and its mass. The masses of a cell add up to 1."""

    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    cell: Indices
    mass: Floats

    @classmethod
    def of(cls, low: npt.NDArray[Any], high: npt.NDArray[Any], cell: Indices, mass: Floats) -> "Segments":
        """Normalise the masses. Segments without mass are left out."""
        held = np.bincount(cell, weights=mass)
        with_mass = mass > 0
        return cls(low[with_mass], high[with_mass], cell[with_mass], (mass / held[cell])[with_mass])


@dataclass(frozen=True, eq=False)
class Spread:
    """The distribution of values within each cell of an ordered column.

    Attributes:
        segments: The segments of all cells.
        bounds: The place where each cell starts, and the one after the last cell.
        whole: Whether only whole places have values.
        place: Converts a value to its place, which need not be whole.
        value: Converts places to values, for numbers as floats.
        edges: The value at each bound.

    >>> from dpcore.universe import Integer
    >>> from dpcore.universe.spreading import spread_of
    >>> ages = spread_of(Integer(minimum=0, maximum=99, width=20))
    >>> ages.below(np.array([0, 5, 30])).tolist()
    [0.0, 0.25, 1.5]
    >>> float(ages.quantile(2.5))
    50.0
    """

    segments: Segments
    bounds: npt.NDArray[Any]
    whole: bool
    place: Callable[[Any], Fraction]
    value: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    edges: tuple[Any, ...]

    @property
    def cells(self) -> int:
        """The number of ordered cells."""
        return len(self.bounds) - 1

    def before(self, stop: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the last place before each of these."""
        return stop - 1 if self.whole else np.nextafter(stop, -np.inf)

    @cached_property
    def _before(self) -> Floats:
        """The mass before each segment, in cells."""
        segments = self.segments
        run = np.concatenate([[0.0], np.cumsum(segments.mass)[:-1]])
        first = np.searchsorted(segments.cell, segments.cell)
        return np.asarray(segments.cell + np.clip(run - run[first], 0.0, 1.0))

    def below(self, places: npt.NDArray[Any]) -> Floats:
        """Return the mass below each place: the number of whole cells below it, and the share of the cell that contains it."""
        segment, inside, share = self._within(places)
        mass: Floats = np.where(inside < 0, 0.0, self._before[segment] + self.segments.mass[segment] * share)
        return mass

    def moment_below(self, places: npt.NDArray[Any], *, power: int = 1) -> Floats:
        """Return the sum of the values below each place, or of their squares for the power 2, each weighted by its mass."""
        segment, inside, share = self._within(places)
        low = self.segments.low[segment]
        partial = self.segments.mass[segment] * share * self._mean(low, low + inside, power)
        moment: Floats = np.where(inside < 0, 0.0, self._moments[power][segment] + partial)
        return moment

    def _within(self, places: npt.NDArray[Any]) -> tuple[Indices, npt.NDArray[Any], Floats]:
        """Return the segment in which, or after which, each place lies, how far inside, and the share of the segment below it.

        The first segment stands for places before it, with a negative distance.
        """
        segments = self.segments
        at = np.searchsorted(segments.low, places, side="right") - 1
        segment = np.maximum(at, 0)
        width = segments.high[segment] - segments.low[segment]
        inside = np.where(at < 0, -1, np.clip(places - segments.low[segment], 0, width))
        return segment, inside, inside / width

    @cached_property
    def _moments(self) -> dict[int, Floats]:
        """The sums of values, and of their squares, before each segment."""
        low, high, mass = self.segments.low, self.segments.high, self.segments.mass
        return {power: np.concatenate([[0.0], np.cumsum(mass * self._mean(low, high, power))[:-1]]) for power in (1, 2)}

    def _mean(self, low: npt.NDArray[Any], high: npt.NDArray[Any], power: int) -> Floats:
        """Return the mean value, or the mean square, of the places from `low` to before `high`. Values are linear in places."""
        last = np.maximum(high - 1, low) if self.whole else high
        first, end = self.value(low), self.value(last)
        means: Floats = (first + end) / 2
        if power == 1:
            return means
        steps = np.maximum(last - low, 1)
        evenly: Floats = (end - first) ** 2 / 12 * ((steps + 2) / steps if self.whole else 1.0)
        return means**2 + evenly

    def quantile(self, masses: npt.NDArray[np.float64] | float) -> npt.NDArray[Any]:
        """Return the places below which there are these masses: the inverse of `below`."""
        segments, masses = self.segments, np.asarray(masses, dtype=np.float64)
        at = np.clip(np.searchsorted(self._before, masses, side="right") - 1, 0, len(segments.low) - 1)
        share = np.clip((masses - self._before[at]) / segments.mass[at], 0.0, 1.0)
        places = segments.low[at] + share * (segments.high[at] - segments.low[at])
        if self.whole:
            places = np.minimum(np.floor(places + 1e-9), segments.high[at] - 1).astype(np.int64)
        return np.asarray(places)


def category_values(attribute: Attribute) -> tuple[Any, ...] | None:
    """Return the released value of each code of an unordered column, None for null; nothing for an ordered column."""
    match attribute:
        case Boolean():
            values: tuple[Any, ...] = (False, True)
        case Categorical():
            named = attribute.size - attribute.missing
            values = attribute.labels[:named] if pa.types.is_dictionary(attribute.arrow_type) else attribute.values
        case _:
            return None
    return values + (None,) * (attribute.size - len(values))


def null_codes(attribute: Attribute) -> tuple[int, ...]:
    """Return the codes that are released as null."""
    values = category_values(attribute)
    if values is None:
        return tuple(range(attribute.cells, attribute.size))
    return tuple(code for code, value in enumerate(values) if value is None)
