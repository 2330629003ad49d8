"""The candidates of a round: for every set of columns in the workload, a version that noise and model size allow."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from dpcore.curator.curator import Offer
from dpcore.marginals.workload import Axes
from dpcore.models import FactoredModel

MOST_SETS = 1_000  # with more sets, only the smallest ones are candidates from the start


@dataclass(eq=False)
class _Candidate:
    columns: Axes
    versions: list[Axes]  # from fine to coarse
    offer: Offer | None = None
    looked: int | None = None  # the round of the last evaluation


class Candidates:
    """Offers a version of every set of columns, and remembers what was measured.

    The version is the finest one whose expected noise does not swamp the signal and that keeps the model within its size. All columns of a
    set are at the same step of their ladders, so that none is fine at the others' expense. An offer within another one of the same
    weight is dropped, because the larger one includes it. A set that was measured is offered again: noise may have hidden what it tells.

    Evaluating all candidates in every round would take most of the time. A candidate is re-evaluated if it shares two columns with a later
    measurement, which is where the model has changed most, and otherwise every eighth round. A stale expectation is safe: scores may compare
    the truth with any public expectation. If there are very many sets, only the smallest ones (usually pairs) are candidates at first. A
    larger set becomes a candidate when a subset with one column less was measured. So the number of candidates grows with the square of the
    columns, not with their cube.
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
        self._candidates = {columns: _Candidate(columns, self._ladder(columns)) for columns in first_candidates(every)}
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
            offers = [candidate.offer for candidate in candidates if candidate.offer is not None]
            if offers:
                return [
                    replace(offer, tolerated=int(tolerated * offer.expected.size))
                    for offer in _largest(self._model, offers)
                ]
        columns = range(self._model.resolutions.columns)
        return [self._offer((column,), (column,)) for column in columns]  # the noise allows nothing larger

    def measured(self, axes: Axes) -> None:
        """Record a measurement, and mark the candidates that it affects for re-evaluation."""
        columns = tuple(sorted(self._model.resolutions.column(axis) for axis in axes))
        self._measured.add(columns)
        for larger in self._waiting.pop(columns, ()):
            self._candidates.setdefault(larger, _Candidate(larger, self._ladder(larger)))
        for candidate in self._candidates.values():
            if len(set(columns).intersection(candidate.columns)) > 1:
                candidate.looked = None

    def _is_due(self, candidate: _Candidate, number: int, room: int) -> bool:
        stale = candidate.looked is None or number - candidate.looked >= 8
        return stale or (candidate.offer is not None and self._model.cells_with(candidate.offer.axes) > room)

    def _look(self, candidate: _Candidate, number: int, *, most_cells: float, room: int) -> None:
        candidate.looked = number
        candidate.offer = None
        model = self._model
        for axes in candidate.versions:
            if model.resolutions.cells(axes) <= most_cells and model.cells_with(axes) <= room:
                candidate.offer = self._offer(axes, candidate.columns)
                return

    def _ladder(self, columns: Axes) -> list[Axes]:
        """Return the versions of a set of columns from fine to coarse. In each, all columns are at the same step, or at their last."""
        ladders = [self._model.resolutions.versions(column) for column in columns]
        ladders = [
            ladder[: ladder.index(self._grid[column]) + 1] for ladder, column in zip(ladders, columns, strict=True)
        ]
        steps = range(max(map(len, ladders)))
        return [tuple(sorted(ladder[min(step, len(ladder) - 1)] for ladder in ladders)) for step in steps]

    def _offer(self, axes: Axes, columns: Axes) -> Offer:
        expected = np.rint(self._model.marginal(axes)).astype(np.int64)
        return Offer(axes, expected, self._weights.get(columns, 1))


def first_candidates(sets: Sequence[Axes]) -> Sequence[Axes]:
    """Return the sets that are candidates from the start: all, or only the smallest if there are very many."""
    smallest = min(map(len, sets), default=0)
    return sets if len(sets) <= MOST_SETS else [columns for columns in sets if len(columns) == smallest]


def _largest(model: FactoredModel, offers: Sequence[Offer]) -> list[Offer]:
    """Drop each offer that lies within another of at least its weight. That one has more columns, as no two have the same."""
    scopes = [model.scope(offer.axes) for offer in offers]
    columns = [tuple(sorted(map(model.resolutions.column, offer.axes))) for offer in offers]
    around: defaultdict[Axes, list[int]] = defaultdict(list)
    for place, whole in enumerate(columns):
        for size in range(1, len(whole)):
            for part in combinations(whole, size):
                around[part].append(place)
    return [
        offer
        for offer, scope, own in zip(offers, scopes, columns, strict=True)
        if not any(scope & ~scopes[larger] == 0 and offers[larger].weight >= offer.weight for larger in around[own])
    ]
