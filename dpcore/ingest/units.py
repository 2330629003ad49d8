"""Who a row belongs to: ids of any type, from any number of batches and files, as keyed hashes.

The bound on one person's rows holds only if one person is one id. Files written at different times often type ids
differently: 7 and 7.0 (a column with a gap in it) and the text "7" are therefore the same id. Beyond that, ids are
compared as they stand.

An id becomes 128 bits of keyed hash as soon as it is read, and nothing after that sees the id itself. The key lives as long as the run.
"""

import hashlib
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from dpcore.ingest.text import is_text, readable

Units: TypeAlias = npt.NDArray[np.uint64]
"""One row of two words for each row of the table."""

HASH_BYTES = 16
WHOLE_NUMBER = r"^(-?[0-9]+)\.0*$"
LARGEST_WHOLE_FLOAT = 2.0**63


def hash_ids(ids: pa.Array, *, key: bytes) -> tuple[Units, npt.NDArray[np.bool_]]:
    """Hash the ids of a batch, each distinct one once, and tell which rows have one; what a row without one gets means nothing."""
    canonical = canonical_ids(ids)
    keyed = hashlib.blake2b(key=key, digest_size=HASH_BYTES)  # copied for each id, which spares a quarter of the time
    digests = [_digest(keyed, text) for text in canonical.dictionary.cast(pa.large_binary()).to_pylist()]
    hashes = np.frombuffer(b"".join(digests) + bytes(HASH_BYTES), dtype="<u8").astype(np.uint64, copy=False)
    rows = canonical.indices.fill_null(len(digests)).to_numpy(zero_copy_only=False)
    known: npt.NDArray[np.bool_] = rows < len(digests)
    return hashes.reshape(-1, 2)[rows], known


def _digest(keyed: hashlib.blake2b, text: bytes) -> bytes:
    one = keyed.copy()
    one.update(text)
    return one.digest()


def canonical_ids(ids: pa.Array) -> pa.DictionaryArray:
    """Write ids of any type as text, each distinct one once.

    Null are also empty text, NaN, and every value of a type that is no id: lists, structures, intervals.
    """
    if isinstance(ids, pa.ExtensionArray):
        return canonical_ids(ids.storage)
    if pa.types.is_dictionary(ids.type):
        return canonical_ids(ids.dictionary_decode())
    if pa.types.is_run_end_encoded(ids.type):
        return canonical_ids(compute.run_end_decode(ids))
    if not _can_be_counted(ids.type):
        ids = _as_text(ids)
    distinct = ids.dictionary_encode()
    # two values may have the same text (7.0 and 7), hence the second encoding
    texts = _as_text(distinct.dictionary).dictionary_encode()
    return pa.DictionaryArray.from_arrays(texts.indices.take(distinct.indices), texts.dictionary)


def can_identify(kind: pa.DataType) -> bool:
    """Tell whether a column of this type can hold ids: not if every value in it would be null here."""
    return not (pa.types.is_nested(kind) or pa.types.is_interval(kind))


def _can_be_counted(kind: pa.DataType) -> bool:
    """Tell whether Arrow can list the distinct values of a type; the others are written as text first."""
    return not (pa.types.is_nested(kind) or pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind))


def _as_text(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.string()).cast(pa.large_string())
    if is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or _is_odd_binary(kind):
        texts = readable(values).cast(pa.large_string())
    elif pa.types.is_floating(kind):
        texts = _floats_as_text(values)
    else:
        texts = pa.nulls(len(values), pa.large_string())
        with suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):
            # fails by type only: for types without a text form, and for time zones that nobody knows
            texts = values.cast(pa.string()).cast(pa.large_string())
    texts = compute.replace_substring_regex(texts, pattern=WHOLE_NUMBER, replacement=r"\1")
    return compute.if_else(compute.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)


def _is_odd_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind))


def _floats_as_text(values: pa.Array) -> pa.Array:
    """Write whole floats as whole numbers, without exponent, and NaN as null."""
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    whole = (np.trunc(numbers) == numbers) & (np.abs(numbers) < LARGEST_WHOLE_FLOAT)
    integers = np.where(whole, numbers, 0).astype(np.int64)
    as_integers, as_floats = pa.array(integers).cast(pa.large_string()), pa.array(numbers).cast(pa.large_string())
    texts = compute.if_else(pa.array(whole), as_integers, as_floats)
    return compute.if_else(pa.array(np.isnan(numbers)), pa.scalar(None, pa.large_string()), texts)
