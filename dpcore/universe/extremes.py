"""The lowest and the highest value of each cell of an ordered column, as numbers that can be compared across columns.

Days and moments are seconds since 1970. All numbers are exact as doubles: whole numbers up to 2^53, and the very doubles that are released.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import DAY, EPOCH_DAY, Attribute, Floats
from dpcore.universe.fine_days import FineDatetime, FineDays
from dpcore.universe.leaves import Fine
from dpcore.universe.numeric import Integer, Number
from dpcore.universe.spreading import spread_of
from dpcore.universe.temporal import CalendarColumn, Datetime


def bin_extremes(attribute: Attribute) -> tuple[Floats, Floats]:
    """Return the lowest and the highest value that is read into each declared cell. The highest one of a bin of reals is its upper edge.

    >>> [ends.tolist() for ends in bin_extremes(Integer(minimum=0, maximum=9, width=5))]
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
        first, last = attribute.step_range
        start = np.maximum(bounds[:-1], first)
        return start, np.maximum(np.minimum(bounds[1:], last + 1), start + 1)
    return bounds[:-1], bounds[1:]


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
    return float(moment.toordinal() - EPOCH_DAY) * DAY


def fine_values(column: Fine, places: npt.NDArray[np.int64]) -> pa.Array:
    """Return the released values of the finest places of a column at full resolution."""
    values: npt.NDArray[Any] = column.line.values(places)
    if isinstance(column, FineDays):
        values = values.astype("datetime64[s]").astype(column.numpy_type)
    elif pa.types.is_integer(column.arrow_type):
        values = values.astype(np.int64)
    return pa.array(values, type=column.arrow_type)


def fine_places_from(column: Fine, least: Floats) -> npt.NDArray[np.int64]:
    """Return the first finest place of a column whose number is at least a given one; the number of places if there is none."""
    size = np.full(least.shape, column.line.size)
    return first_where(lambda places: column.line.values(places) >= least, np.zeros_like(size), size)


def first_where(
    reached: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]],
    low: npt.NDArray[np.int64],
    high: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the first whole number, from `low` to before `high`, from which on something holds; `high` if there is none."""
    while (low < high).any():
        middle = (low + high) // 2
        holds = reached(middle) | (low >= high)
        low, high = np.where(holds, low, middle + 1), np.where(holds, middle, high)
    return high
