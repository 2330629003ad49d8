"""Map values of any type to words: equal values to equal words, different values to different ones.

Hashed values collide with probability 2^-64.
"""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.tables.sources.ids import hash_distinct
from dpcore.tables.sources.layout import stored_values
from dpcore.tables.sources.text import plain_type

TEXT = "text or bytes"


def stored_words(column: pa.Array, *, key: bytes) -> list[npt.NDArray[np.uint64]]:
    """Return two words for each value: its type, 0 for null, and the stored value, or its hash if it is longer than a word.

    The words depend neither on the bytes under a null nor on the layout of the column, and no value fails. Lists and structs, which no
    attribute reads, are only distinguished from null.
    """
    values, rows = stored_values(column)
    words = _words(values, key=key)
    if rows is None:
        return words
    places = rows.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return [np.append(word, np.uint64(0))[places] for word in words]


def _words(values: pa.Array, *, key: bytes) -> list[npt.NDArray[np.uint64]]:
    valid = values.is_valid().to_numpy(zero_copy_only=False).astype(np.uint64)
    kind = valid * np.uint64(
        int.from_bytes(hashlib.blake2b(_family(values.type).encode(), key=key, digest_size=8).digest()) | 1
    )
    if pa.types.is_nested(values.type) or pa.types.is_interval(values.type) or pa.types.is_null(values.type):
        return [kind, np.zeros_like(valid)]
    stored = values.view(plain_type(values.type))
    if pa.types.is_boolean(stored.type):
        stored = stored.cast(pa.uint8())
    if pa.types.is_primitive(stored.type):
        return [kind, _numbers(stored) * valid]
    distinct = stored.cast(pa.large_binary()).dictionary_encode()
    return [kind, hash_distinct(distinct, key=key, size=8)[:, 0]]


def _family(kind: pa.DataType) -> str:
    """Name a type by its content: text and bytes are one family, whatever their layout."""
    return TEXT if str(plain_type(kind)) in {"binary", "large_binary"} else str(kind)


def _numbers(stored: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the bits of numbers of at most eight bytes."""
    numbers: npt.NDArray[Any] = stored.fill_null(pa.scalar(0, stored.type)).to_numpy(zero_copy_only=False)
    return numbers.view(f"u{numbers.dtype.itemsize}").astype(np.uint64)
