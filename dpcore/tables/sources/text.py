"""Bytes into text, whatever the bytes are."""

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from dpcore.tables.sources.layout import is_view, stored_values


def text_of(raw: bytes) -> str:
    r"""Read bytes as UTF-8, or else as Latin-1, which gives every byte a meaning: no input fails.

    Files in an old encoding thus still find their declared categories, value by value.

    >>> text_of("Zürich".encode()), text_of(b"Z\xfcrich")
    ('Zürich', 'Zürich')
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def decoder(encoding: str | None) -> Callable[[bytes], str]:
    r"""Return what reads the bytes of one value: `text_of`, or the declared encoding. No input fails.

    What a declared encoding gives no meaning becomes U+FFFD, which equals nothing declared. Nothing is remembered from one value to the
    next.

    >>> decoder("cp1252")(b"\x80\x81"), decoder(None)(b"\xe2\x82\xac")
    ('€\ufffd', '€')
    """
    if encoding is None:
        return text_of
    return lambda raw: raw.decode(encoding, "replace").encode("utf-8", "replace").decode()


def readable(values: pa.Array) -> pa.Array:
    """Turn an array of bytes or text into valid text, so that no later step can trip over one value's encoding.

    Arrow does not check the text that it reads from Parquet, which is why text comes through here as well. Views become a dictionary: many of
    them may lead to one long value, which is not written out for each.
    """
    if pa.types.is_dictionary(values.type):
        # the dictionary alone is checked; indices are kept as they are
        return _by_dictionary(values.indices, readable(values.dictionary))
    if is_view(values.type):
        raw, rows = stored_values(values)
        return pa.DictionaryArray.from_arrays(rows, readable(raw))
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    raw = values.cast(pa.large_binary() if large else pa.binary())
    with suppress(pa.ArrowInvalid):
        return raw.cast(pa.large_string() if large else pa.string())
    encoded = raw.dictionary_encode()
    decoded = [None if value is None else text_of(value) for value in encoded.dictionary.to_pylist()]
    # what was Latin-1 takes more bytes as text, maybe too many for offsets of 32 bits
    return pa.array(decoded, pa.large_string()).take(encoded.indices)


def _by_dictionary(rows: pa.Array, inside: pa.Array) -> pa.Array:
    """Return the values at these places; of values that come by dictionary themselves, in one layer."""
    if pa.types.is_dictionary(inside.type):
        return pa.DictionaryArray.from_arrays(inside.indices.take(rows), inside.dictionary)
    return pa.DictionaryArray.from_arrays(rows, inside)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type holds text, plain or by dictionary."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_count_of_time(kind: pa.DataType) -> bool:
    """Tell whether a type holds days, moments, times of day or durations: each one whole number of some unit."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of what is stored for a value, of which every pattern of bits is one: numbers and bytes.

    >>> plain_type(pa.date64()), plain_type(pa.string()), plain_type(pa.decimal128(5, 2)), plain_type(pa.int8())
    (DataType(int64), DataType(binary), FixedSizeBinaryType(fixed_size_binary[16]), DataType(int8))
    """
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if is_count_of_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return _BYTES.get(str(kind), kind)


def sound(values: pa.Array) -> pa.Array:
    """Check that an array lies where it says, all of it, and make its text valid.

    No value has a say in that. Arrow's own check also refuses a day with a time, a time of day past midnight and a number with too many
    digits, and with it the table of all others; so it is shown numbers and bytes in their place.

    Raises:
        pa.ArrowInvalid: If it does not; Arrow's other functions would read whatever lies where it points.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        stored = sound(values.storage)
        return pa.ExtensionArray.from_storage(kind, stored) if stored.type == kind.storage_type else stored
    if pa.types.is_dictionary(kind):
        values.indices.validate(full=True)
        return _by_dictionary(values.indices, sound(values.dictionary))
    if pa.types.is_run_end_encoded(kind):
        return _sound_runs(values)
    plain = values.view(plain_type(kind))
    plain.validate(full=True)
    if is_view(kind) and not is_text(kind):
        raw, rows = stored_values(plain)
        return pa.DictionaryArray.from_arrays(rows, raw)
    return readable(plain) if is_text(kind) else values


def _sound_runs(values: pa.Array) -> pa.Array:
    inside = sound(values.values)

    def with_values(those: pa.Array) -> pa.Array:
        kind = pa.run_end_encoded(values.run_ends.type, those.type)
        children = [values.run_ends, those]
        return pa.Array.from_buffers(kind, len(values), [None], offset=values.offset, children=children)

    with_values(pa.nulls(len(inside))).validate(full=True)
    return with_values(inside)


_BYTES = {"string": pa.binary(), "large_string": pa.large_binary(), "string_view": pa.binary_view()}
