"""Which measurements cover a number, and counts summed from noisy measurements directly, without a model."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dpcore.answers.evaluate import Form
from dpcore.answers.merging import Merging, summed
from dpcore.answers.release import Release
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Groups, Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.evidence import LEAST_NOISE
from dpcore.models.model import Weights


@dataclass(frozen=True, eq=False)
class Direct:
    """Noisy counts of each group, and their variances. A group that no cell belongs to has none, and an infinite variance."""

    counts: Weights
    variances: Weights


class Measured:
    """The measurements of whole marginals in a release, and the columns that they connect.

    Attributes:
        pairs: The pairs of columns that were measured together, cell by cell.
    """

    def __init__(self, release: Release) -> None:
        self._resolutions: Resolutions = release.resolutions
        whole = [each for each in release.measurements if each.cell is None]
        self._whole = [(each, self._columns(each.axes)) for each in whole]
        self._possible = {
            each.axes: release.zeros.support(each.axes, self._resolutions) for each in whole if release.zeros.possible
        }
        self.pairs = {
            pair
            for each in whole
            for pair in combinations(sorted(axis for axis in each.axes if axis < self._resolutions.columns), 2)
        }
        self._part = list(range(self._resolutions.columns))  # columns with the same number are connected
        for each in release.measurements:
            numbers = {self._part[column] for column in self._columns(each.axes)}
            if numbers:
                self._part = [min(numbers) if number in numbers else number for number in self._part]

    @property
    def could_connect(self) -> bool:
        """Return whether there are enough measurements of several columns to connect all columns."""
        return sum(len(columns) - 1 for _, columns in self._whole) >= self._resolutions.columns - 1

    def connected(self, axes: Axes) -> bool:
        """Return whether measurements connect these columns, maybe through others."""
        return len({self._part[axis] for axis in axes}) <= 1

    def together(self, axes: Axes) -> bool:
        """Return whether each pair of these columns was measured together, in cells or in groups of them."""
        return all(
            any(first in columns and second in columns for _, columns in self._whole)
            for first, second in combinations(axes, 2)
        )

    def in_pairs(self, axes: Axes) -> bool:
        """Return whether each pair of these columns was measured together, cell by cell."""
        return all(pair in self.pairs for pair in combinations(sorted(axes), 2))

    def cells_with(self, column: int, others: Iterable[int]) -> tuple[Groups, bool]:
        """Return the cells of a column in which it was measured together with other columns, and whether it was with each of them.

        Of several measurements with one other column, the finest counts. Of several other columns, the one that was measured most coarsely.
        """
        versions, found, every = self._resolutions.versions(column), [column], True
        for other in others:
            together = [axes[column] for _, axes in self._whole if column in axes and other in axes]
            kept = [versions.index(axis) for axis in together if axis in versions]
            every = every and bool(kept)
            if kept:
                found.append(versions[min(kept)])
        coarsest = max(found, key=versions.index)
        return self._resolutions.groups(column, coarsest), every

    def covers(self, merging: Merging, axes: Axes) -> bool:
        """Return whether a measurement covers a query's classes of some columns: it has them all, and separates what the query does."""
        return next(self._covering(merging, axes), None) is not None

    def counts(self, merging: Merging, form: Form) -> Direct | None:
        """Return the counts of a form of a query by the measurements that cover it, weighted by their precision; None if none does."""
        precision, weighted = np.zeros(form.groups), np.zeros(form.groups)
        covered = False
        for measurement, axes in self._covering(merging, form.axes):
            covered = True
            counts, cells = self._summed(merging, form.axes, measurement, axes)
            noise = max(measurement.noise, LEAST_NOISE)  # with a huge budget it is next to none
            variances = form.totals(lambda _, cells=cells: cells) * noise**2  # type: ignore[misc]
            own = np.divide(1.0, variances, out=np.zeros(form.groups), where=variances > 0)
            precision += own
            weighted += own * form.totals(lambda _, counts=counts: counts)  # type: ignore[misc]
        if not covered:
            return None
        none = precision == 0
        found = np.divide(weighted, precision, out=np.zeros(form.groups), where=~none)
        return Direct(found, np.divide(1.0, precision, out=np.full(form.groups, math.inf), where=~none))

    def _columns(self, axes: Axes) -> dict[int, int]:
        """Return the axis of each column."""
        return {self._resolutions.column(axis): axis for axis in axes}

    def _covering(self, merging: Merging, axes: Axes) -> Iterator[tuple[Measurement, list[int]]]:
        """Yield the measurements that cover these columns, each with its axes of them."""
        known: dict[int, bool] = {}
        for measurement, columns in self._whole:
            if not all(column in columns for column in axes):
                continue
            own = [columns[column] for column in axes]
            for axis in own:
                if axis not in known:
                    known[axis] = self._separates(merging, axis)
            if all(known[axis] for axis in own):
                yield measurement, own

    def _separates(self, merging: Merging, axis: int) -> bool:
        """Return whether all cells of a column that an axis merges are in one class, and the query cuts none."""
        column = self._resolutions.column(axis)
        if merging.is_cut(column):
            return False
        classes = merging.classes(column)
        return bool(np.array_equal(self._of_axis(classes, axis)[self._resolutions.groups(column, axis)], classes))

    def _of_axis(self, classes: Groups, axis: int) -> Groups:
        """Return the class of each cell of an axis: that of one of the cells that it merges."""
        found = np.zeros(self._resolutions.shape_of((axis,))[0], dtype=np.intp)
        found[self._resolutions.groups(self._resolutions.column(axis), axis)] = classes
        return found

    def _summed(
        self, merging: Merging, columns: Axes, measurement: Measurement, axes: Sequence[int]
    ) -> tuple[Weights, Weights]:
        """Return a measurement's counts, summed by classes of columns, and the number of noisy counts in each.

        Counts that constraints exclude are left out, since they are noise alone.
        """
        places = [measurement.axes.index(axis) for axis in axes]
        others = tuple(place for place in range(len(measurement.axes)) if place not in places)
        kept = sorted(places)
        turned = [kept.index(place) for place in places]
        possible = self._possible.get(measurement.axes)
        values = measurement.values if possible is None else np.where(possible, measurement.values, 0)
        array = values.sum(axis=others).astype(np.float64).transpose(turned)
        cells = np.full(array.shape, measurement.values.size / max(array.size, 1))
        if possible is not None:
            cells = possible.sum(axis=others).astype(np.float64).transpose(turned)
        classes = [self._of_axis(merging.classes(column), axis) for column, axis in zip(columns, axes, strict=True)]
        return summed(array, classes), summed(cells, classes)
