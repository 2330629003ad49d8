"""Which measurements cover a number, and counts summed from noisy measurements directly, without a model."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpcore.answers.evaluate import Form
from dpcore.answers.release import Release
from dpcore.measurements import Measurement
from dpcore.models.model import Weights
from dpcore.resolutions import Resolutions
from dpcore.workload import Axes


@dataclass(frozen=True, eq=False)
class Direct:
    """Noisy counts of each group, and their variances. A group that no cell belongs to has none, and an infinite variance."""

    counts: Weights
    variances: Weights


class Measured:
    """The measurements of whole marginals in a release, and the columns that they connect."""

    def __init__(self, release: Release) -> None:
        self._resolutions: Resolutions = release.resolutions
        whole = [each for each in release.measurements if each.cell is None]
        self._whole = [(each, self._columns(each.axes)) for each in whole]
        self._pairs = {
            pair for each in whole for pair in combinations(sorted(axis for axis in each.axes if axis < self._resolutions.columns), 2)
        }
        self._part = list(range(self._resolutions.columns))  # columns with the same number are connected
        for each in release.measurements:
            numbers = {self._part[column] for column in self._columns(each.axes)}
            if numbers:
                self._part = [min(numbers) if number in numbers else number for number in self._part]

    def connected(self, axes: Axes) -> bool:
        """Return whether measurements connect these columns, maybe through others."""
        return len({self._part[axis] for axis in axes}) <= 1

    def in_pairs(self, axes: Axes) -> bool:
        """Return whether each pair of these columns was measured together, cell by cell."""
        return all(pair in self._pairs for pair in combinations(sorted(axes), 2))

    def covers(self, form: Form, *, in_full: Collection[int] = ()) -> bool:
        """Return whether a measurement covers a form: it has all its columns, and cuts them wherever the form does.

        Args:
            form: The form.
            in_full: Columns that the measurement must have cell by cell, since their values matter.
        """
        return next(self._covering(form, in_full), None) is not None

    def counts(self, form: Form) -> Direct | None:
        """Return the counts of a form by the measurements that cover it, weighted by their precision; None if none does."""
        precision, weighted = np.zeros(form.groups), np.zeros(form.groups)
        covered = False
        for measurement, axes in self._covering(form, ()):
            covered = True
            counts, variances = self._summed(form, measurement, axes)
            own = np.divide(1.0, variances, out=np.zeros(form.groups), where=variances > 0)
            precision += own
            weighted += own * counts
        if not covered:
            return None
        none = precision == 0
        counts = np.divide(weighted, precision, out=np.zeros(form.groups), where=~none)
        return Direct(counts, np.divide(1.0, precision, out=np.full(form.groups, math.inf), where=~none))

    def _columns(self, axes: Axes) -> dict[int, int]:
        """Return the axis of each column."""
        return {self._resolutions.column(axis): axis for axis in axes}

    def _covering(self, form: Form, in_full: Collection[int]) -> Iterator[tuple[Measurement, list[int]]]:
        """Yield the measurements that cover a form, each with its axes of the form's columns."""
        behaviour: npt.NDArray[np.int64] | None = None
        known: dict[tuple[int, int], bool] = {}
        for measurement, columns in self._whole:
            if not all(axis in columns for axis in form.axes) or any(columns[axis] != axis for axis in in_full):
                continue
            if behaviour is None:
                behaviour = np.where(form.holds, form.group, -1)
            for place, column in enumerate(form.axes):
                if (place, columns[column]) not in known:
                    known[place, columns[column]] = self._respects(form, behaviour, place, columns[column])
            if all(known[place, columns[column]] for place, column in enumerate(form.axes)):
                yield measurement, [columns[column] for column in form.axes]

    def _respects(self, form: Form, behaviour: npt.NDArray[np.int64], place: int, axis: int) -> bool:
        """Return whether all pieces of a column that are in the same cell of an axis belong to the same groups."""
        if behaviour.shape[place] == 1:
            return True
        cells = self._resolutions.groups(form.axes[place], axis)[form.columns[place].cell]
        _, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
        return bool(np.array_equal(np.take(behaviour, first[inverse], axis=place), behaviour))

    def _summed(self, form: Form, measurement: Measurement, axes: Sequence[int]) -> tuple[Weights, Weights]:
        """Return the counts of a form's groups by one measurement, and their variances."""
        places = [measurement.axes.index(axis) for axis in axes]
        others = tuple(place for place in range(len(measurement.axes)) if place not in places)
        kept = sorted(places)
        array = measurement.values.sum(axis=others).astype(np.float64).transpose([kept.index(place) for place in places])
        variances = np.full(array.shape, measurement.noise**2 * measurement.values.size / array.size)
        for place, (column, axis) in enumerate(zip(form.axes, axes, strict=True)):
            if column == axis:
                continue
            groups = self._resolutions.groups(column, axis)
            # A group counts as a whole or not at all, so it does not matter how its count is divided among its cells.
            share = (1.0 / np.bincount(groups)[groups]).reshape([-1 if each == place else 1 for each in range(array.ndim)])
            array, variances = (np.take(each, groups, axis=place) * share for each in (array, variances))
        return form.totals(lambda _: array), form.totals(lambda _: variances)
