"""Values of any type as words: equal values alike, and different ones different, but for a chance of 2^-64 where they are hashed."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from dpcore.tables.sources.text import plain_type


def stored_words(values: pa.Array, *, key: bytes) -> list[npt.NDArray[np.uint64]]:
    """Return two words for each value: of which type it is, if there is one, and what is stored for it, or its hash if that is longer.

    Nothing of what lies under a null has a say, and no value fails. Lists and structures, which no attribute reads, are told from null only.
    """
    if isinstance(values, pa.ExtensionArray):
        return stored_words(values.storage, key=key)
    if pa.types.is_dictionary(values.type):
        return stored_words(values.dictionary_decode(), key=key)
    if pa.types.is_run_end_encoded(values.type):
        return stored_words(compute.run_end_decode(values), key=key)
    known = values.is_valid().to_numpy(zero_copy_only=False).astype(np.uint64)
    kind = known * np.uint64(int.from_bytes(_digest(str(values.type).encode(), key=key)) | 1)
    if pa.types.is_nested(values.type) or pa.types.is_interval(values.type) or pa.types.is_null(values.type):
        return [kind, np.zeros_like(known)]
    stored = values.view(plain_type(values.type))
    if pa.types.is_boolean(stored.type):
        stored = stored.cast(pa.uint8())
    return [kind, (_numbers(stored) if pa.types.is_primitive(stored.type) else _hashes(stored, key=key)) * known]


def _numbers(stored: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the bits of numbers of at most eight bytes."""
    numbers: npt.NDArray[Any] = stored.fill_null(pa.scalar(0, stored.type)).to_numpy(zero_copy_only=False)
    return numbers.view(f"u{numbers.dtype.itemsize}").astype(np.uint64)


def _hashes(stored: pa.Array, *, key: bytes) -> npt.NDArray[np.uint64]:
    """Hash bytes, each distinct value once."""
    distinct = stored.cast(pa.large_binary()).dictionary_encode()
    digests = b"".join(_digest(value, key=key) for value in distinct.dictionary.to_pylist())
    words = np.frombuffer(digests + bytes(8), dtype="<u8").astype(np.uint64, copy=False)
    rows: npt.NDArray[np.intp] = distinct.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    return words[rows]


def _digest(value: bytes, *, key: bytes) -> bytes:
    return hashlib.blake2b(value, key=key, digest_size=8).digest()
