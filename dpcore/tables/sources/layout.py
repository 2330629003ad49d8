"""Unwrap Arrow's storage layouts: Arrow's functions do not support all layouts and combinations of them."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from pyarrow import compute

LARGE = {"string": pa.large_string(), "binary": pa.large_binary()}


def stored_values(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Return the stored values of a column, and for each row the index of its value; None if every row has its own.

    The values have a plain type: no extension, dictionary, run-end encoding or views. Rows of a dictionary, run-end encoded or view column
    share values, and only values that occur in a row are returned, each once. The result therefore takes no more memory than the column,
    however long its values are. Views that overlap without being equal are the exception: each is written out in full. A row with a null
    index is null; the values may contain nulls too.

    >>> values, rows = stored_values(pa.array(["x", "y", "x", None]).dictionary_encode())
    >>> values.to_pylist(), rows.to_pylist()
    (['x', 'y'], [0, 1, 0, None])
    """
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return stored_values(column.storage)
    if pa.types.is_dictionary(kind):
        return _shared(column.dictionary, column.indices)
    if pa.types.is_run_end_encoded(kind):
        ends = column.run_ends.to_numpy(zero_copy_only=False)
        places = np.arange(column.offset, column.offset + len(column))
        return _shared(column.values, pa.array(np.searchsorted(ends, places, side="right")))
    if is_view(kind):
        return _shared_views(column)
    return column, None


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values inside extension, dictionary and run-end encoded types."""
    if isinstance(kind, pa.BaseExtensionType):
        return stored_type(kind.storage_type)
    wrapped = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return stored_type(kind.value_type) if wrapped else kind


def is_view(kind: pa.DataType) -> bool:
    """Tell whether a type holds text or bytes as views. Many views may point to one value."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _shared_views(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Copy the bytes that views point to, once for all rows with the same view.

    The values are `large_binary`: together they may exceed 2 GiB, where Arrow's 32-bit offsets would wrap without an error.
    """
    validity, views, *texts = column.buffers()
    # 16 bytes: the length, then a short value inline, or the first bytes and the offset of a long one
    raw = pa.Array.from_buffers(pa.binary(16), len(column), [validity, views], offset=column.offset)
    used = raw.dictionary_encode()
    _, distinct = used.dictionary.buffers()
    values = pa.Array.from_buffers(pa.binary_view(), len(used.dictionary), [None, distinct, *texts])
    return values.cast(pa.large_binary()), used.indices


def _shared(inside: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    values, places = stored_values(inside)
    used = (rows if places is None else places.take(rows)).dictionary_encode()
    return values.take(used.dictionary), used.indices


def taken(column: pa.Array, rows: pa.Array) -> pa.Array:
    """Take rows of a column of any type, each at most once and in order. The type of the result does not depend on which rows are taken."""
    values, places = stored_values(column)
    if places is None:
        return values if len(rows) == len(values) else values.take(rows)
    return pa.DictionaryArray.from_arrays(places.take(rows), values)


def joined(chunks: Sequence[pa.Array]) -> pa.Array:
    """Concatenate one or more columns of the same type, which may be any type. Text may exceed 2 GiB in total."""
    stored = [stored_values(chunk) for chunk in chunks]
    values = pa.concat_arrays([_large(those) for those, _ in stored])
    places = [rows for _, rows in stored if rows is not None]
    if not places:
        return values
    before = accumulate((len(those) for those, _ in stored), initial=0)
    shifted = [compute.add(rows.cast(pa.int64()), start) for rows, start in zip(places, before, strict=False)]
    return pa.DictionaryArray.from_arrays(pa.concat_arrays(shifted), values)


def _large(values: pa.Array) -> pa.Array:
    kind = LARGE.get(str(values.type))
    return values if kind is None else values.cast(kind)
