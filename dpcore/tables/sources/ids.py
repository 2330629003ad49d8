"""Who a row belongs to: ids of any type, from any number of batches and files, as keyed hashes.

The bound on one person's rows holds only if one person is one id, and two persons are two. Files written at different times often type
ids differently: 7 and 7.0 (a column with a gap in it), the decimal 7.00 and the text "7" are therefore the same id, and so is a moment in
every unit and time zone. A float that may have been rounded has no identity, and its row belongs to nobody. Kinds of ids that cannot be
compared, such as days and text, may not meet in one source: `family` tells them apart by type alone.

Beyond that, ids are compared as they stand: " 7", "07" and "7" are three, and bytes are text if they are valid UTF-8, else themselves.

An id becomes 128 bits of keyed hash as soon as it is read, and nothing after that sees the id itself. The key is the run's own.
"""

import hashlib
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from dpcore.tables.sources.layout import stored_values
from dpcore.tables.sources.text import is_count_of_time, is_text, plain_type, readable

HashedIds: TypeAlias = npt.NDArray[np.uint64]
"""One row of two words for each row of the table."""

HASH_BYTES = 16
EXACT = {"halffloat": 2**11, "float": 2**24, "double": 2**53}
"""For each type of float, from where on it rounds whole numbers."""
# 7.0, 1e+05, 1.0E7, and no text of which another kind of id may consist, such as 12e5
LIKE_FLOAT = r"^-?[0-9]+\.[0-9]*$|^-?[0-9](\.[0-9]+)?[eE][+-][0-9]+$|^-?[0-9]\.[0-9]+[eE][0-9]+$|^-0$"
DAY = 86_400
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
NANO_DIGITS = 9


def hash_ids(ids: pa.Array, *, key: bytes) -> tuple[HashedIds, npt.NDArray[np.bool_]]:
    """Hash the ids of a batch, each distinct one once, and tell which rows have one; what a row without one gets means nothing."""
    canonical = canonical_ids(ids)
    keyed = hashlib.blake2b(key=key, digest_size=HASH_BYTES)  # copied for each id, which spares a quarter of the time
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
    """Write ids of any type as bytes, equal ones alike, each distinct one once.

    Null are also empty text, floats that are not whole or so large that they may be rounded, and every value of a type that is no id:
    lists, structures, intervals. An id of an extension type is what is stored: of a UUID, its 16 bytes.
    """
    values, rows = stored_values(ids)
    if not _can_be_counted(values.type):
        values = _as_bytes(values)
    distinct = values.dictionary_encode()
    # two values may be written alike (7.0 and 7), hence the second encoding
    written = _as_bytes(distinct.dictionary).dictionary_encode()
    indices = written.indices.take(distinct.indices)
    return pa.DictionaryArray.from_arrays(indices if rows is None else indices.take(rows), written.dictionary)


def can_identify(kind: pa.DataType) -> bool:
    """Tell whether a column of this type can hold ids: not if every value in it would be null here."""
    kind = _stored(kind)
    return not (pa.types.is_nested(kind) or pa.types.is_interval(kind))


def family(kind: pa.DataType) -> str | None:
    """Name the types with whose ids those of a type can be compared; None for the type that holds nothing but nulls.

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
    """Return the type of the values themselves, however they are wrapped."""
    if isinstance(kind, pa.BaseExtensionType):
        return _stored(kind.storage_type)
    wrapped = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return _stored(kind.value_type) if wrapped else kind


def _can_be_counted(kind: pa.DataType) -> bool:
    """Tell whether Arrow can list the distinct values of a type; the others are written as bytes first."""
    return not (pa.types.is_nested(kind) or pa.types.is_decimal(kind))


def _as_bytes(values: pa.Array) -> pa.Array:
    for holds, write in _WRITERS:
        if holds(values.type):
            return write(values)
    return pa.nulls(len(values), pa.large_binary())


def _written(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()).cast(pa.large_string()).cast(pa.large_binary())


def _floats(values: pa.Array) -> pa.Array:
    """Write whole floats as whole numbers, without exponent; null are all that a rounded id may have become."""
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    exact = (np.trunc(numbers) == numbers) & (np.abs(numbers) < EXACT[str(values.type)])  # not of NaN either
    return _written(pa.array(np.where(exact, numbers, 0).astype(np.int64), mask=~exact))


def _decimals(values: pa.Array) -> pa.Array:
    plain = [None if value is None else _shortened(format(value, "f").encode()) for value in values.to_pylist()]
    return pa.array(plain, pa.large_binary())


def _moments(values: pa.Array) -> pa.Array:
    """Write days, moments, times of day and durations as seconds, with what is left of one as a fraction, so that the unit doesn't matter.

    Every count that a file may hold has its text, also where no calendar reaches.
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
    """Make null what is empty, and write what reads as a float as its number."""
    raw = (readable(values) if is_text(values.type) else values).cast(pa.large_binary())
    raw = compute.if_else(compute.equal(raw, b""), pa.scalar(None, pa.large_binary()), raw)
    alike = compute.match_substring_regex(raw, LIKE_FLOAT).fill_null(False)  # noqa: FBT003  a value, not a switch
    if not compute.any(alike).as_py():
        return raw
    numbers = pa.array(map(_number, raw.filter(alike).to_pylist()), pa.large_binary())
    return compute.replace_with_mask(raw, alike, numbers)


def _number(text: bytes) -> bytes | None:
    """Write the number that a text stands for in one way; null if it is a whole float that may have been rounded, as in `_floats`."""
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
    """Leave out the zeros at a fraction's end, its point if nothing is left of it, and the sign of 0."""
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
