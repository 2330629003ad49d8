"""The lowest and the highest value of each cell of an ordered column, as numbers that can be compared across columns.

Days and moments are seconds since 1970. All numbers are exact as doubles: whole numbers up to 2^53, and the very doubles that are released.
"""

from datetime import date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute
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
