"""Every place of a column at full resolution as a cell of its own: what the data's version takes from such a column."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import UsageError
from dpcore.universe import reading
from dpcore.universe.attribute import Attribute, Codes
from dpcore.universe.fine_days import STEPS, FineDays
from dpcore.universe.fine_numbers import FineInteger, FineNumber, Scale
from dpcore.universe.formats import read_moments
from dpcore.universe.leaves import Fine
from dpcore.universe.places import ABOVE, ALIEN, BELOW, NULL, Places, all_of
from dpcore.universe.reading import Floats, Integers

CORRECTIONS = 3  # a place that is computed in doubles is off by at most two


@dataclass(frozen=True, kw_only=True)
class Finest(Attribute):
    """The finest public places of a column at full resolution: its numbers, or its days and times in steps.

    Two values with one place are in the same cell of every cut of the column, and at the same time of the week. It is encoded, never
    counted or released.
    """

    column: Fine

    @classmethod
    def of(cls, column: Fine) -> "Finest":
        """Return the places of a column, with its policies."""
        return cls(column=column, missing=column.missing, outside=column.outside, nulls=column.nulls)

    @property
    def cells(self) -> int:
        """Number of places."""
        if isinstance(self.column, FineDays):
            first, last = self._steps(self.column)
            return last - first + 1
        return self.column.places

    @property
    def ordered(self) -> bool:
        """True: places ascend."""
        return True

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column."""
        return self.column.arrow_type

    def _reads(self, kind: pa.DataType) -> bool:
        return self.column.reads(kind)

    def _place(self, array: pa.Array) -> Places:
        if isinstance(self.column, FineDays):
            return self._place_moments(array, self.column)
        if not reading.is_whole(array.type) and not pa.types.is_floating(array.type):
            return self._place_parsed(array)
        if isinstance(self.column, FineInteger) and reading.is_whole(array.type):
            return _of_wholes(reading.whole_numbers(array), self.column)
        return self._place_floats(reading.floats(array))

    def _place_parsed(self, array: pa.Array) -> Places:
        if not reading.is_parsed(array.type):
            return all_of(len(array), ALIEN)
        values, states = reading.parsed_numbers(array)
        return np.where(states < 0, states, self._place_floats(values))

    def _place_floats(self, values: Floats) -> Places:
        known = np.where(np.isnan(values), 0, values)
        if isinstance(self.column, FineInteger):
            limit = 2.0**62  # beyond the bounds of every column
            places = _of_wholes(np.clip(np.floor(known), -limit, limit).astype(np.int64), self.column)
        elif isinstance(self.column, FineNumber):
            places = _of_numbers(known, self.column.scale)
        else:
            raise UsageError("a column at full resolution of an unknown kind has no finest places; report this")
        return np.where(np.isnan(values), NULL, places)

    def _place_moments(self, array: pa.Array, column: FineDays) -> Places:
        if reading.is_moment(array.type):
            seconds, states = reading.seconds(array), all_of(len(array), 0)
        elif reading.is_text(array.type):
            formats = column.formats
            seconds, states = read_moments(array, formats) if formats else reading.parsed_seconds(array)
        else:
            return all_of(len(array), ALIEN)
        low, high = column.bounds
        places = np.clip(seconds, low, high) // STEPS[column.step] - self._steps(column)[0]
        return np.where(states < 0, states, _outside(places, below=seconds < low, above=seconds > high))

    def _steps(self, column: FineDays) -> tuple[int, int]:
        """Return the numbers of the first and the last step, counted from 1970."""
        low, high = column.bounds
        return low // STEPS[column.step], high // STEPS[column.step]

    def _cell_labels(self) -> tuple[str, ...]:
        raise UsageError("the finest places of a column have no names; report this")

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        del cells, rng
        raise UsageError("the finest places of a column are read, not released; draw from the column itself")


def _of_wholes(values: Integers, column: FineInteger) -> Places:
    places = np.clip(values, column.minimum, column.maximum) - column.minimum
    return _outside(places, below=values < column.minimum, above=values > column.maximum)


def _of_numbers(values: Floats, scale: Scale) -> Places:
    """Return the last place whose lower edge a value reaches, by the edges that cells have."""
    low, high = scale.values(np.array([0, scale.size - 1])).tolist()
    kept = np.clip(values, low, high)
    places = np.clip(np.rint((kept * scale.per - scale.low) / scale.step), 0, scale.size - 1).astype(np.int64)
    for _ in range(CORRECTIONS):
        places += (places < scale.size - 1) & (kept >= scale.lower_edges(places + 1))
        places -= (places > 0) & (kept < scale.lower_edges(places))
    return _outside(places, below=values < low, above=values > high)


def _outside(places: Integers, *, below: npt.NDArray[np.bool_], above: npt.NDArray[np.bool_]) -> Places:
    return np.where(below, BELOW, np.where(above, ABOVE, places))
