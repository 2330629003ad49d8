"""Who a row belongs to: ids of any type, from any number of batches and files, as whole numbers.

The bound on one person's rows holds only if one person is one id. Files written at different times often type ids
differently: 7 and 7.0 (a column with a gap in it) and the text "7" are therefore the same id. Beyond that, ids are
compared as they stand.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from dpcore.ingest.text import is_text, readable

UnitCodes: TypeAlias = npt.NDArray[np.int64]

NOBODY = -1
WHOLE_NUMBER = r"^(-?[0-9]+)\.0*$"
LARGEST_WHOLE_FLOAT = 2.0**63


def unit_codes(ids: Iterable[pa.DictionaryArray]) -> UnitCodes:
    """Number the units of a column that comes in canonical pieces: equal ids get equal numbers, null gets NOBODY."""
    pieces = pa.chunked_array(ids, pa.dictionary(pa.int32(), pa.large_string())).unify_dictionaries()
    codes = [piece.indices.fill_null(NOBODY).to_numpy() for piece in pieces.chunks]
    return np.concatenate([np.empty(0, np.int64), *codes], dtype=np.int64)


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
