"""Convert single Python values, from a database driver or an object column, to ids.

Values that are equal in Python have one id or none; otherwise one person would count as several. That holds for an explicit list of kinds:
text, bytes, integers, floats, decimals, dates, datetimes, UUIDs, their scalars in NumPy and pandas, and tuples and lists of these. All other
values are no ids: their text may differ between equal values, as that of a set does, or show an address in memory.
"""

import datetime as dt
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from dpcore.tables.sources.ids import EXACT, whole
from dpcore.tables.sources.text import text_of
from dpcore.tables.sources.values import LONGEST_DECIMAL, moment_text

MARK = "\0"  # starts the id of a tuple or list; text that starts with it gets a second one
FLOATS = {2: EXACT["halffloat"], 4: EXACT["float"], 8: EXACT["double"]}  # by the number of bytes
MIDNIGHT = "T00:00:00"


def as_id(value: Any) -> str | None:
    r"""Convert a value to the text that tells whose row it is. None means that it is nobody's: the value is null, or cannot be an id.

    A number that is not whole or, by its own type, may have been rounded is no id. Neither is a tuple or list with a member that is none.
    Text is an id as it is.

    >>> [as_id(value) for value in (7, 7.0, Decimal("7.00"), "7", "7.0", 0.1, 2.0**53, np.float32(2**24), True, {7})]
    ['7', '7', '7', '7', '7.0', None, None, None, None, None]
    >>> as_id((1, "a")), as_id([1.0, "a"]), as_id((1, None)), as_id(((1, "a"),))
    ('\x001:11:a', '\x001:11:a', None, None)
    """
    with suppress(Exception):  # a value of a derived type may do anything
        kind = type(value)
        for sequence in (tuple, list):
            if _behaves_as(kind, sequence):
                return _of_members(sequence.__iter__(value))
        return _of_one(value, kind)
    return None


def _of_members(members: Iterable[Any]) -> str | None:
    """Write each member after its length, so that no two lists of members are written alike. Empty text is no id."""
    texts = [_of_one(member, type(member)) for member in members]
    return MARK + "".join(f"{len(text or '')}:{text}" for text in texts) if texts and all(texts) else None


def _of_one(value: Any, kind: type) -> str | None:
    if (write := _WRITERS.get(kind)) is not None:
        return write(value)
    if issubclass(kind, np.generic):
        return _of_numpy(value, kind)
    if (pandas := sys.modules.get("pandas")) and kind is pandas.Timestamp:
        return _moment(value, utc=moment_text(value.to_datetime64()))
    return next((write(value) for base, write in _WRITERS.items() if _behaves_as(kind, base)), None)


def _behaves_as(kind: Any, base: Any) -> bool:
    """Tell whether a type is another, or derived from it with the same equality."""
    return bool(issubclass(kind, base) and kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__)


def _of_numpy(value: Any, kind: type) -> str | None:
    if kind is not value.dtype.type:
        return None
    if value.dtype.kind == "M":
        text = moment_text(value)
        return None if text is None else text.removesuffix(MIDNIGHT)
    if value.dtype.kind == "f":
        return _float(float(value), first_rounded=FLOATS[value.dtype.itemsize])
    # Not `item()`, which drops null characters at the end. Equality and hash keep them.
    if value.dtype.kind in "SU":
        return _text(value) if value.dtype.kind == "U" else _bytes(value)
    return int.__repr__(value.item()) if value.dtype.kind in "iu" else None


def _text(value: str) -> str:
    text = str.__str__(value)
    text.encode()  # fails on lone surrogates, which UTF-8 cannot tell apart
    return MARK + text if text.startswith(MARK) else text


def _bytes(value: bytes | bytearray) -> str:
    return _text(text_of(bytes(memoryview(value))))


def _buffer(value: memoryview) -> str | None:
    """Convert plain bytes. Equal buffers of other formats may differ in their bytes."""
    return _text(text_of(bytes(value))) if value.format == "B" and value.ndim == 1 else None


def _float(value: float, *, first_rounded: int = EXACT["double"]) -> str | None:
    exact = float.is_integer(value) and abs(float.__float__(value)) < first_rounded
    return str(float.__int__(value)) if exact else None


def _decimal(value: Decimal) -> str | None:
    number = Decimal(value)
    return whole(number) if number.is_finite() and abs(number.adjusted()) < LONGEST_DECIMAL else None


def _moment(value: dt.datetime, *, utc: str | None = None) -> str | None:
    """Write a datetime as ISO 8601, in UTC if it has a time zone. At midnight the date alone is written, so that both are one id.

    A time of day that its zone repeats or skips is no id: which moment is meant, and what it equals, depends on who compares.

    Args:
        value: The datetime.
        utc: Its text without a zone, in UTC if it has a zone, where it is known more finely than in microseconds.
    """
    offset = dt.datetime.utcoffset(value)
    plain = dt.datetime.combine(dt.datetime.date(value), dt.datetime.time(value))
    if offset is None:
        return (utc or plain.isoformat()).removesuffix(MIDNIGHT)
    if value.replace(fold=1 - value.fold).utcoffset() != offset:
        return None
    return (utc or (plain - offset).isoformat()) + "+00:00"


_WRITERS: Mapping[type, Callable[[Any], str | None]] = {
    type(None): lambda _: None,
    bool: lambda _: None,  # equals 0 or 1
    str: _text,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _buffer,
    int: int.__repr__,
    float: _float,
    Decimal: _decimal,
    dt.date: dt.date.isoformat,
    dt.datetime: _moment,
    UUID: UUID.__str__,
}
