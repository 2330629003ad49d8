"""At most k rows per unit, chosen uniformly: what makes a unit's sensitivity k.

The choice among one unit's rows depends on those rows and on fresh draws for them, never on anybody else's: with one
unit added or removed, all other rows are kept exactly as before, for the same draws. So the bounded tables of two
neighbours differ by at most k rows, of that unit.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.ingest.units import NOBODY, UnitCodes, canonical_ids, unit_codes
from dpcore.mechanisms.entropy import random_words


def bound_rows(ids: pa.Array | pa.ChunkedArray | UnitCodes, *, rows_per_unit: int) -> npt.NDArray[np.int64]:
    """Return the places of the rows to keep, ascending: all of a unit, or a uniform choice of `rows_per_unit` of them.

    Rows with a null id are dropped: there is nobody to protect them under, so each of them could break the bound.

    Args:
        ids: The id column, of any type; or its unit codes, with NOBODY for null.
        rows_per_unit: The k of the declared protection.
    """
    codes = _codes(ids)
    known = np.flatnonzero(codes != NOBODY)
    counts = np.bincount(codes[known])
    crowded = counts[codes[known]] > rows_per_unit
    # only units with more than k rows have a choice to make
    contested = known[crowded]
    chosen = contested[smallest_keys(codes[contested], random_words(len(contested)), rows_per_unit=rows_per_unit)]
    return np.sort(np.concatenate([known[~crowded], chosen]))


def smallest_keys(codes: UnitCodes, keys: npt.NDArray[np.uint64], *, rows_per_unit: int) -> npt.NDArray[np.int64]:
    """Return the places of each unit's rows with its `rows_per_unit` smallest keys.

    Of independent uniform keys every set of k is equally likely to be the smallest. Equal keys, one pair in 2^64, go by
    place.
    """
    order = np.lexsort((keys, codes))
    by_unit = codes[order]
    keep = np.ones(len(order), dtype=bool)
    # a row is among its unit's first k exactly if the row k places before it is another unit's
    keep[rows_per_unit:] = by_unit[rows_per_unit:] != by_unit[:-rows_per_unit]
    return order[keep]


def _codes(ids: pa.Array | pa.ChunkedArray | UnitCodes) -> UnitCodes:
    if isinstance(ids, np.ndarray):
        return ids
    return unit_codes([canonical_ids(piece) for piece in (ids.chunks if isinstance(ids, pa.ChunkedArray) else [ids])])
