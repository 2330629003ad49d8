"""Exchange values between drawn rows, so that the marginals of the rows come closer to those of their model.

Whole rows can have about the expected counts in the cells that they are drawn from, but not in all marginals at once. How columns that
share no clique are combined is left to chance, and that adds noise to marginals. If two rows exchange their values of a column, no other
column changes. For each column, a model pairs rows for which that hardly changes how likely they are. A pair exchanges its values if the sum
of the absolute differences between the counts of the rows and those of the model becomes smaller.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import Weights

Codes = NDArray[np.int64]
Pairs = tuple[Codes, Codes]
"""The first and the second row of each pair. No row is in two pairs."""

MOST_ROWS = 1 << 18  # with more, their own noise is small
MOST_WORK = 1 << 26  # rows times columns of all marginals: up to ten seconds
MOST_CELLS = 1 << 22  # of all marginals
MOST_NUMBERS = 1 << 62  # of groups
ONE = np.float32(1)  # an update by a number of the array's own kind takes a tenth of the time


def sets_worth(
    near: Iterable[Axes], cells: Callable[[Axes], int], is_worth: Callable[[Axes], bool], *, count: int
) -> list[Axes]:
    """Return the marginals by which `count` rows should exchange values; none if there are too many rows, or it is too much work.

    They are the given ones. A marginal that is not worth it, or has more cells than rows and cannot come much closer, is replaced by its pairs.
    If that is too much work, they are the pairs of all. To choose among them would help some and harm the rest.

    Args:
        near: The marginals that matter.
        cells: The number of cells of a marginal.
        is_worth: Whether an exchange can change a marginal, and the model can compute it in little time.
        count: The number of rows.
    """
    sets = tuple(near) if count <= MOST_ROWS else ()

    @cache
    def fits(axes: Axes) -> bool:
        return len(axes) > 1 and cells(axes) <= count and is_worth(axes)

    pairs = (pair for axes in sets for pair in combinations(axes, 2))
    mixed = (part for axes in sets for part in ([axes] if fits(axes) else combinations(axes, 2)))
    return _feasible(mixed, cells, fits, count) or _feasible(pairs, cells, fits, count)


def _feasible(
    sets: Iterable[Axes], cells: Callable[[Axes], int], fits: Callable[[Axes], bool], count: int
) -> list[Axes]:
    """Return the marginals that fit; none if they are too much work. There may be millions, so it stops at once."""
    feasible: dict[Axes, None] = {}
    work = together = 0
    for axes in sets:
        if axes not in feasible and fits(axes):
            feasible[axes] = None
            work, together = work + count * len(axes), together + cells(axes)
            if work > MOST_WORK or together > MOST_CELLS:
                return []
    return list(feasible)


def exchange(
    rows: Sequence[Codes], expected: Mapping[Axes, Weights], pairs: Callable[[int], Pairs], *, rng: np.random.Generator
) -> None:
    """Exchange values between rows, in place.

    Args:
        rows: The codes of the rows, one array per column.
        expected: The expected counts of some marginals, each of which sums to the number of rows.
        pairs: Returns pairs of rows that may exchange their values of a column.
        rng: Orders the columns.
    """
    cells = _Cells(rows, expected)
    for _ in range(2):  # the second sweep gains a fifth of what the first does
        for column in rng.permutation(len(rows)).tolist():
            sets = [axes for axes in expected if column in axes]
            if sets:
                cells.exchange(column, sets, pairs(column))


def random_pairs(codes: Codes, groups: Codes, *, rng: np.random.Generator) -> Pairs:
    """Pair rows of the same group at random. Return the pairs with different codes, in random order."""
    order = np.lexsort((rng.permutation(len(groups)), groups))
    ordered = groups[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    place = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    first = np.flatnonzero((place[:-1] % 2 == 0) & (ordered[1:] == ordered[:-1]))
    pairs = order[first], order[first + 1]
    differ = rng.permutation(np.flatnonzero(codes[pairs[0]] != codes[pairs[1]]))
    return pairs[0][differ], pairs[1][differ]


def numbered(columns: Iterable[tuple[NDArray[np.integer[Any]], int]], count: int) -> Codes:
    """Number the combinations of codes that rows have, in their order. Each column comes with its number of codes.

    >>> numbered([(np.array([1, 0, 1]), 2), (np.array([2, 0, 2]), 3)], 3).tolist()
    [5, 0, 5]
    """
    groups, numbers = np.zeros(count, dtype=np.int64), 1
    for codes, size in columns:
        if numbers > MOST_NUMBERS // size:
            values, groups = np.unique(groups, return_inverse=True)
            numbers = len(values)
        groups = groups * size + codes
        numbers *= size
    return groups


class _Cells:
    """The cells of some marginals in one flat array, each with the rows that it has too many."""

    def __init__(self, rows: Sequence[Codes], expected: Mapping[Axes, Weights]) -> None:
        self._rows = rows
        # How far neighbouring values of each column lie apart.
        self._steps = {
            axes: {axis: math.prod(array.shape[place:]) for place, axis in enumerate(axes, start=1)}
            for axes, array in expected.items()
        }
        ends = accumulate(array.size for array in expected.values())
        self._starts = dict(zip(expected, (0, *ends), strict=False))
        self._excess = np.concatenate(
            [
                np.bincount(np.ravel_multi_index([rows[axis] for axis in axes], array.shape), minlength=array.size)
                - array.ravel()
                for axes, array in expected.items()
            ]
        ).astype(np.float32)

    def exchange(self, column: int, sets: Sequence[Axes], pairs: Pairs) -> None:
        """Exchange the values of a column between the rows of some pairs, where that helps the marginals of `sets`, which contain the column."""
        codes, excess = self._rows[column], self._excess
        both = np.stack(pairs)
        of_pairs = {axis: self._rows[axis][both].astype(np.int32) for axis in set().union(*sets)}
        others = np.stack([self._others(axes, column, of_pairs) for axes in sets], axis=-1)
        values = of_pairs[column][..., None] * np.array([self._steps[axes][column] for axes in sets], dtype=np.int32)
        left, entered = others + values, others + values[::-1]
        batch = max(32, len(codes) // 1500)  # too many pairs at once would all correct the same cell
        for start in range(0, len(pairs[0]), batch):
            now = slice(start, start + batch)
            before, after = excess[left[:, now]], excess[entered[:, now]]
            gains = (np.abs(before) - np.abs(before - 1) + np.abs(after) - np.abs(after + 1)).sum(axis=0)
            gains[others[0, now] == others[1, now]] = 0  # the two rows only change places
            chosen = start + np.flatnonzero(gains.sum(axis=1) > 1e-3)  # less is a rounding error
            if len(chosen):
                np.subtract.at(excess, left[:, chosen].ravel(), ONE)
                np.add.at(excess, entered[:, chosen].ravel(), ONE)
                first, second = (rows[chosen] for rows in pairs)
                codes[first], codes[second] = codes[second], codes[first]

    def _others(self, axes: Axes, column: int, codes: Mapping[int, NDArray[np.int32]]) -> NDArray[np.int32]:
        """Return the cell that each row would be in with the first value of a column."""
        cells = np.full(codes[column].shape, self._starts[axes], dtype=np.int32)
        for axis, step in self._steps[axes].items():
            if axis != column:
                cells += codes[axis] * step
        return cells
