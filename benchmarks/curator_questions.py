"""Streams of counts with known answers, for `benchmarks.curator`: a pool of random counts, asked by Zipf's law, so that most are repeated.

A count is a product of chosen cells in each of its columns. So its answer by any model is a product with that model's marginal, and each
marginal is computed once for all counts over the same columns.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from benchmarks.coverage_questions import cells_condition, question_cells
from dpcore.answers.query import All, Condition
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights
from dpcore.models.projection import contracted
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Universe

POOLS = {"zipf": 3000, "dashboard": 1000}
COLUMNS = {"zipf": (0.1, 0.3, 0.4, 0.2), "dashboard": (0.0, 0.2, 0.5, 0.3)}  # the shares of one to four columns
SETS = 8  # of columns, on a dashboard
MOST_CELLS = 1 << 20

Codes = list[npt.NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Asked:
    """A count: its condition, its columns, which cells of each are counted, and the true answer."""

    condition: Condition
    axes: Axes
    cells: tuple[Weights, ...]
    truth: float


@dataclass(frozen=True, eq=False)
class Stream:
    """A pool of counts, and the places in it that are asked one after the other."""

    pool: list[Asked]
    places: npt.NDArray[np.int64]

    @property
    def distinct(self) -> list[int]:
        """The places of the counts that are asked, in the order of their first time."""
        return list(dict.fromkeys(self.places.tolist()))

    @property
    def sets(self) -> set[Axes]:
        """All sets of columns that are asked about."""
        return {self.pool[place].axes for place in self.distinct}

    def error(self, answers: dict[int, float]) -> float:
        """Return the mean absolute error over the stream, in rows."""
        return float(np.mean([abs(answers[place] - self.pool[place].truth) for place in self.places.tolist()]))

    def answered(self, marginal: Callable[[Axes], Weights]) -> dict[int, float]:
        """Answer all counts from the marginals of a model."""
        known = {axes: marginal(axes) for axes in self.sets}
        return {place: _counted(known[self.pool[place].axes], self.pool[place].cells) for place in self.distinct}


def stream(universe: Universe, codes: Codes, *, workload: str, count: int, seed: int) -> Stream:
    """Make a pool of random counts and a stream of questions from it."""
    rng, attributes = np.random.default_rng([seed, 29]), list(universe.attributes.values())
    true = Marginals(codes, universe.shape)

    def columns() -> Axes:
        while True:
            wanted = 1 + int(rng.choice(4, p=COLUMNS[workload]))
            axes = tuple(sorted(rng.choice(len(attributes), wanted, replace=False).tolist()))
            if math.prod(attributes[axis].size for axis in axes) <= MOST_CELLS:
                return axes

    board = [columns() for _ in range(SETS)] if workload == "dashboard" else None
    pool: dict[str, Asked] = {}
    while len(pool) < POOLS[workload]:
        axes = board[int(rng.integers(len(board)))] if board else columns()
        chosen = [cells_condition(axis, attributes[axis], question_cells(attributes[axis], rng)) for axis in axes]
        parts, cells = tuple(each for each, _ in chosen), tuple(each for _, each in chosen)
        name = repr(parts)
        if name not in pool:
            pool[name] = Asked(All(parts), axes, cells, _counted(true(axes), cells))
    weights = 1 / np.arange(1, len(pool) + 1)
    return Stream(list(pool.values()), rng.choice(len(pool), count, p=weights / weights.sum()))


def coded(universe: Universe, frame: pd.DataFrame) -> Codes:
    """Return the cell of each row in each column."""
    table = pa.Table.from_pandas(frame[list(universe.names)], preserve_index=False)
    return [np.asarray(each, dtype=np.int64) for each in encode_rows(universe, table)[0]]


def _counted(array: Weights, cells: Sequence[Weights]) -> float:
    """Return the sum of a marginal over chosen cells of each column."""
    return float(contracted(array, [each[:, None] for each in cells]).item())


class Marginals:
    """The true marginals of a table, each counted once."""

    def __init__(self, codes: Codes, shape: tuple[int, ...]) -> None:
        self._codes, self._shape = codes, shape
        self._known: dict[Axes, Weights] = {}

    def __call__(self, axes: Axes) -> Weights:
        """Return the counts by these columns."""
        if axes not in self._known:
            shape = tuple(self._shape[axis] for axis in axes)
            flat: Any = np.ravel_multi_index([self._codes[axis] for axis in axes], shape)
            self._known[axes] = np.bincount(flat, minlength=math.prod(shape)).reshape(shape).astype(np.float64)
        return self._known[axes]
