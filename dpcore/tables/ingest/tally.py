"""Count the rows of each unit: one record per unit, whose single cell is the bucket of its number of rows.

Each unit adds one record, in one bucket, however many rows it has, and no record depends on another unit. Adding or removing a unit
therefore changes one count by one, and replacing a unit changes at most two.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dpcore.errors import UsageError
from dpcore.tables.ingest.coded import Coded, first_rows
from dpcore.universe import Categorical, Universe

EDGES = (1, 2, 4, 8, 16, 32, 64)
"""The most rows of each bucket except the last one, which has no upper end: 1, 2, 3-4, 5-8, ..., 33-64, more."""


def bucket_names(edges: Sequence[int]) -> tuple[str, ...]:
    """Name the buckets between edges.

    >>> bucket_names((1, 2, 4, 6))
    ('1', '2', '3-4', '5-6', 'more than 6')
    """
    bounded = (f"{high}" if high == low + 1 else f"{low + 1}-{high}" for low, high in pairwise((0, *edges)))
    return (*bounded, f"more than {edges[-1]}")


def tally_universe(edges: Sequence[int]) -> Universe:
    """Return the universe of the records: the buckets between edges."""
    return Universe({"rows": Categorical(bucket_names(edges))})


BUCKETS = bucket_names(EDGES)


def started(coded: Coded) -> Coded:
    """Return one record for each row, which weighs one and has no values."""
    if coded.ids is None or coded.draws is None:
        raise UsageError("rows without ids cannot be counted by unit; code them by unit")
    rows = len(coded.ids)
    return Coded(
        [np.zeros(rows, dtype=np.uint8)], weights=np.ones(rows, dtype=np.uint64), ids=coded.ids, draws=coded.draws
    )


def tallied(coded: Coded) -> Coded:
    """Join the records of each unit into one, with the sum of their weights. Joining parts first gives the same result.

    >>> ids = np.array([[7, 1], [8, 1], [7, 1], [7, 2]], dtype=np.uint64)
    >>> rows = Coded([np.zeros(4, dtype=np.uint8)], weights=None, ids=ids, draws=np.zeros(4, dtype=np.uint64))
    >>> tallied(started(rows)).weights.tolist()
    [2, 1, 1]
    """
    if coded.ids is None or coded.weights is None:
        raise UsageError("records without ids and weights cannot be joined by unit; start from coded rows")
    order = np.lexsort((coded.ids[:, 1], coded.ids[:, 0]))
    starts = np.flatnonzero(first_rows(coded.ids[order]))
    joined = coded.take(order[starts])
    sums = np.add.reduceat(coded.weights[order], starts) if len(starts) else coded.weights
    return Coded(joined.codes, weights=sums.astype(np.uint64), ids=joined.ids, draws=joined.draws)


def bucketed(coded: Coded, *, edges: Sequence[int] = EDGES) -> Coded:
    """Return the bucket of each unit's number of rows, and nothing else.

    >>> ids = np.arange(10, dtype=np.uint64).reshape(5, 2)
    >>> sums = np.array([1, 3, 4, 64, 1000], dtype=np.uint64)
    >>> units = Coded([np.zeros(5, dtype=np.uint8)], weights=sums, ids=ids, draws=np.zeros(5, dtype=np.uint64))
    >>> bucketed(units).codes[0].tolist()
    [0, 2, 2, 6, 7]
    """
    if coded.weights is None:
        raise UsageError("records without weights have no bucket; join them by unit first")
    buckets = np.searchsorted(np.array(edges, dtype=np.uint64), coded.weights, side="left")
    return Coded([buckets.astype(np.uint8)], weights=None, ids=None, draws=None)
