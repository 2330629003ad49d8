"""Convert single Python values, from a database driver or an object column, to text."""

import datetime as dt
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from numbers import Rational
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.tables.sources.ids import EXACT
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


def as_id(value: Any) -> str | None:
    """Convert a value to text as `as_text` does, but a float to None if it may have been rounded, by its own type: it is no id.

    >>> [as_id(value) for value in (7, 7.0, 0.1, 2.0**53, np.float32(2**24 - 1), np.float32(2**24), "0.1", Decimal("0.1"))]
    ['7', '7.0', None, None, '16777215.0', None, '0.1', '0.1']
    """
    text = as_text(value)
    return text if text is None or _is_exact(value) else None


def _is_exact(value: Any) -> bool:
    """Tell whether a value, and each that it contains, is no float that may have been rounded. A float of unknown precision is one."""
    with suppress(Exception):
        if type(value) in _WITHOUT_FLOATS:
            return True
        if isinstance(value, list | tuple | np.ndarray):
            return all(map(_is_exact, value.flat if isinstance(value, np.ndarray) else value))
        limit = _first_rounded(value)
        return limit is None or (abs(float(value)) < limit and float(value).is_integer())
    return False


def _first_rounded(value: Any) -> int | None:
    """Return the smallest integer that a float's type may round: 0 for an unknown type. Return None for a value that is no float."""
    if isinstance(value, np.generic) and value.dtype.kind not in "fcV":
        return None
    if isinstance(value, np.generic | pa.Scalar):
        kind = value.type if isinstance(value, pa.Scalar) else pa.from_numpy_dtype(value.dtype)
        is_other = not (pa.types.is_floating(kind) or pa.types.is_nested(kind))
        return None if is_other else EXACT.get(str(kind), 0)
    if isinstance(value, float):
        return EXACT["double"]
    if isinstance(value, str | bytes | Decimal | Rational):
        return None
    return 0 if isinstance(value, complex) or hasattr(value, "__float__") else None


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
_WITHOUT_FLOATS = _WRITERS.keys() - {float}
