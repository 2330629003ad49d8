"""The candidates of a round: for every set of columns in the workload, a version that noise and model size allow."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpcore.curator.curator import Offer
from dpcore.marginals.workload import Axes
from dpcore.models import FactoredModel
from dpcore.models.factored.scopes import Scope, inside

MOST_SETS = 1_000  # with more sets, only the smallest ones are candidates from the start


@dataclass(eq=False)
class _Candidate:
    columns: Axes
    versions: list[Axes]  # from fine to coarse
    weight: int
    axes: Axes | None = None  # the version that is offered
    expected: NDArray[np.int64] | None = None  # its counts by the model, once they are needed
    looked: int | None = None  # the round of the last evaluation


class Candidates:
    """Offers a version of every set of columns, and remembers what was measured.

    The version is the finest one whose expected noise does not swamp the signal and that keeps the model within its size. All columns of a
    set are at the same step of their ladders, so that none is fine at the others' expense. An offer within another one of the same
    weight is dropped, because the larger one includes it. A set that was measured is offered again: noise may have hidden what it tells.

    Evaluating all candidates in every round would take most of the time. A candidate is re-evaluated if it shares two columns with a later
    measurement, which is where the model has changed most, and otherwise every eighth round. A stale expectation is safe: scores may compare the
    truth with any public expectation. Expectations are computed only of what is offered. If there are very many sets, only the smallest ones
    (usually pairs) are candidates at first. A larger set becomes a candidate when a subset with one column less was measured. So the number of
    candidates grows with the square of the columns, not with their cube.
    """

    def __init__(
        self, model: FactoredModel, sets: Iterable[Axes], *, weights: Mapping[Axes, int], grid: Sequence[int] = ()
    ) -> None:
        """Prepare the candidates. `grid` has the coarsest version of each column that is offered; empty: the last one."""
        self._model = model
        self._grid = grid or [model.resolutions.versions(column)[-1] for column in range(model.resolutions.columns)]
        self._weights = weights
        self._measured: set[Axes] = set()
        self._waiting: defaultdict[Axes, list[Axes]] = defaultdict(list)
        every = list(sets)
        self._candidates = {columns: self._candidate(columns) for columns in first_candidates(every)}
        for columns in every:
            if columns not in self._candidates:
                for part in combinations(columns, len(columns) - 1):
                    self._waiting[part].append(columns)

    def offers(
        self, number: int, *, most_cells: float, room: int, tolerated: float = 0.0, first: Collection[Axes] = ()
    ) -> list[Offer]:
        """Return the offers that round `number` selects from.

        Args:
            number: The number of the round.
            most_cells: The most cells of a marginal that is worth its noise.
            room: The most cells of the model after the round.
            tolerated: The error of each cell that is no reason to select a marginal.
            first: Sets of columns that take precedence over all others, each until it was measured.
        """
        early = [
            self._candidates[columns]
            for columns in first
            if columns in self._candidates and columns not in self._measured
        ]
        for candidates in (early, list(self._candidates.values())):
            for candidate in candidates:
                if self._is_due(candidate, number, room):
                    self._look(candidate, number, most_cells=most_cells, room=room)
            offers = [self._offer(*offered, tolerated) for offered in _largest(self._model, candidates)]
            if offers:
                return offers
        columns = [self._candidate((column,)) for column in range(self._model.resolutions.columns)]
        return [self._offer(each, each.columns, 0.0) for each in columns]  # the noise allows nothing larger

    def measured(self, axes: Axes) -> None:
        """Record a measurement, and mark the candidates that it affects for re-evaluation."""
        columns = tuple(sorted(self._model.resolutions.column(axis) for axis in axes))
        self._measured.add(columns)
        for larger in self._waiting.pop(columns, ()):
            self._candidates.setdefault(larger, self._candidate(larger))
        for candidate in self._candidates.values():
            if len(set(columns).intersection(candidate.columns)) > 1:
                candidate.looked = None

    def _is_due(self, candidate: _Candidate, number: int, room: int) -> bool:
        stale = candidate.looked is None or number - candidate.looked >= 8
        return stale or (candidate.axes is not None and self._model.cells_with(candidate.axes) > room)

    def _look(self, candidate: _Candidate, number: int, *, most_cells: float, room: int) -> None:
        model, candidate.looked, candidate.expected = self._model, number, None
        fitting = (
            axes
            for axes in candidate.versions
            if model.resolutions.cells(axes) <= most_cells and model.cells_with(axes) <= room
        )
        candidate.axes = next(fitting, None)

    def _candidate(self, columns: Axes) -> _Candidate:
        return _Candidate(columns, self._ladder(columns), self._weights.get(columns, 1))

    def _ladder(self, columns: Axes) -> list[Axes]:
        """Return the versions of a set of columns from fine to coarse. In each, all columns are at the same step, or at their last."""
        ladders = [self._model.resolutions.versions(column) for column in columns]
        ladders = [
            ladder[: ladder.index(self._grid[column]) + 1] for ladder, column in zip(ladders, columns, strict=True)
        ]
        steps = range(max(map(len, ladders)))
        return [tuple(sorted(ladder[min(step, len(ladder) - 1)] for ladder in ladders)) for step in steps]

    def _offer(self, candidate: _Candidate, axes: Axes, tolerated: float) -> Offer:
        if candidate.expected is None:
            candidate.expected = np.rint(self._model.marginal(axes)).astype(np.int64)
        return Offer(axes, candidate.expected, candidate.weight, tolerated=int(tolerated * candidate.expected.size))


def first_candidates(sets: Sequence[Axes]) -> Sequence[Axes]:
    """Return the sets that are candidates from the start: all, or only the smallest if there are very many."""
    smallest = min(map(len, sets), default=0)
    return sets if len(sets) <= MOST_SETS else [columns for columns in sets if len(columns) == smallest]


def _largest(model: FactoredModel, candidates: Iterable[_Candidate]) -> Iterator[tuple[_Candidate, Axes]]:
    """Yield each candidate and what it offers, unless that lies within another offer of at least its weight, which has more columns."""
    offered = [(each, each.axes, model.scope(each.axes)) for each in candidates if each.axes is not None]
    around: defaultdict[Axes, list[tuple[int, Scope]]] = defaultdict(list)
    for each, _, scope in offered:
        for size in range(1, len(each.columns)):
            for part in combinations(each.columns, size):
                around[part].append((each.weight, scope))
    for each, axes, scope in offered:
        if not any(inside(scope, larger) and weight >= each.weight for weight, larger in around[each.columns]):
            yield each, axes
