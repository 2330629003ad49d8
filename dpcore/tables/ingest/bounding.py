"""Keep at most k rows per unit, chosen uniformly. This makes a unit's sensitivity k.

The choice among one unit's rows depends only on those rows and their draws. If one unit is added or removed, the same rows of all other
units are kept, for the same draws. The bounded tables of two neighbours therefore differ by at most k rows, all of that unit.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.tables.ingest.coded import Coded, Column, first_rows
from dpcore.tables.ingest.draws import Words
from dpcore.tables.ingest.tally import EDGES, edges_of
from dpcore.tables.sources.ids import HashedIds

Places: TypeAlias = npt.NDArray[np.intp]


def bound(coded: Coded, *, rows_per_unit: int) -> Coded:
    """Keep the `rows_per_unit` rows of each unit with the smallest draws, or all its rows if there are fewer.

    Draws order all rows of a unit. Bounding parts of the rows first and then the joined result gives the same rows as bounding all of
    them at once. If rows say how many rows they stand for, the first kept row of a unit also stands for those that are left out.

    >>> ids = np.array([[7, 1], [8, 1], [7, 1], [7, 1]], dtype=np.uint64)
    >>> codes, draws = [np.arange(4, dtype=np.uint8)], np.array([4, 1, 3, 2], dtype=np.uint64)
    >>> rows = Coded(codes, weights=None, ids=ids, draws=draws, seen=np.ones(4, dtype=np.uint64))
    >>> kept = bound(rows, rows_per_unit=2)
    >>> kept.codes[0].tolist(), kept.seen.tolist()
    ([1, 2, 3], [1, 2, 1])
    """
    if coded.ids is None or coded.draws is None:
        raise UsageError("rows without ids and draws cannot be bounded; code them by unit")
    ties = (*coded.codes, *(() if coded.weights is None else (coded.weights,)))
    places = smallest_draws(coded.ids, coded.draws, rows_per_unit=rows_per_unit, ties=ties)
    kept = coded.take(places)
    if coded.seen is not None:
        kept.seen = _seen(coded.ids, coded.seen, kept=places)
    return kept


def _seen(ids: HashedIds, seen: Column, *, kept: Places) -> Column:
    """Return how many rows each kept row stands for."""
    order = np.lexsort((ids[:, 1], ids[:, 0]))
    unit = np.empty(len(order), dtype=np.intp)
    unit[order] = np.cumsum(first_rows(ids[order])) - 1
    left_out = seen.copy()
    left_out[kept] = 0
    lost = np.zeros(int(unit.max(initial=-1)) + 1, dtype=np.uint64)
    np.add.at(lost, unit, left_out)
    owners, firsts = np.unique(unit[kept], return_index=True)
    stands_for = seen[kept]
    stands_for[firsts] += lost[owners]
    return stands_for


def ranked(coded: Coded, *, ends: Sequence[int]) -> Coded:
    """Return whole units, each with its rows in the order of their draws: the class of its size as the last code, and the rank of each row as weight.

    Args:
        coded: All kept rows of the units, with the numbers of rows that they stand for.
        ends: The most rows of a unit in each class but the last one.
    """
    if coded.ids is None or coded.draws is None or coded.seen is None:
        raise UsageError("rows without ids and draws cannot be ranked; code them by unit")
    order = np.lexsort((*coded.codes, coded.draws, coded.ids[:, 1], coded.ids[:, 0]))
    first = first_rows(coded.ids[order])
    starts = np.flatnonzero(first)
    unit = np.cumsum(first) - 1
    ranks = (np.arange(len(order)) - starts[unit]).astype(np.uint32)
    totals = np.add.reduceat(coded.seen[order].astype(np.uint64), starts) if len(starts) else coded.seen
    draws = coded.draws[order][starts]  # the smallest of each unit
    at = edges_of(totals, draws, edges=EDGES)
    classes = np.searchsorted(np.array(ends), np.array([*EDGES, EDGES[-1] + 1])[at], side="left").astype(np.uint8)
    return Coded([*(code[order] for code in coded.codes), classes[unit]], weights=ranks, ids=None, draws=None)


def smallest_draws(ids: HashedIds, draws: Words, *, rows_per_unit: int, ties: Sequence[Column]) -> Places:
    """Return the positions, ascending, of the rows with the `rows_per_unit` smallest draws of each unit.

    With independent uniform draws, every set of k rows is equally likely to have the smallest ones. Equal draws within a unit, which a
    pair has with probability 2^-64, are ordered by the content of the rows, so the order of the input does not matter.

    Args:
        ids: Two words for each row; equal for rows of one unit.
        draws: One word for each row.
        rows_per_unit: The k of the declared protection.
        ties: The other columns of the rows, which break ties.
    """
    order = np.argsort(ids[:, 0])
    crowded = _group_sizes(ids[order, 0]) > rows_per_unit
    # Only units with more than k rows need a choice. The first word of the id finds them all: units may share a first word, but its
    # group is never smaller than any of its units.
    contested = order[crowded]
    keep = np.ones(len(order), dtype=np.bool_)
    keep[contested] = False
    ranks = _quick_ranks(ids[contested], draws[contested])
    if ranks is None:
        ranks = np.lexsort([key[contested] for key in (*ties, draws, ids[:, 1], ids[:, 0])])
    ranked = contested[ranks]
    first = np.ones(len(ranked), dtype=np.bool_)
    # a row is among the first k of its unit exactly if the row k positions before it belongs to another unit
    first[rows_per_unit:] = (ids[ranked[rows_per_unit:]] != ids[ranked[:-rows_per_unit]]).any(axis=1)
    keep[ranked[first]] = True
    return np.flatnonzero(keep)


def _group_sizes(ascending: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return for each element of a sorted array how often its value occurs."""
    starts = np.flatnonzero(np.concatenate(([True], ascending[1:] != ascending[:-1])))[: len(ascending)]
    sizes = np.diff(np.append(starts, len(ascending)))
    return np.repeat(sizes, sizes)


def _quick_ranks(ids: HashedIds, draws: Words) -> Places | None:
    """Order rows by unit and draw with a single sort of one word: the unit's number, then as many bits of the draw as fit.

    The rows must be sorted by the first word of their id. Return None if this key is ambiguous: if two units share a first word, or if
    two draws of a unit share their leading bits.
    """
    another = ids[1:, 0] != ids[:-1, 0]
    number = np.concatenate(([0], np.cumsum(another)))[: len(draws)].astype(np.uint64)
    bits = max(1, int(number.max(initial=0)).bit_length())
    keys = (number << np.uint64(64 - bits)) | (draws >> np.uint64(bits))
    order = np.argsort(keys)
    shared = ~another & (ids[1:, 1] != ids[:-1, 1])
    alike = keys[order[1:]] == keys[order[:-1]]
    return None if shared.any() or alike.any() else order
