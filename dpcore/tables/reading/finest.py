"""Finer readings of columns at full resolution: each place as a cell of its own, and the times of the week."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpcore.tables.reading import values
from dpcore.tables.reading.encoding import Reader, reader
from dpcore.tables.reading.places import ABOVE, BELOW, NULL, Places, outside_or
from dpcore.universe.attribute import Attribute, Outside
from dpcore.universe.fine_days import STEPS, FineDays, WeekTimes, week_seconds
from dpcore.universe.fine_numbers import FineNumber
from dpcore.universe.leaves import Fine

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
        return self.column.line.size

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column."""
        return self.column.arrow_type


@reader.register
def _(attribute: Finest) -> Reader:
    column = attribute.column

    def place(array: pa.Array) -> Places:
        read, states = values.moments(array, column.formats) if isinstance(column, FineDays) else values.numbers(array)
        return outside_or(_place(read.astype(np.float64), column), states)

    return Reader(reader(column).types, place)


def _place(numbers: values.Floats, column: Fine) -> Places:
    """Return the last place whose lower edge a number reaches, by the edges that cells have."""
    line, low, end = column.line, column.bin_bounds[0], column.bin_bounds[-1]
    null = np.isnan(numbers)
    inside = np.clip(np.where(null, low, numbers), low, np.nextafter(end, -np.inf))
    if isinstance(column, FineNumber):
        places = np.clip(np.rint((inside * line.per - line.low) / line.step), 0, line.size - 1).astype(np.int64)
        for _ in range(CORRECTIONS):
            places += (places < line.size - 1) & (inside >= line.lower_edges(places + 1))
            places -= (places > 0) & (inside < line.lower_edges(places))
    else:
        places = (np.floor(inside).astype(np.int64) - line.low) // line.step
    return np.select([null, numbers < low, numbers >= end], [NULL, BELOW, ABOVE], default=places)


@reader.register
def _(attribute: WeekTimes) -> Reader:
    column = attribute.column
    low, end = column.bin_bounds[0], column.bin_bounds[-1]

    def place(array: pa.Array) -> Places:
        seconds, states = values.moments(array, column.formats)
        time = week_seconds(np.clip(seconds, int(low), int(end) - 1)) // STEPS[column.step]
        places = np.searchsorted(np.array(attribute.starts, dtype=np.int64), time, side="right")
        if attribute.outside is not Outside.CLIP:
            places = np.select([seconds < low, seconds >= end], [BELOW, ABOVE], default=places)
        return outside_or(places, states)

    return Reader(reader(column).types, place)
