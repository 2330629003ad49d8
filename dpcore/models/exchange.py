"""Exchange values between drawn rows, so that the marginals of the rows come closer to those of their model.

Whole rows can have about the expected counts in the cells that they are drawn from, but not in all marginals at once. How columns that
share no clique are combined is left to chance, and that adds noise to marginals. If two rows exchange their values of a column, no other
column changes. For each column, a model pairs rows for which that hardly changes how likely they are. A pair exchanges its values if the sum
of the absolute differences between the counts of the rows and those of the model becomes smaller.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, combinations

import numpy as np
from numpy.typing import NDArray

from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights

Codes = NDArray[np.int64]
Pairs = tuple[Codes, Codes]
"""The first and the second row of each pair. No row is in two pairs."""

SWEEPS = 2  # over all columns: the second gains a fifth of what the first does
BATCH = 32  # pairs that are judged at once, at least: too many would all correct the same cell
BATCHES = 1500  # for each column, at most: more rows are judged in larger batches
LEAST_GAIN = 1e-3  # rows: less is a rounding error
MOST_ROWS = 1 << 18  # with more, their own noise is small
MOST_WORK = 1 << 26  # rows times columns of all marginals: up to ten seconds
MOST_CELLS = 1 << 22  # of all marginals


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
    given = tuple(near) if count <= MOST_ROWS else ()

    @cache
    def fits(axes: Axes) -> bool:
        return len(axes) > 1 and cells(axes) <= count and is_worth(axes)

    pairs = (pair for axes in given for pair in combinations(axes, 2))
    wanted = (each for axes in given for each in ([axes] if fits(axes) else combinations(axes, 2)))
    return _feasible(wanted, cells, fits, count) or _feasible(pairs, cells, fits, count)


def _feasible(
    sets: Iterable[Axes], cells: Callable[[Axes], int], fits: Callable[[Axes], bool], count: int
) -> list[Axes]:
    """Return the marginals that fit; none if they are too much work. There may be millions, so it stops at once."""
    found: dict[Axes, bool] = {}
    work = together = 0
    for axes in sets:
        if axes not in found:
            found[axes] = fits(axes)
            if found[axes]:
                work, together = work + count * len(axes), together + cells(axes)
                if work > MOST_WORK or together > MOST_CELLS:
                    return []
    return [axes for axes, is_kept in found.items() if is_kept]


def exchange(
    rows: Sequence[Codes], wanted: Mapping[Axes, Weights], pairs: Callable[[int], Pairs], *, rng: np.random.Generator
) -> None:
    """Exchange values between rows, in place.

    Args:
        rows: The codes of the rows, one array per column.
        wanted: The expected counts of some marginals, each of which sums to the number of rows.
        pairs: Returns pairs of rows that may exchange their values of a column.
        rng: Orders the columns.
    """
    cells = _Cells(rows, wanted)
    for _ in range(SWEEPS):
        for column in rng.permutation(len(rows)).tolist():
            sets = [axes for axes in wanted if column in axes]
            if sets:
                cells.exchange(column, sets, pairs(column))


def random_pairs(codes: Codes, groups: Codes, *, rng: np.random.Generator) -> Pairs:
    """Pair rows of the same group at random. Return the pairs with different codes, in random order."""
    order = np.lexsort((rng.permutation(len(groups)), groups))
    ordered = groups[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    place = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    first = np.flatnonzero((place[:-1] % 2 == 0) & (ordered[1:] == ordered[:-1]))
    one, two = order[first], order[first + 1]
    differ = rng.permutation(np.flatnonzero(codes[one] != codes[two]))
    return one[differ], two[differ]


class _Cells:
    """The cells of some marginals in one flat array, each with the rows that it has too many."""

    def __init__(self, rows: Sequence[Codes], wanted: Mapping[Axes, Weights]) -> None:
        self._rows = rows
        self._shapes = {axes: array.shape for axes, array in wanted.items()}
        ends = accumulate(array.size for array in wanted.values())
        self._starts = dict(zip(wanted, (0, *ends), strict=False))
        self._excess = np.concatenate(
            [
                np.bincount(np.ravel_multi_index([rows[axis] for axis in axes], array.shape), minlength=array.size)
                - array.ravel()
                for axes, array in wanted.items()
            ]
        ).astype(np.float32)

    def exchange(self, column: int, sets: Sequence[Axes], pairs: Pairs) -> None:
        """Exchange the values of a column between the rows of some pairs, where that helps the marginals of `sets`, which contain the column."""
        codes, excess = self._rows[column], self._excess
        steps = np.array([self._step(axes, column) for axes in sets])
        others = np.stack([self._others(axes, column) for axes in sets], axis=1)
        batch = max(BATCH, len(codes) // BATCHES)
        for start in range(0, len(pairs[0]), batch):
            one, two = (each[start : start + batch] for each in pairs)
            here, there = others[one], others[two]
            own, theirs = codes[one, None] * steps, codes[two, None] * steps
            left, entered = np.stack([here + own, there + theirs]), np.stack([here + theirs, there + own])
            before, after = excess[left], excess[entered]
            gains = (np.abs(before) - np.abs(before - 1) + np.abs(after) - np.abs(after + 1)).sum(axis=0)
            gains[here == there] = 0  # the two rows only change places
            chosen = np.flatnonzero(gains.sum(axis=1) > LEAST_GAIN)
            if len(chosen):
                np.subtract.at(excess, left[:, chosen], 1)
                np.add.at(excess, entered[:, chosen], 1)
                one, two = one[chosen], two[chosen]
                codes[one], codes[two] = codes[two], codes[one]

    def _step(self, axes: Axes, column: int) -> int:
        """Return how far the cells of two neighbouring values of a column lie apart."""
        return int(np.prod(self._shapes[axes][axes.index(column) + 1 :]))

    def _others(self, axes: Axes, column: int) -> NDArray[np.int32]:
        """Return the cell that each row would be in with the first value of a column."""
        codes = [np.zeros_like(self._rows[axis]) if axis == column else self._rows[axis] for axis in axes]
        flat = np.ravel_multi_index(codes, self._shapes[axes])
        return (self._starts[axes] + flat).astype(np.int32)
