"""Decode any bytes as text, and check Arrow arrays before use."""

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from dpcore.tables.sources.layout import is_view, stored_values


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

    Text is converted too, because Arrow does not validate the text that it reads from Parquet. Views become a dictionary: many views may
    point to one long value, which is then stored once.
    """
    if pa.types.is_dictionary(values.type):
        # only the dictionary is converted; the indices stay as they are
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
    # Latin-1 grows when it is written as UTF-8, maybe beyond 32-bit offsets
    return pa.array(decoded, pa.large_string()).take(encoded.indices)


def _by_dictionary(rows: pa.Array, inside: pa.Array) -> pa.Array:
    """Return a dictionary array of these indices and values. Flatten values that are a dictionary themselves."""
    if pa.types.is_dictionary(inside.type):
        return pa.DictionaryArray.from_arrays(inside.indices.take(rows), inside.dictionary)
    return pa.DictionaryArray.from_arrays(rows, inside)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type holds text, plain or as a dictionary."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


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
