"""Make the kept rows of each unit agree in the columns that are declared to be constant for a person.

Among the kept rows of a unit, the row with the smallest draw decides: its values replace those of the others. The result for one unit
depends on that unit's rows and draws alone, and no row is added or removed. Two neighbours therefore still differ by the rows of one unit.
"""

from collections.abc import Sequence

import numpy as np

from dpcore.errors import UsageError
from dpcore.tables.ingest.coded import Coded, first_rows


def agreed(coded: Coded, *, axes: Sequence[int]) -> Coded:
    """Return the rows with each unit's values in the columns at `axes` taken from its row with the smallest draw.

    Equal draws within a unit, which a pair has with probability 2^-64, are ordered by these values, so the order of the input does not matter.

    >>> ids = np.array([[7, 1], [8, 1], [7, 1]], dtype=np.uint64)
    >>> codes = [np.array([0, 1, 2], dtype=np.uint8), np.array([3, 4, 5], dtype=np.uint8)]
    >>> rows = Coded(codes, weights=None, ids=ids, draws=np.array([9, 5, 2], dtype=np.uint64))
    >>> [codes.tolist() for codes in agreed(rows, axes=[0]).codes]
    [[2, 1, 2], [3, 4, 5]]
    """
    if not axes:
        return coded
    if coded.ids is None or coded.draws is None:
        raise UsageError("rows without ids and draws cannot be made to agree; code them by unit")
    codes = list(coded.codes)
    order = np.lexsort((*(codes[axis] for axis in axes), coded.draws, coded.ids[:, 1], coded.ids[:, 0]))
    first = first_rows(coded.ids[order])
    deciding = np.empty_like(order)
    deciding[order] = order[np.flatnonzero(first)[np.cumsum(first) - 1]]  # the row that decides for each row
    for axis in axes:
        codes[axis] = codes[axis][deciding]
    return Coded(codes, weights=coded.weights, ids=coded.ids, draws=coded.draws)
