"""Hash the ids that say whose row it is, of any type and from any number of batches and files.

The bound on one person's rows holds only if each person has exactly one id and no two persons share one. Files written at different times
often store ids in different types. The integer 7, the float 7.0 (an integer column with nulls), the decimal 7.00 and the text "7" are
therefore the same id, and so is a timestamp in any unit and time zone. A float that may have been rounded is null: its row belongs to
nobody. Floats that a source hands over as text, since each value has its own type there, are made null by `object_ids.as_id`. Types that cannot
be compared, such as dates and text, may not occur in one source; `family` tells them apart by type alone.

Otherwise ids are compared as they are: " 7", "07" and "7" are three ids. Bytes are text if they are valid UTF-8, else raw bytes.

An id becomes a 128-bit keyed hash as soon as it is read, and no later step sees the id itself. Every run has its own key.
"""

import hashlib
import re
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from dpcore.tables.sources.layout import stored_values
from dpcore.tables.sources.text import is_count_of_time, is_text, plain_type, readable

HashedIds: TypeAlias = npt.NDArray[np.uint64]
"""Two 64-bit words for each row of the table."""

HASH_BYTES = 16
EXACT = {"halffloat": 2**11, "float": 2**24, "double": 2**53}
"""For each float type, the smallest integer from which on integers may be rounded."""
# matches 7.0, 1e+05 and 1.0E7, but not text that may be another kind of id, such as 12e5
LIKE_FLOAT = r"^-?[0-9]+\.[0-9]*$|^-?[0-9](\.[0-9]+)?[eE][+-][0-9]+$|^-?[0-9]\.[0-9]+[eE][0-9]+$|^-0$"
DAY = 86_400
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
NANO_DIGITS = 9


def hash_ids(ids: pa.Array, *, key: bytes) -> tuple[HashedIds, npt.NDArray[np.bool_]]:
    """Return the hashed ids of a batch, and which rows have an id. The hash of a row without an id has no meaning."""
    canonical = canonical_ids(ids)
    keyed = hashlib.blake2b(key=key, digest_size=HASH_BYTES)  # copying it for each id saves a quarter of the time
    digests = [_digest(keyed, text) for text in canonical.dictionary.to_pylist()]
    hashes = np.frombuffer(b"".join(digests) + bytes(HASH_BYTES), dtype="<u8").astype(np.uint64, copy=False)
    rows = canonical.indices.fill_null(len(digests)).to_numpy(zero_copy_only=False)
    known: npt.NDArray[np.bool_] = rows < len(digests)
    return hashes.reshape(-1, 2)[rows], known


def _digest(keyed: hashlib.blake2b, text: bytes) -> bytes:
    one = keyed.copy()
    one.update(text)
    return one.digest()


def canonical_ids(ids: pa.Array) -> pa.DictionaryArray:
    """Write ids of any type as bytes, so that equal ids have equal bytes. The dictionary holds each distinct id once.

    These become null: empty text, floats that are not integers or may have been rounded, and all values of types that cannot be ids
    (lists, structs, intervals). For an extension type the stored value is the id: for a UUID, its 16 bytes.
    """
    values, rows = stored_values(ids)
    if not _can_be_counted(values.type):
        values = _as_bytes(values)
    distinct = values.dictionary_encode()
    # two distinct values may be written as the same bytes (7.0 and 7), hence the second encoding
    written = _as_bytes(distinct.dictionary).dictionary_encode()
    indices = written.indices.take(distinct.indices)
    return pa.DictionaryArray.from_arrays(indices if rows is None else indices.take(rows), written.dictionary)


def can_identify(kind: pa.DataType) -> bool:
    """Tell whether a column of this type can hold ids. In other types, `canonical_ids` makes every value null."""
    kind = _stored(kind)
    return not (pa.types.is_nested(kind) or pa.types.is_interval(kind))


def family(kind: pa.DataType) -> str | None:
    """Name the family of a type: ids can be compared only within a family. Return None for the null type.

    >>> family(pa.int64()) == family(pa.dictionary(pa.int8(), pa.string())), family(pa.date32()) == family(pa.string())
    (True, False)
    """
    if isinstance(kind, pa.UuidType):
        return "UUID"
    kind = _stored(kind)
    if pa.types.is_null(kind):
        return None
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "moment in a time zone"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "day or moment"
    named = {"time of day": pa.types.is_time, "duration": pa.types.is_duration, "truth value": pa.types.is_boolean}
    return next((name for name, holds in named.items() if holds(kind)), "number or text")


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values inside extension, dictionary and run-end encoded types."""
    if isinstance(kind, pa.BaseExtensionType):
        return _stored(kind.storage_type)
    wrapped = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return _stored(kind.value_type) if wrapped else kind


def _can_be_counted(kind: pa.DataType) -> bool:
    """Tell whether Arrow can dictionary-encode a type. Other types are written as bytes first."""
    return not (pa.types.is_nested(kind) or pa.types.is_decimal(kind))


def _as_bytes(values: pa.Array) -> pa.Array:
    for holds, write in _WRITERS:
        if holds(values.type):
            return write(values)
    return pa.nulls(len(values), pa.large_binary())


def _written(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()).cast(pa.large_string()).cast(pa.large_binary())


def _floats(values: pa.Array) -> pa.Array:
    """Write integral floats as integers, without exponent. Floats that may have been rounded become null."""
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    exact = (np.trunc(numbers) == numbers) & (np.abs(numbers) < EXACT[str(values.type)])  # false for NaN
    return _written(pa.array(np.where(exact, numbers, 0).astype(np.int64), mask=~exact))


def _decimals(values: pa.Array) -> pa.Array:
    plain = [None if value is None else _shortened(format(value, "f").encode()) for value in values.to_pylist()]
    return pa.array(plain, pa.large_binary())


def _moments(values: pa.Array) -> pa.Array:
    """Write dates, timestamps, times and durations as seconds with a fraction, so that the unit does not matter.

    This works for every stored integer, also for one outside the range of the calendar.
    """
    kind, known = values.type, values.is_valid()
    counts = values.view(plain_type(kind)).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_date(kind):
        days = counts if pa.types.is_date32(kind) else counts // (DAY * 1000)
        seconds, rest = days * DAY, np.zeros_like(days)
    else:
        seconds, rest = np.divmod(counts, PER_SECOND[kind.unit])
        rest *= PER_SECOND["ns"] // PER_SECOND[kind.unit]
    fraction = compute.utf8_lpad(pa.array(rest).cast(pa.string()), NANO_DIGITS, padding="0")
    texts = compute.binary_join_element_wise(pa.array(seconds).cast(pa.string()), fraction, ".")
    return compute.if_else(known, texts, pa.scalar(None, pa.string())).cast(pa.large_string()).cast(pa.large_binary())


def _texts(values: pa.Array) -> pa.Array:
    """Make empty text null, and write text that looks like a float in canonical form."""
    raw = (readable(values) if is_text(values.type) else values).cast(pa.large_binary())
    raw = compute.if_else(compute.equal(raw, b""), pa.scalar(None, pa.large_binary()), raw)
    alike = compute.match_substring_regex(raw, LIKE_FLOAT).fill_null(False)  # noqa: FBT003  a value, not a switch
    if not compute.any(alike).as_py():
        return raw
    numbers = pa.array(map(_number, raw.filter(alike).to_pylist()), pa.large_binary())
    return compute.replace_with_mask(raw, alike, numbers)


def canonical_text(text: str) -> str | None:
    """Write one text as `canonical_ids` does. None means that it is no id.

    >>> canonical_text("7.0"), canonical_text("07"), canonical_text("")
    ('7', '07', None)
    """
    raw = text.encode() or None
    if raw is not None and re.fullmatch(LIKE_FLOAT.encode(), raw):
        raw = _number(raw)
    return None if raw is None else raw.decode()


def _number(text: bytes) -> bytes | None:
    """Write a number in canonical form. Return None for an integral float that may have been rounded, as in `_floats`."""
    if b"e" in text.lower():
        number = float(text)
        return b"%d" % number if number.is_integer() and abs(number) < EXACT["double"] else None
    shortened = _shortened(text)
    digits = shortened.lstrip(b"-0")
    was_float = b"." in text and b"." not in shortened
    longest = len(str(EXACT["double"]))
    rounded = was_float and (len(digits) > longest or int(digits or b"0") >= EXACT["double"])
    return None if rounded else shortened


def _shortened(number: bytes) -> bytes:
    """Remove trailing zeros of the fraction, the decimal point if no fraction remains, and the sign of 0."""
    whole, _, fraction = number.partition(b".")
    fraction = fraction.rstrip(b"0")
    if fraction:
        return whole + b"." + fraction
    return b"0" if whole == b"-0" else whole


def _is_bytes(kind: pa.DataType) -> bool:
    return str(kind) in {"binary", "large_binary", "binary_view"} or bool(pa.types.is_fixed_size_binary(kind))


_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (is_text, _texts),
    (_is_bytes, _texts),
    (pa.types.is_integer, _written),
    (pa.types.is_boolean, _written),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (is_count_of_time, _moments),
)
