"""Where a private value can go: into a declared cell, or one of four ways of not being in one."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Negative, so that a place >= 0 is a cell; in this order, so that a table of four is indexed by them from its end.
NULL, BELOW, ABOVE, ALIEN = -1, -2, -3, -4

Places = npt.NDArray[np.signedinteger[Any]]


def all_of(rows: int, place: int) -> Places:
    """Put so many rows in one place."""
    return np.full(rows, place, dtype=np.int8)


def cut(values: npt.NDArray[Any], bounds: npt.NDArray[Any]) -> Places:
    """Place ordered values in the bins [bounds[i], bounds[i + 1]); NaN is a null."""
    places = np.concatenate([[BELOW], np.arange(len(bounds) - 1), [ABOVE]])
    if bounds.dtype.kind == "f":
        # NaN sorts after everything else, infinity included.
        bounds, places = np.append(bounds, np.nan), np.append(places, NULL)
    placed: Places = places[np.searchsorted(bounds, values, side="right")]
    return placed


def spread(encoded: pa.DictionaryArray, places: Places) -> Places:
    """Place the rows of a dictionary-encoded array as its dictionary's values were placed."""
    indices = encoded.indices
    if indices.type != pa.int32():
        indices = indices.cast(pa.int64())
    if indices.null_count:
        # a null's place comes last, where no index of a value leads
        indices = indices.fill_null(len(places))
    by_index = np.concatenate([places, np.array([NULL], dtype=np.int8)])
    rows: npt.NDArray[np.integer[Any]] = indices.to_numpy(zero_copy_only=False)
    return by_index.take(rows)
