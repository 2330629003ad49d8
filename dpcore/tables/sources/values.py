"""Convert single Python values, from a database driver or an object column, to text."""

import datetime as dt
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np

from dpcore.tables.sources.text import text_of

LONGEST_DECIMAL = 400
MONTHS = {"Y": 12, "M": 1}
ATTOSECONDS = {
    **{unit: seconds * 10**18 for unit, seconds in {"W": 604_800, "D": 86_400, "h": 3600, "m": 60, "s": 1}.items()},
    **{unit: 10 ** (3 * place) for place, unit in enumerate(("as", "fs", "ps", "ns", "us", "ms"))},
}


def as_text(value: Any) -> str | None:
    r"""Convert a value to text that the universe can parse; None means null. No value fails, and none changes how another is read.

    >>> [as_text(value) for value in (7, 0.5, Decimal("1E+3"), True, b"Z\xfcrich", dt.date(2025, 1, 31), float("nan"))]
    ['7', '0.5', '1000', 'true', 'Zürich', '2025-01-31', None]
    """
    try:
        write = _WRITERS.get(type(value), _other)
    except Exception:  # noqa: BLE001  hashing a type may call a method of its metaclass, which may fail
        return None
    return write(value)


def moment_text(value: np.datetime64) -> str | None:
    """Write a datetime of NumPy as ISO 8601, whatever its unit. None means null, or a year outside 1 to 9999.

    >>> moment_text(np.datetime64("2025-01-31T10:00:00.5", "ns")), moment_text(np.datetime64("2025-01", "M"))
    ('2025-01-31T10:00:00.500000', '2025-01-01T00:00:00')
    """
    unit, step = np.datetime_data(value.dtype)
    if np.isnat(value) or unit == "generic":
        return None
    count, rest = int(value.astype(np.int64)) * step, 0
    with suppress(OverflowError, ValueError):  # years that Python has no datetime for
        if unit in MONTHS:
            year, month = divmod(count * MONTHS[unit], 12)
            moment = dt.datetime(1970 + year, 1 + month, 1)  # noqa: DTZ001  NumPy's datetimes have no zone
        else:
            seconds, rest = divmod(count * ATTOSECONDS[unit], ATTOSECONDS["s"])
            moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)  # noqa: DTZ001  likewise
        fraction = "." + f"{rest:018d}".rstrip("0").ljust(6, "0") if rest else ""
        return moment.isoformat() + fraction
    return None


def _other(value: Any) -> str | None:
    """Convert a value of any other type. It may be a subclass of a standard type whose overridden methods do anything.

    The result counts only if it is exactly a `str`, not a subclass.
    """
    with suppress(Exception):
        text = _derived(value)
        return _valid(text) if type(text) is str else None
    return None


def _derived(value: Any) -> str | None:
    if isinstance(value, np.generic):
        return _of_numpy(value)
    if (pandas := sys.modules.get("pandas")) and (value is pandas.NA or value is pandas.NaT):
        return None
    for kind in (str, bytes, float, Decimal, dt.date):
        if isinstance(value, kind):
            return _WRITERS[kind](value)
    if isinstance(value, bytearray | memoryview):
        return text_of(bytes(value))
    if isinstance(value, set | frozenset | dict) or _is_told_by_its_address(type(value)):
        return None  # equal values may differ in text
    return _valid(str(value))


def _of_numpy(value: np.generic) -> str | None:
    if isinstance(value, np.datetime64):  # in units below microseconds, its item would be an integer
        return moment_text(value)
    return as_text(value.item()) if type(value.item()) in _WRITERS else None


def _is_told_by_its_address(kind: type) -> bool:
    return all(getattr(kind, write) is getattr(object, write) for write in ("__str__", "__repr__"))


def _valid(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _decimal(value: Decimal) -> str | None:
    if value.is_nan():
        return None
    plain = value.is_finite() and abs(value.adjusted()) < LONGEST_DECIMAL
    return format(value, "f") if plain else str(value)


def _float(value: float) -> str | None:
    return None if value != value else repr(float(value))  # noqa: PLR0124  only NaN differs from itself


def _whole(value: int) -> str | None:
    with suppress(ValueError):  # too long for Python to write
        return str(value)
    return None


_WRITERS: Mapping[type, Callable[[Any], str | None]] = {
    type(None): lambda _: None,
    str: _valid,
    bytes: text_of,
    bool: lambda value: "true" if value else "false",
    int: _whole,
    float: _float,
    Decimal: _decimal,
    dt.date: lambda value: value.isoformat(),  # a subclass such as pandas.Timestamp has its own isoformat
    dt.datetime: dt.datetime.isoformat,
}
