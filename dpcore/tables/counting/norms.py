"""Count as many rows of each unit in a marginal as keep the norm of its counts within a limit.

Noise that hides a vector of counts must be as wide as the vector is long: k rows in one cell have the norm k, but k^2 rows in different cells
have the norm k, too. So the rows of a unit are taken in random order for as long as the root of the sum of the squares of its counts is at
most k. Which rows count depends on the unit's own rows and draws alone.
"""

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from dpcore.marginals.workload import Axes
from dpcore.tables.counting.marginals import Chunk, Coarse, Counts, axis_codes
from dpcore.universe import CompactCodes


def count_by_norm(
    chunks: Iterable[Chunk], axes: Axes, *, shape: Sequence[int], coarse: Sequence[Coarse], norm: int
) -> Counts:
    """Count the rows over some axes, of each unit as many as keep its counts within a norm.

    Args:
        chunks: Whole units, whose rows follow each other in random order. Each row has its rank among those of its unit, from 0.
        axes: The axes of the marginal.
        shape: The number of cells of each axis, with coarse axes last.
        coarse: The axes that follow the columns.
        norm: The limit.
    """
    total = np.zeros(prod(shape[axis] for axis in axes), dtype=np.int64)
    for codes, ranks in chunks:
        columns = axis_codes(codes, coarse, used=set(axes))
        cells = np.zeros(len(codes[0]), dtype=np.int64)
        for axis in axes:
            cells = cells * shape[axis] + columns[axis]
        total += np.bincount(cells[_within(cells, ranks, norm=norm)], minlength=len(total))
    return total.reshape([shape[axis] for axis in axes])


def _within(cells: npt.NDArray[np.int64], ranks: CompactCodes | None, *, norm: int) -> npt.NDArray[np.bool_]:
    """Return which rows count. A unit's second row in a cell adds 3 to the square of its norm, the third 5, and so on.

    >>> cells, ranks = np.array([4, 4, 5, 4, 4, 4]), np.array([0, 1, 2, 0, 1, 2])
    >>> _within(cells, ranks, norm=2).tolist()
    [True, True, False, True, True, False]
    """
    starts = np.flatnonzero(ranks == 0)
    if not len(starts):
        return np.zeros(len(cells), dtype=np.bool_)
    unit = np.cumsum(np.asarray(ranks) == 0) - 1
    order = np.lexsort((cells, unit))  # stable: rows of one unit in one cell stay in their random order
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (cells[order][1:] != cells[order][:-1]) | (unit[order][1:] != unit[order][:-1])
    firsts = np.flatnonzero(fresh)
    before = np.empty(len(order), dtype=np.int64)  # the unit's earlier rows in the same cell
    before[order] = np.arange(len(order)) - firsts[np.cumsum(fresh) - 1]
    squares = np.cumsum(2 * before + 1)
    squares -= (squares[starts] - 1)[unit]  # the first row of a unit adds 1
    return np.asarray(squares <= norm * norm)
