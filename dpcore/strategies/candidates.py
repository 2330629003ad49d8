"""What a round may measure: for every set of columns that the workload asks about, a version that noise and model size allow."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dpcore.curator.curator import Offer
from dpcore.models import FactoredModel
from dpcore.workload import Axes

STALE_ROUNDS = 8  # after so many rounds a candidate is looked at again, whatever was measured
MOST_SETS = 1_000  # that are candidates from the beginning; of more, the larger ones wait


@dataclass(eq=False)
class _Candidate:
    columns: Axes
    versions: list[Axes]  # from fine to coarse
    offer: Offer | None = None
    looked: int | None = None  # in which round


class Candidates:
    """Offers a version of every set of columns, and remembers what was measured.

    The version is the finest for which the expected noise leaves something of the signal and the model stays within its size. All columns of a
    set are at the same step of their ladders, so that none is fine at the others' expense. What lies within another offer of the
    same weight is none: the larger one says it, too. No set is offered again before all others were measured as often.

    Looking at all candidates in every round would be most of the work. One is looked at again if it has two columns in common with what was
    measured since, which is where the model has changed most, and otherwise every few rounds: a score may compare the truth with any public
    expectation. If there are very many sets, only the pairs are candidates at first: a larger one becomes a candidate when a part of it
    that is one column smaller was measured. So their number grows with the square of the columns, not with their cube.
    """

    def __init__(self, model: FactoredModel, sets: Iterable[Axes], *, weights: Mapping[Axes, int]) -> None:
        self._model = model
        self._weights = weights
        self._measured: Counter[Axes] = Counter()
        self._waiting: defaultdict[Axes, list[Axes]] = defaultdict(list)
        every = list(sets)
        smallest = min(map(len, every), default=0)
        early = every if len(every) <= MOST_SETS else [columns for columns in every if len(columns) == smallest]
        self._candidates = {columns: _Candidate(columns, _ladder(model, columns)) for columns in early}
        for columns in every:
            if columns not in self._candidates:
                for part in combinations(columns, len(columns) - 1):
                    self._waiting[part].append(columns)

    def offers(self, number: int, *, most_cells: float, room: int, first: Collection[Axes] = ()) -> list[Offer]:
        """Return what round `number` may select from.

        Args:
            number: of the round.
            most_cells: of a marginal that is worth its noise.
            room: how many cells the model may have afterwards.
            first: sets of columns that come before all others, each until it was measured.
        """
        early = [self._candidates[columns] for columns in first if not self._measured[columns]]
        for candidates in (early, list(self._candidates.values())):
            for one in candidates:
                if self._is_due(one, number, room):
                    self._look(one, number, most_cells=most_cells, room=room)
            offered = [one for one in candidates if one.offer is not None]
            if offered:
                fewest = min(self._measured[one.columns] for one in offered)
                fresh = [one.offer for one in offered if one.offer and self._measured[one.columns] == fewest]
                return _largest(self._model, fresh)
        columns = range(self._model.resolutions.columns)
        return [self._offer((column,), (column,)) for column in columns]  # noise allows nothing more

    def measured(self, axes: Axes) -> None:
        """Remember what was measured; candidates that it concerns are looked at again."""
        columns = tuple(sorted(self._model.resolutions.column(axis) for axis in axes))
        self._measured[columns] += 1
        for larger in self._waiting.pop(columns, ()):
            self._candidates.setdefault(larger, _Candidate(larger, _ladder(self._model, larger)))
        for one in self._candidates.values():
            if len(set(columns).intersection(one.columns)) > 1:
                one.looked = None

    def _is_due(self, one: _Candidate, number: int, room: int) -> bool:
        stale = one.looked is None or number - one.looked >= STALE_ROUNDS
        return stale or (one.offer is not None and self._model.cells_with(one.offer.axes) > room)

    def _look(self, one: _Candidate, number: int, *, most_cells: float, room: int) -> None:
        one.looked = number
        one.offer = None
        model = self._model
        for axes in one.versions:
            if model.resolutions.cells(axes) <= most_cells and model.cells_with(axes) <= room:
                one.offer = self._offer(axes, one.columns)
                return

    def _offer(self, axes: Axes, columns: Axes) -> Offer:
        expected = np.rint(self._model.marginal(axes)).astype(np.int64)
        return Offer(axes, expected, self._weights.get(columns, 1))


def _ladder(model: FactoredModel, columns: Axes) -> list[Axes]:
    """Return the versions of a set of columns from fine to coarse: in each, all are at the same step, or at their last one."""
    ladders = [model.resolutions.versions(column) for column in columns]
    steps = range(max(map(len, ladders)))
    return [tuple(sorted(ladder[min(step, len(ladder) - 1)] for ladder in ladders)) for step in steps]


def _largest(model: FactoredModel, offers: Sequence[Offer]) -> list[Offer]:
    """Leave out what lies within another offer that matters as much: one with more columns, as no two have the same."""
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
        if not any(scope & ~scopes[other] == 0 and offers[other].weight >= offer.weight for other in around[own])
    ]
