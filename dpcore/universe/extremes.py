"""The lowest and the highest value of each cell of an ordered column, as numbers that can be compared across columns.

Days and moments are seconds since 1970. All numbers are exact as doubles: whole numbers up to 2^53, and the very doubles that are released.
"""

from datetime import date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute
from dpcore.universe.fine_days import STEPS, FineDatetime, FineDays
from dpcore.universe.fine_numbers import FineNumber
from dpcore.universe.leaves import Fine
from dpcore.universe.numeric import Integer, Number
from dpcore.universe.reading import DAY
from dpcore.universe.spreading import spread_of
from dpcore.universe.temporal import CalendarColumn, Datetime

Floats = npt.NDArray[np.float64]


def bin_extremes(attribute: Attribute) -> tuple[Floats, Floats]:
    """Return the lowest and the highest value that is read into each declared cell. The highest one of a bin of reals is its upper edge.

    >>> [each.tolist() for each in bin_extremes(Integer(minimum=0, maximum=9, width=5))]
    [[0.0, 5.0], [4.0, 9.0]]
    """
    if not attribute.ordered:
        raise SpecError("this column has no order")
    spread = spread_of(attribute)
    last = spread.bounds[1:] - 1 if spread.whole else spread.bounds[1:]
    return numbers(spread.value(spread.bounds[:-1])), numbers(spread.value(last))


def cell_intervals(attribute: Attribute) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the places of each declared cell from which values are drawn: the first one, and the one after the last.

    Of a bin of the calendar, only the first moment is released.
    """
    bounds = spread_of(attribute).bounds
    if isinstance(attribute, CalendarColumn) and not isinstance(attribute, Fine):
        return bounds[:-1], bounds[:-1] + 1
    if isinstance(attribute, FineDatetime):  # the first and the last day may be cut off
        first, last = attribute.bounds
        step = STEPS[attribute.step]
        start = np.maximum(bounds[:-1], -(-first // step))
        return start, np.maximum(np.minimum(bounds[1:], last // step + 1), start + 1)
    return bounds[:-1], bounds[1:]


def drawn_extremes(attribute: Attribute) -> tuple[Floats, Floats]:
    """Return the lowest and the highest number that is drawn from each declared cell."""
    spread, (start, stop) = spread_of(attribute), cell_intervals(attribute)
    last = stop - 1 if spread.whole else np.nextafter(stop, -np.inf)
    return numbers(spread.value(start)), numbers(spread.value(last))


def numbers(values: npt.NDArray[Any]) -> Floats:
    """Return values as numbers, days and moments as seconds since 1970."""
    if values.dtype.kind == "M":
        values = values.astype("datetime64[s]").astype(np.int64)
    return values.astype(np.float64)


def number_of(attribute: Attribute, value: Any) -> float:
    """Return one value of a column as a number.

    Raises:
        SpecError: If it is not of the column's kind.
    """
    if isinstance(attribute, CalendarColumn):
        return _moment(attribute, value)
    if isinstance(attribute, Integer | Number) and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise SpecError(f"{value!r} is not a number; write a number such as 17")


def _moment(attribute: CalendarColumn, value: Any) -> float:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        raise SpecError(f"{value!r} is not a date; write one such as 2025-01-31")
    if isinstance(attribute, Datetime):
        return float(np.datetime64(moment, "s").astype(np.int64))
    return float(date(moment.year, moment.month, moment.day).toordinal() - date(1970, 1, 1).toordinal()) * DAY


def fine_numbers(column: Fine, places: npt.NDArray[np.integer[Any]]) -> Floats:
    """Return the numbers of the finest places of a column at full resolution, as `Finest` encodes them."""
    if isinstance(column, FineDays):
        step = STEPS[column.step]
        return (places.astype(np.float64) + column.bounds[0] // step) * step
    if isinstance(column, FineNumber):
        return column.scale.values(places.astype(np.int64))
    return numbers(spread_of(column).value(places.astype(np.int64) + int(spread_of(column).bounds[0])))


def fine_values(column: Fine, places: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Return the released values of the finest places of a column at full resolution."""
    found = fine_numbers(column, places)
    if isinstance(column, FineDays):
        moments = found.astype(np.int64).astype("datetime64[s]")
        unit = "datetime64[us]" if isinstance(column, Datetime) else "datetime64[D]"
        return pa.array(moments.astype(unit), type=column.arrow_type)
    if pa.types.is_integer(column.arrow_type):
        return pa.array(found.astype(np.int64), type=column.arrow_type)
    return pa.array(found, type=column.arrow_type)


def fine_places_from(column: Fine, least: Floats, *, size: int) -> npt.NDArray[np.int64]:
    """Return the first finest place of a column whose number is at least a given one; `size`, the number of places, if there is none."""
    first, last = fine_numbers(column, np.array([0, 1])).tolist()
    places = np.clip(np.ceil((least - first) / (last - first)), 0, size).astype(np.int64)
    for _ in range(2):  # the quotient may be off by a place
        places += (places < size) & (fine_numbers(column, np.minimum(places, size - 1)) < least)
        places -= (places > 0) & (fine_numbers(column, np.maximum(places - 1, 0)) >= least)
    return np.asarray(places)
