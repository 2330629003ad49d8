"""Which measurements cover a number, and counts summed from noisy measurements directly, without a model."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpcore.answers.evaluate import Form, Prepared, of_groups
from dpcore.answers.release import Release
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Groups, Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights


@dataclass(frozen=True, eq=False)
class Direct:
    """Noisy counts of each group, and their variances. A group that no measurement covers has 0, and an infinite variance."""

    counts: Weights
    variances: Weights

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which groups have a noisy count."""
        return np.isfinite(self.variances)

    @property
    def finite(self) -> Weights:
        """The variances, and 1 in place of infinite ones."""
        return np.where(self.known, self.variances, 1.0)


class Measured:
    """The measurements of whole marginals in a release, and the columns that they connect."""

    def __init__(self, release: Release) -> None:
        self._resolutions: Resolutions = release.resolutions
        marginals = [measured for measured in release.measurements if measured.cell is None]
        self._marginals = [(measured, self._columns(measured.axes)) for measured in marginals]
        self._possible = {
            measured.axes: release.zeros.support(measured.axes, self._resolutions)
            for measured in marginals
            if release.zeros.possible
        }
        self._part = list(range(self._resolutions.columns))  # columns with the same number are connected
        for measured in release.measurements:
            numbers = {self._part[column] for column in self._columns(measured.axes)}
            if numbers:
                self._part = [min(numbers) if number in numbers else number for number in self._part]

    @property
    def sets(self) -> Iterable[Axes]:
        """The sets of columns that were measured together, cell by cell."""
        return {
            tuple(sorted(measured.axes))
            for measured, columns in self._marginals
            if measured.axes and columns.keys() == set(measured.axes)
        }

    @property
    def could_connect(self) -> bool:
        """Return whether there are enough measurements of several columns to connect all columns."""
        return sum(len(columns) - 1 for _, columns in self._marginals) >= self._resolutions.columns - 1

    def connected(self, axes: Axes) -> bool:
        """Return whether measurements connect these columns, maybe through others."""
        return len({self._part[axis] for axis in axes}) <= 1

    def together(self, axes: Axes) -> bool:
        """Return whether each pair of these columns was measured together, in cells or in groups of them."""
        return all(
            any(first in columns and second in columns for _, columns in self._marginals)
            for first, second in combinations(axes, 2)
        )

    def cells_with(self, column: int, others: Iterable[int]) -> tuple[Groups, bool]:
        """Return the cells of a column in which it was measured together with other columns, and whether it was with each of them.

        Of several measurements with one other column, the finest counts. Of several other columns, the one that was measured most coarsely.
        """
        versions = self._resolutions.versions(column)
        together = [
            [
                versions.index(axes[column])
                for _, axes in self._marginals
                if axis in axes and axes.get(column) in versions
            ]
            for axis in others
        ]
        coarsest = max((min(places) for places in together if places), default=versions.index(column))
        return self._resolutions.groups(column, versions[coarsest]), all(together)

    def covers(self, prepared: Prepared, axes: Axes) -> bool:
        """Return whether a measurement covers a query's classes of some columns: it has them all, and separates what the query does."""
        return next(self._covering(prepared, axes), None) is not None

    def counts(self, prepared: Prepared, form: Form) -> Direct:
        """Return the counts of a form of a query by the measurements that cover it, weighted by their precision."""
        precision, weighted = np.zeros(form.groups), np.zeros(form.groups)
        for measurement, axes in self._covering(prepared, form.axes):
            values, noise = self._summed(measurement, axes)
            columns = tuple(self._resolutions.column(axis) for axis in axes)
            groups = [self._resolutions.groups(column, axis) for column, axis in zip(columns, axes, strict=True)]
            variances = form.totals(of_groups(noise, columns, groups))
            own = np.divide(1.0, variances, out=np.zeros(form.groups), where=variances > 0)
            precision += own
            weighted += own * form.totals(of_groups(values, columns, groups))
        some = precision > 0
        counts = np.divide(weighted, precision, out=np.zeros(form.groups), where=some)
        return Direct(counts, np.divide(1.0, precision, out=np.full(form.groups, math.inf), where=some))

    def _columns(self, axes: Axes) -> dict[int, int]:
        """Return the axis of each column."""
        return {self._resolutions.column(axis): axis for axis in axes}

    def _covering(self, prepared: Prepared, axes: Axes) -> Iterator[tuple[Measurement, list[int]]]:
        """Yield the measurements that cover these columns, each with its axes of them."""
        separates = cache(partial(self._separates, prepared))
        for measurement, columns in self._marginals:
            if all(column in columns for column in axes):
                own = [columns[column] for column in axes]
                if all(map(separates, own)):
                    yield measurement, own

    def _separates(self, prepared: Prepared, axis: int) -> bool:
        """Return whether all cells of a column that an axis merges are in one class, and the query cuts none."""
        column = self._resolutions.column(axis)
        if prepared.is_cut(column):
            return False
        classes = prepared.classes(column)
        groups = self._resolutions.groups(column, axis)
        return bool(np.array_equal(classes[np.unique(groups, return_index=True)[1]][groups], classes))

    def _summed(self, measurement: Measurement, axes: Sequence[int]) -> tuple[Weights, Weights]:
        """Return a measurement's counts over some of its axes, and the variance of each.

        Counts that constraints exclude are left out, since they are noise alone.
        """
        places = [measurement.axes.index(axis) for axis in axes]
        others = tuple(place for place in range(len(measurement.axes)) if place not in places)
        turned = [sorted(places).index(place) for place in places]
        allowed = self._possible.get(measurement.axes)
        possible = np.ones(measurement.values.shape, dtype=np.bool_) if allowed is None else allowed
        values, variances = (
            np.where(possible, array, 0).sum(axis=others).astype(np.float64).transpose(turned)
            for array in (measurement.values, measurement.variances)
        )
        return values, variances
