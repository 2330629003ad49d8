"""The places of private values: a declared cell, or one of four marks for a value outside all cells.

The policy of an attribute turns places into codes.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Negative, so that a place >= 0 is a cell. They index the policy of an attribute from its end.
NULL, BELOW, ABOVE, ALIEN = -1, -2, -3, -4

Places = npt.NDArray[np.signedinteger[Any]]

SignedCodes: TypeAlias = npt.NDArray[np.signedinteger[Any]]
"""Codes of rows, some of which may be dropped: their codes are negative."""


def all_of(rows: int, place: int) -> Places:
    """Return the same place for `rows` rows."""
    return np.full(rows, place, dtype=np.int8)


def outside_or(places: Places, states: Places) -> Places:
    """Return places, or the marks of the values that are NULL or ALIEN."""
    return places if states.min(initial=0) >= 0 else np.where(states < 0, states, places)


def spread(encoded: pa.DictionaryArray, places: Places) -> Places:
    """Return the places of the rows of a dictionary-encoded array, given the places of its dictionary's values."""
    indices = encoded.indices
    if indices.type != pa.int32():
        indices = indices.cast(pa.int64())
    if indices.null_count:
        # Nulls point to the last entry, which no value's index reaches.
        indices = indices.fill_null(len(places))
    by_index = np.concatenate([places, np.array([NULL], dtype=np.int8)])
    rows: npt.NDArray[np.integer[Any]] = indices.to_numpy(zero_copy_only=False)
    return by_index.take(rows)


def signed_type(size: int) -> type[np.signedinteger[Any]]:
    """Return the smallest signed type for codes below `size` and for the negative places.

    >>> signed_type(128), signed_type(129)
    (<class 'numpy.int8'>, <class 'numpy.int16'>)
    """
    if size <= 1 << 7:
        return np.int8
    if size <= 1 << 15:
        return np.int16
    return np.int32 if size <= 1 << 31 else np.int64
