"""Decode any bytes as text, and check Arrow arrays before use."""

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from dpcore.tables.sources.layout import is_view, stored_type, stored_values

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def text_of(raw: bytes) -> str:
    r"""Decode bytes as UTF-8, with Latin-1 as the fallback. Latin-1 maps every byte to a character, so no input fails.

    Values of files in an old encoding thus still match their declared categories.

    >>> text_of("Zürich".encode()), text_of(b"Z\xfcrich")
    ('Zürich', 'Zürich')
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def decoder(encoding: str | None) -> Callable[[bytes], str]:
    r"""Return a function that decodes the bytes of one value in the declared encoding, or with `text_of` if there is none.

    No input fails. Bytes that are invalid in the declared encoding become U+FFFD, which matches nothing declared. The function keeps no
    state between values.

    >>> decoder("cp1252")(b"\x80\x81"), decoder(None)(b"\xe2\x82\xac")
    ('€\ufffd', '€')
    """
    if encoding is None:
        return text_of
    return lambda raw: raw.decode(encoding, "replace").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def readable(values: pa.Array) -> pa.Array:
    """Convert an array of bytes or text to valid text, so that no later step fails on the encoding of one value.

    Text is converted too, because Arrow does not validate the text that it reads from Parquet. Rows that share a value, which may be long,
    become a dictionary of the values that occur: written out, they could exceed Arrow's 32-bit offsets.
    """
    if pa.types.is_dictionary(values.type) and len(values.dictionary) <= len(values):
        # to decode all of a short dictionary is faster than to look for the values that occur
        inside, places = stored_values(values.dictionary)
        if places is None:
            return pa.DictionaryArray.from_arrays(values.indices, _decoded(inside))
    stored, rows = stored_values(values)
    text = _decoded(stored)
    return text if rows is None else pa.DictionaryArray.from_arrays(rows, text)


def _decoded(values: pa.Array) -> pa.Array:
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    raw = values.cast(pa.large_binary() if large else pa.binary())
    with suppress(pa.ArrowInvalid):
        return raw.cast(pa.large_string() if large else pa.string())
    encoded = raw.dictionary_encode()
    decoded = [None if value is None else text_of(value) for value in encoded.dictionary.to_pylist()]
    # Latin-1 grows when it is written as UTF-8, maybe beyond 32-bit offsets
    return pa.array(decoded, pa.large_string()).take(encoded.indices)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type holds text, in whatever layout."""
    kind = stored_type(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Tell whether a type holds bytes that are not known to be text."""
    types = pa.types
    sized = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return bool(sized or types.is_binary_view(kind))


def is_count_of_time(kind: pa.DataType) -> bool:
    """Tell whether a type holds dates, timestamps, times or durations: types that store one integer of some unit."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the physical type of a type: a number or bytes, for which every bit pattern is valid.

    >>> plain_type(pa.date64()), plain_type(pa.string()), plain_type(pa.decimal128(5, 2)), plain_type(pa.int8())
    (DataType(int64), DataType(binary), FixedSizeBinaryType(fixed_size_binary[16]), DataType(int8))
    """
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if is_count_of_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return _BYTES.get(str(kind), kind)


def sound(values: pa.Array) -> pa.Array:
    """Check that all offsets and indices of an array are in bounds, and make its text valid.

    The result of the check does not depend on any value. Arrow's full validation also rejects a date with a time, a time past midnight
    and a decimal with too many digits, so one value would reject the whole table. So the array is validated as its physical type.

    Raises:
        pa.ArrowInvalid: If an offset or index is out of bounds. Arrow's other functions would read whatever memory it points to.
    """
    _validate(values)
    kind = stored_type(values.type)
    if is_text(kind):
        return readable(values)
    if is_view(kind):
        stored, rows = stored_values(values)
        return pa.DictionaryArray.from_arrays(rows, stored)
    return values


def _validate(values: pa.Array) -> None:
    if isinstance(values, pa.ExtensionArray):
        _validate(values.storage)
    elif pa.types.is_dictionary(values.type):
        values.indices.validate(full=True)
        _validate(values.dictionary)
    elif pa.types.is_run_end_encoded(values.type):
        kind = pa.run_end_encoded(values.run_ends.type, pa.null())
        children = [values.run_ends, pa.nulls(len(values.values))]
        buffers = pa.Array.from_buffers(kind, len(values), [None], offset=values.offset, children=children)
        buffers.validate(full=True)
        _validate(values.values)
    else:
        values.view(plain_type(values.type)).validate(full=True)


_BYTES = {"string": pa.binary(), "large_string": pa.large_binary(), "string_view": pa.binary_view()}
