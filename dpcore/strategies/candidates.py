"""What a round may measure: for every set of columns that the workload asks about, a version that noise and model size allow."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.measurements import Counts
from dpcore.models import FactoredModel
from dpcore.queries import Axes

STALE_ROUNDS = 8  # after so many rounds a candidate is looked at again, whatever was measured


@dataclass(frozen=True, eq=False)
class Offer:
    """A marginal that may be selected: its axes, and the counts that the model expects, or expected a few rounds ago."""

    axes: Axes
    expected: Counts


@dataclass(eq=False)
class _Candidate:
    columns: Axes
    versions: list[Axes]  # from fine to coarse
    offer: Offer | None = None
    looked: int | None = None  # in which round


class Candidates:
    """Offers a version of every set of columns, and remembers what was measured.

    The version is the finest for which the expected noise leaves something of the signal and the model stays within its size. All columns of a
    set are at the same step of their ladders, so that none is fine at the others' expense. What lies within another offer is none: the
    larger one says it, too. No set is offered again before all others were measured as often.

    Looking at all candidates in every round would be most of the work. One is looked at again if it has two columns in common with what was
    measured since, which is where the model has changed most, and otherwise every few rounds: a score may compare the truth with any public
    expectation.
    """

    def __init__(self, model: FactoredModel, sets: Iterable[Axes]) -> None:
        self._model = model
        self._candidates = [_Candidate(columns, _ladder(model, columns)) for columns in sets]
        self._measured: Counter[Axes] = Counter()

    def offers(self, number: int, *, most_cells: float, room: int) -> list[Offer]:
        """Return what round `number` may select from.

        Args:
            number: of the round.
            most_cells: of a marginal that is worth its noise.
            room: how many cells the model may have afterwards.
        """
        for one in self._candidates:
            if self._is_due(one, number, room):
                self._look(one, number, most_cells=most_cells, room=room)
        offered = [one for one in self._candidates if one.offer is not None]
        if not offered:
            return [
                self._offer((column,)) for column in range(self._model.resolutions.columns)
            ]  # noise allows nothing more
        fewest = min(self._measured[one.columns] for one in offered)
        fresh = [one.offer for one in offered if one.offer is not None and self._measured[one.columns] == fewest]
        return _largest(self._model, fresh)

    def measured(self, axes: Axes) -> None:
        """Remember what was measured; candidates that it concerns are looked at again."""
        columns = {self._model.resolutions.column(axis) for axis in axes}
        self._measured[tuple(sorted(columns))] += 1
        for one in self._candidates:
            if len(columns.intersection(one.columns)) > 1:
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
                one.offer = self._offer(axes)
                return

    def _offer(self, axes: Axes) -> Offer:
        return Offer(axes, np.rint(self._model.marginal(axes)).astype(np.int64))


def _ladder(model: FactoredModel, columns: Axes) -> list[Axes]:
    """Return the versions of a set of columns from fine to coarse: in each, all are at the same step, or at their last one."""
    ladders = [model.resolutions.versions(column) for column in columns]
    steps = range(max(map(len, ladders)))
    return [tuple(sorted(ladder[min(step, len(ladder) - 1)] for ladder in ladders)) for step in steps]


def _largest(model: FactoredModel, offers: Sequence[Offer]) -> list[Offer]:
    """Leave out what lies within another offer."""
    scopes = [model.scope(offer.axes) for offer in offers]
    outside = [~scope for scope in scopes]
    return [
        offer
        for offer, scope in zip(offers, scopes, strict=True)
        if sum(scope & others == 0 for others in outside) == 1  # within itself only
    ]
