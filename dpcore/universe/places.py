"""The place of a private value: a declared cell, or one of four marks for a value outside all cells."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Negative, so that a place >= 0 is a cell. They index a table of four from its end.
NULL, BELOW, ABOVE, ALIEN = -1, -2, -3, -4

Places = npt.NDArray[np.signedinteger[Any]]


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
