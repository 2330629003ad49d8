"""Bytes into text, whatever the bytes are."""

from contextlib import suppress

import pyarrow as pa


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


def readable(values: pa.Array) -> pa.Array:
    """Turn an array of bytes or text into valid text, so that no later step can trip over one value's encoding.

    Arrow does not check the text that it reads from Parquet, which is why text comes through here as well.
    """
    if pa.types.is_dictionary(values.type):
        # the dictionary alone is checked; indices are kept as they are
        return pa.DictionaryArray.from_arrays(values.indices, readable(values.dictionary))
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    raw = values.cast(pa.large_binary() if large else pa.binary())
    with suppress(pa.ArrowInvalid):
        return raw.cast(pa.large_string() if large else pa.string())
    encoded = raw.dictionary_encode()
    decoded = [None if value is None else text_of(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(decoded, pa.large_string() if large else pa.string()).take(encoded.indices)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type holds text, plain or by dictionary."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def sound(values: pa.Array) -> pa.Array:
    """Check that an array is what it says, all of its values, and make its text valid.

    Raises:
        pa.ArrowInvalid: If it is not; Arrow's other functions would read whatever lies where it points.
    """
    if pa.types.is_dictionary(values.type):
        values.indices.validate(full=True)
        return pa.DictionaryArray.from_arrays(values.indices, sound(values.dictionary))
    if is_text(values.type):
        as_bytes = values.view(_BYTES[str(values.type)])
        as_bytes.validate(full=True)
        return readable(as_bytes)
    values.validate(full=True)
    return values


_BYTES = {"string": pa.binary(), "large_string": pa.large_binary(), "string_view": pa.binary_view()}
