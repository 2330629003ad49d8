"""The places of private values, and the integer types of their codes.

A place is a declared cell, or one of four marks for a value outside all cells. The policy of an attribute turns places into codes.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Negative, so that a place >= 0 is a cell. They index a table of four from its end.
NULL, BELOW, ABOVE, ALIEN = -1, -2, -3, -4

Places = npt.NDArray[np.signedinteger[Any]]

CompactCodes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Codes of rows that are kept."""

SignedCodes: TypeAlias = npt.NDArray[np.signedinteger[Any]]
"""Codes of rows, some of which may be dropped: their codes are negative."""


def all_of(rows: int, place: int) -> Places:
    """Return the same place for `rows` rows."""
    return np.full(rows, place, dtype=np.int8)


def cut(values: npt.NDArray[Any], bounds: npt.NDArray[Any]) -> Places:
    """Return the places of values in the bins [bounds[i], bounds[i + 1]), by binary search. NaN is a null."""
    places = np.concatenate([[BELOW], np.arange(len(bounds) - 1), [ABOVE]])
    if bounds.dtype.kind == "f":
        # NaN sorts after everything else, infinity included.
        bounds, places = np.append(bounds, np.nan), np.append(places, NULL)
    placed: Places = places[np.searchsorted(bounds, values, side="right")]
    return placed


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


def code_type(size: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type for the codes of an attribute with `size` codes.

    >>> code_type(256), code_type(257)
    (<class 'numpy.uint8'>, <class 'numpy.uint16'>)
    """
    if size <= 1 << 8:
        return np.uint8
    return np.uint16 if size <= 1 << 16 else np.uint32


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


def compact(codes: SignedCodes, *, size: int) -> CompactCodes:
    """Convert non-negative codes to their unsigned type, without a copy if the width is the same."""
    kind = np.dtype(code_type(size))
    return codes.view(kind) if codes.dtype.itemsize == kind.itemsize else codes.astype(kind)
