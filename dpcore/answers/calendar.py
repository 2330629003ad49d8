"""Units of the calendar: where they begin, and which one a moment lies in. The names and numbers are those of DuckDB."""

from datetime import date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpcore.errors import UsageError

Moments = npt.NDArray[np.datetime64]

TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""The units of `date_trunc`."""

OF_WEEK = ("dayofweek", "isodow", "hour", "minute", "second")
"""Parts of a moment that the time of the week determines."""

PARTS = ("year", "quarter", "month", "week", "day", "dayofweek", "isodow", "dayofyear", "hour", "minute", "second")
"""The parts of a date or time."""

_CHANGES = {  # the unit whose beginnings include every change of a part
    "dayofweek": "day",
    "isodow": "day",
    "dayofyear": "day",
}
_NUMPY = {"year": "Y", "month": "M", "day": "D", "hour": "h", "minute": "m", "second": "s"}
_SHORTEST_YEARS = {"year": 365, "quarter": 90, "month": 28, "week": 7, "day": 1}


def boundaries(first: date, last: date, unit: str, *, most: int) -> list[Any]:
    """Return the beginnings of all units after `first`, up to `last`.

    >>> [str(day) for day in boundaries(date(2025, 1, 15), date(2025, 3, 2), "month", most=10)]
    ['2025-02-01', '2025-03-01']
    """
    changes = _CHANGES.get(unit, unit)
    moments = np.array([first, last], dtype="datetime64[s]")
    seconds = int((moments[1] - moments[0]).astype(np.int64))
    shortest = _SHORTEST_YEARS.get(changes, 0) * 86400 or {"hour": 3600, "minute": 60}.get(changes, 1)
    if seconds // shortest > most:
        raise UsageError(
            f"the column spans too many units to tell every {changes} apart; use a longer one, such as month or year"
        )
    begin, end = truncated(moments, changes)
    step = np.timedelta64(7, "D") if changes == "week" else np.timedelta64(3, "M") if changes == "quarter" else 1
    numpy_unit = {"week": "D", "quarter": "M"}.get(changes) or _NUMPY[changes]
    starts = np.arange(begin.astype(f"datetime64[{numpy_unit}]"), end.astype(f"datetime64[{numpy_unit}]") + 1, step)
    starts = starts.astype("datetime64[s]")
    inside = starts[(starts > moments[0]) & (starts <= moments[1])]
    return [moment if isinstance(first, datetime) else moment.date() for moment in inside.tolist()]


def truncated(moments: npt.NDArray[Any], unit: str) -> Moments:
    """Return the beginning of the unit that each moment lies in, as days or, for times, as seconds."""
    kind = moments.dtype
    if unit == "week":
        days = moments.astype("datetime64[D]").astype(np.int64)
        return ((days + 3) // 7 * 7 - 3).astype("datetime64[D]").astype(kind)
    if unit == "quarter":
        months = moments.astype("datetime64[M]").astype(np.int64)
        return (months // 3 * 3).astype("datetime64[M]").astype(kind)
    return moments.astype(f"datetime64[{_NUMPY[unit]}]").astype(kind)


def part_of(moments: npt.NDArray[Any], unit: str) -> npt.NDArray[np.int64]:
    """Return a part of each moment as a number.

    >>> part_of(np.array(["2025-06-01"], dtype="datetime64[D]"), "dayofweek").tolist()
    [0]
    """
    index = pd.DatetimeIndex(moments.astype("datetime64[s]"))
    match unit:
        case "week":
            return index.isocalendar().week.to_numpy(dtype=np.int64)
        case "dayofweek":
            numbers = (index.day_of_week + 1) % 7
        case "isodow":
            numbers = index.day_of_week + 1
        case "dayofyear":
            numbers = index.day_of_year
        case _:
            numbers = getattr(index, unit)
    return np.asarray(numbers, dtype=np.int64)
