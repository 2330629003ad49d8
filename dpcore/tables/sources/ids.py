"""Hash the ids that say whose row it is, of any type and from any number of batches and files.

The bound on one person's rows holds only if each person has exactly one id and no two persons share one. How an id is read depends on the
types of the source's parts, which are public, and never on other ids:

- Text is compared character by character: "17.1" and "17.10" are two persons, and so are " 7", "07" and "7". Nothing is normalized. Text with
  U+FFFD is null: bytes that could not be decoded were replaced there, and two ids may have differed in them. Bytes of a column of text are
  UTF-8, or else Latin-1; of a column of bytes they are text if they are valid UTF-8, else raw bytes.
- A number is an id if it is whole and was not rounded, whatever type holds it: the integer 7, the float 7.0 (an integer column with nulls)
  and the decimal 7.00 are one id, and so is the text "7". Every other number is null: its row belongs to nobody.
- If some parts of a source hold numbers and others text, the ids are numbers. Only then `numbers_in_text` reads text that is a whole number
  in the notation of floats, such as "7.0", as that number. Other text stays as it is.
- A moment is one id in any unit and time zone.

Types that cannot be compared, such as dates and text, may not occur in one source; `family` tells them apart.

An id becomes a 128-bit keyed hash as soon as it is read, and no later step sees the id itself. Every run has its own key.
"""

import hashlib
from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from dpcore.tables.sources.layout import stored_type, stored_values
from dpcore.tables.sources.text import PER_SECOND, is_bytes, is_count_of_time, is_text, plain_type, readable
from dpcore.universe.attribute import DAY

HashedIds: TypeAlias = npt.NDArray[np.uint64]
"""Two 64-bit words for each row of the table."""

EXACT = {"halffloat": 2**11, "float": 2**24, "double": 2**53}
"""For each float type, the smallest integer from which on integers may be rounded."""
# 7.0, 1e+05 and 1.0E7, but not text that may be another kind of id, such as 12e5
LIKE_FLOAT = r"^-?[0-9]+\.[0-9]*$|^-?[0-9](\.[0-9]+)?[eE][+-][0-9]{1,3}$|^-?[0-9]\.[0-9]+[eE][0-9]{1,3}$|^-0$"
UNDECODED = "\N{REPLACEMENT CHARACTER}"


def hash_ids(ids: pa.Array, *, key: bytes) -> tuple[HashedIds, npt.NDArray[np.bool_]]:
    """Return the hashed ids of a batch, and which rows have an id. The hash of a row without an id has no meaning."""
    canonical = canonical_ids(ids)
    hashes = hash_distinct(canonical, key=key, size=16)
    return hashes, canonical.is_valid().to_numpy(zero_copy_only=False)


def hash_distinct(encoded: pa.DictionaryArray, *, key: bytes, size: int) -> npt.NDArray[np.uint64]:
    """Return the keyed hash of each value as 64-bit words, zero for a null. Each distinct value is hashed once."""
    keyed = hashlib.blake2b(key=key, digest_size=size)  # copying it for each value saves a quarter of the time

    def digest(value: bytes) -> bytes:
        state = keyed.copy()
        state.update(value)
        return state.digest()

    digests = [digest(value) for value in encoded.dictionary.to_pylist()]
    words = np.frombuffer(b"".join(digests) + bytes(size), dtype="<u8").astype(np.uint64, copy=False)
    rows = encoded.indices.fill_null(len(digests)).to_numpy(zero_copy_only=False)
    hashes: npt.NDArray[np.uint64] = words.reshape(-1, size // 8)[rows]
    return hashes


def canonical_ids(ids: pa.Array) -> pa.DictionaryArray:
    """Write ids of any type as bytes, so that equal ids have equal bytes. The dictionary holds each distinct id once.

    These become null: empty text, text that could not be decoded, numbers that are not whole or may have been rounded, and all values of
    types that cannot be ids (lists, structs, intervals). For an extension type the stored value is the id: for a UUID, its 16 bytes.
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
    kind = stored_type(kind)
    return not (pa.types.is_nested(kind) or pa.types.is_interval(kind))


def family(kind: pa.DataType) -> str | None:
    """Name the family of a type: ids can be compared only within a family. Return None for the null type.

    >>> family(pa.int64()) == family(pa.dictionary(pa.int8(), pa.string())), family(pa.date32()) == family(pa.string())
    (True, False)
    """
    if isinstance(kind, pa.UuidType):
        return "UUID"
    kind = stored_type(kind)
    if pa.types.is_null(kind):
        return None
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "moment in a time zone"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "day or moment"
    named = {"time of day": pa.types.is_time, "duration": pa.types.is_duration, "truth value": pa.types.is_boolean}
    return next((name for name, holds in named.items() if holds(kind)), "number or text")


def is_number(kind: pa.DataType) -> bool:
    """Tell whether ids of this type are numbers."""
    kind = stored_type(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


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
    return pa.array([None if value is None else whole(value) for value in values.to_pylist()]).cast(pa.large_binary())


def whole(number: Decimal) -> str | None:
    """Write a decimal as an integer. A fraction is no id: the members 1 and 10 of a household would both be 17.1."""
    return str(int(number)) if number == number.to_integral_value() else None


def _moments(values: pa.Array) -> pa.Array:
    """Write dates, timestamps, times and durations as seconds with a fraction, so that the unit does not matter.

    This works for every stored integer, also for one outside the range of the calendar.
    """
    kind, valid = values.type, values.is_valid()
    counts = values.view(plain_type(kind)).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_date(kind):
        days = counts if pa.types.is_date32(kind) else counts // (DAY * 1000)
        seconds, rest = days * DAY, np.zeros_like(days)
    else:
        seconds, rest = np.divmod(counts, PER_SECOND[kind.unit])
        rest *= PER_SECOND["ns"] // PER_SECOND[kind.unit]
    fraction = compute.utf8_lpad(pa.array(rest).cast(pa.string()), 9, padding="0")  # nanoseconds
    texts = compute.binary_join_element_wise(pa.array(seconds).cast(pa.string()), fraction, ".")
    return compute.if_else(valid, texts, pa.scalar(None, pa.string())).cast(pa.large_string()).cast(pa.large_binary())


def _texts(values: pa.Array) -> pa.Array:
    raw = (readable(values) if is_text(values.type) else values).cast(pa.large_binary())
    nobody = compute.equal(raw, b"")
    if is_text(values.type):
        nobody = compute.or_(nobody, compute.match_substring(raw, UNDECODED))
    return compute.if_else(nobody, pa.scalar(None, pa.large_binary()), raw)


def numbers_in_text(ids: pa.Array) -> pa.Array:
    """Read text that is a whole number in the notation of floats as that number. Text of a number that may have been rounded becomes null.

    Only for a source in which other parts hold numbers. There the text comes from a column of numbers too, and a person that both kinds of
    parts hold must not have two ids. Ids of other types are returned as they are.

    >>> numbers_in_text(pa.array(["7.0", "1e+05", "17.1", "17.10", "07", "1e+16"])).to_pylist()
    [b'7', b'100000', b'17.1', b'17.10', b'07', None]
    """
    if not (is_text(kind := stored_type(ids.type)) or is_bytes(kind)):
        return ids
    encoded = canonical_ids(ids)
    texts = encoded.dictionary
    alike = compute.match_substring_regex(texts, LIKE_FLOAT).to_pylist()
    read = [_whole_in(text.decode()) if like else text for text, like in zip(texts.to_pylist(), alike, strict=True)]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(read, pa.large_binary()))


def _whole_in(text: str) -> str | None:
    number = Decimal(text)
    if number != number.to_integral_value():
        return text
    return whole(number) if number.copy_abs() < EXACT["double"] else None


_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (is_text, _texts),
    (is_bytes, _texts),
    (pa.types.is_integer, _written),
    (pa.types.is_boolean, _written),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (is_count_of_time, _moments),
)
