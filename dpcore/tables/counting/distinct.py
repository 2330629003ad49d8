"""Deduplicate rows, which makes every later count cheaper if many rows are equal."""

from collections.abc import Sequence

import numpy as np

from dpcore.tables.counting.marginals import Chunk, Counts
from dpcore.universe import CompactCodes, code_type

LARGEST_KEY = np.iinfo(np.int64).max


def distinct_rows(chunks: Sequence[Chunk], *, shape: Sequence[int]) -> tuple[list[CompactCodes], Counts]:
    """Return the distinct rows, column by column, and how often each counts. Either all chunks have weights or none has.

    A row's codes are the digits of one number. Before a digit that could overflow it, the numbers are replaced by their rank among those
    that occur, and a table maps the ranks back.
    """
    keys = np.zeros(sum(len(codes[0]) for codes, _ in chunks), dtype=np.int64)
    bound = 1
    by_rank: dict[int, Counts] = {}
    for axis, size in enumerate(shape):
        if bound * size > LARGEST_KEY:
            by_rank[axis], keys = np.unique(keys, return_inverse=True)
            bound = len(by_rank[axis])
        keys *= size
        keys += np.concatenate([np.empty(0, dtype=code_type(size)), *(codes[axis] for codes, _ in chunks)])
        bound *= size
    keys, counts = _counted(keys, [weights for _, weights in chunks if weights is not None])

    cells: list[CompactCodes] = []
    for axis in reversed(range(len(shape))):
        keys, digits = np.divmod(keys, shape[axis])
        cells.append(digits.astype(code_type(shape[axis])))
        if axis in by_rank:
            keys = by_rank[axis][keys]
    return cells[::-1], counts


def _counted(keys: Counts, weights: Sequence[CompactCodes]) -> tuple[Counts, Counts]:
    """Return the keys that occur, and how often each counts."""
    if not weights:
        distinct, counts = np.unique(keys, return_counts=True)
        return distinct, counts.astype(np.int64)
    distinct, ranks = np.unique(keys, return_inverse=True)
    # NumPy sums in float64, which is exact for integers below 2^53; no table has that many rows
    return distinct, np.bincount(ranks, weights=np.concatenate(weights), minlength=len(distinct)).astype(np.int64)
