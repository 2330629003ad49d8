"""At most k rows per unit, chosen uniformly: what makes a unit's sensitivity k.

The choice among one unit's rows depends on those rows and on the draws for them, never on anybody else's: with one unit
added or removed, all other rows are kept exactly as before, for the same draws. So the bounded tables of two neighbours
differ by at most k rows, of that unit.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.tables.ingest.coded import Coded, Column
from dpcore.tables.ingest.draws import Words
from dpcore.tables.sources.ids import HashedIds

Places: TypeAlias = npt.NDArray[np.intp]


def bound(coded: Coded, *, rows_per_unit: int) -> Coded:
    """Keep each unit's `rows_per_unit` rows with the smallest draws, or all it has.

    Draws are in one order over all rows of a unit. So a unit's rows may be bounded part by part and then once more together, with the
    same result as if all had been there at once.
    """
    if coded.ids is None or coded.draws is None:
        raise UsageError("rows without ids and draws can't be bounded; code them by unit")
    ties = (*coded.codes, *(() if coded.weights is None else (coded.weights,)))
    return coded.take(smallest_draws(coded.ids, coded.draws, rows_per_unit=rows_per_unit, ties=ties))


def smallest_draws(ids: HashedIds, draws: Words, *, rows_per_unit: int, ties: Sequence[Column]) -> Places:
    """Return the places, ascending, of each unit's rows with its `rows_per_unit` smallest draws.

    Of independent uniform draws every set of k is equally likely to be the smallest. Equal draws of one unit, one pair in 2^64, go by
    what is in the rows, so that the order in which they come does not matter.

    Args:
        ids: Two words for each row; equal for rows of one unit.
        draws: One word for each row.
        rows_per_unit: The k of the declared protection.
        ties: The rest of the rows, column by column.
    """
    order = np.argsort(ids[:, 0])
    crowded = _group_sizes(ids[order, 0]) > rows_per_unit
    # Only units with more than k rows have a choice to make. One word tells who that can be: it never has fewer rows than its units.
    contested = order[crowded]
    keep = np.ones(len(order), dtype=np.bool_)
    keep[contested] = False
    ranks = _quick_ranks(ids[contested], draws[contested])
    if ranks is None:
        ranks = np.lexsort([key[contested] for key in (*ties, draws, ids[:, 1], ids[:, 0])])
    ranked = contested[ranks]
    first = np.ones(len(ranked), dtype=np.bool_)
    # a row is among its unit's first k exactly if the row k places before it is another unit's
    first[rows_per_unit:] = (ids[ranked[rows_per_unit:]] != ids[ranked[:-rows_per_unit]]).any(axis=1)
    keep[ranked[first]] = True
    return np.flatnonzero(keep)


def _group_sizes(ascending: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return for each value of a sorted array how often it occurs."""
    starts = np.flatnonzero(np.concatenate(([True], ascending[1:] != ascending[:-1])))[: len(ascending)]
    sizes = np.diff(np.append(starts, len(ascending)))
    return np.repeat(sizes, sizes)


def _quick_ranks(ids: HashedIds, draws: Words) -> Places | None:
    """Order rows by unit and draw, by one sort of one word: the number of the unit, then as much of the draw as there is room for.

    Rows come in the order of their first word. None if that does not settle it: for two units with the same first word, or two draws of
    a unit that begin alike.
    """
    another = ids[1:, 0] != ids[:-1, 0]
    number = np.concatenate(([0], np.cumsum(another)))[: len(draws)].astype(np.uint64)
    bits = max(1, int(number.max(initial=0)).bit_length())
    keys = (number << np.uint64(64 - bits)) | (draws >> np.uint64(bits))
    order = np.argsort(keys)
    shared = ~another & (ids[1:, 1] != ids[:-1, 1])
    alike = keys[order[1:]] == keys[order[:-1]]
    return None if shared.any() or alike.any() else order
