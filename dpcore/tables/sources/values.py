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
        return as_text(value.item()) if type(value.item()) in _WRITERS else None
    if (pandas := sys.modules.get("pandas")) and (value is pandas.NA or value is pandas.NaT):
        return None
    for kind in (str, bytes, float, Decimal, dt.date):
        if isinstance(value, kind):
            return _WRITERS[kind](value)
    if isinstance(value, bytearray | memoryview):
        return text_of(bytes(value))
    if isinstance(value, set | frozenset | dict) or _is_told_by_its_address(type(value)):
        return None  # equal values may differ in text, so that one person would have several ids
    return _valid(str(value))


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
