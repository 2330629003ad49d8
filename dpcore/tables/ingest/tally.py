"""Count the rows of each unit: one record per unit, whose single cell is the bucket of its number of rows.

Each unit adds one record, in one bucket, however many rows it has, and no record depends on another unit. Adding or removing a unit
therefore changes one count by one, and replacing a unit changes at most two.

Between two edges a unit is counted at one of them, at random: at the nearer one more often, so that on average its number of rows is right.
Then the sum of units times edges is on average the number of rows, however few the edges are.
"""

from collections.abc import Sequence

import numpy as np

from dpcore.errors import UsageError
from dpcore.tables.ingest.coded import Coded, Weights, first_rows
from dpcore.tables.ingest.draws import Words
from dpcore.universe import Categorical, CompactCodes, Universe

EDGES = tuple(1 << power for power in range(21))
"""The numbers of rows at which units are counted: 1, 2, 4, ..., 1048576. Units with more are counted together."""


def bucket_names(edges: Sequence[int]) -> tuple[str, ...]:
    """Name the buckets at some edges.

    >>> bucket_names((1, 2, 4))
    ('1', '2', '4', 'more than 4')
    """
    return (*map(str, edges), f"more than {edges[-1]}")


def tally_universe(edges: Sequence[int]) -> Universe:
    """Return the universe of the records: the buckets at some edges."""
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
    if not len(starts):
        return joined
    sums = np.add.reduceat(coded.weights[order], starts).astype(np.uint64)
    draws = None if coded.draws is None else np.minimum.reduceat(coded.draws[order], starts)
    return Coded(joined.codes, weights=sums, ids=joined.ids, draws=draws)


def bucketed(coded: Coded, *, edges: Sequence[int] = EDGES) -> Coded:
    """Return the bucket of each unit's number of rows, and nothing else.

    >>> ids = np.arange(10, dtype=np.uint64).reshape(5, 2)
    >>> sums, draws = np.array([1, 4, 6, 6, 1 << 21], dtype=np.uint64), np.array([0, 0, 0, (1 << 32) - 1, 0], dtype=np.uint64)
    >>> units = Coded([np.zeros(5, dtype=np.uint8)], weights=sums, ids=ids, draws=draws)
    >>> bucketed(units).codes[0].tolist()
    [0, 2, 3, 2, 21]
    """
    if coded.weights is None or coded.draws is None:
        raise UsageError("records without weights have no bucket; join them by unit first")
    return Coded([edges_of(coded.weights, coded.draws, edges=edges)], weights=None, ids=None, draws=None)


def edges_of(rows: Weights, draws: Words, *, edges: Sequence[int]) -> CompactCodes:
    """Return the edge at which each unit is counted; one more than the last for units that have more rows.

    Args:
        rows: The number of rows of each unit.
        draws: The smallest draw of each unit, whose last 32 bits decide.
        edges: The edges, rising from 1.
    """
    ends = np.array(edges, dtype=np.float64)
    above = np.searchsorted(ends, rows, side="left")
    below = np.maximum(above - 1, 0)
    gap = np.take(ends, above, mode="clip") - ends[below]
    part = np.divide(rows - ends[below], gap, out=np.ones(len(rows)), where=gap > 0)  # from 0 at the edge below to 1
    decides = (draws & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2.0**32
    up = (above == len(ends)) | (decides < part)
    return np.where(up, above, below).astype(np.uint8)
