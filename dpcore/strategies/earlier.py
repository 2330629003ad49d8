"""Measurements of an earlier release of the same table: evidence beside what a strategy buys (docs/decisions/0057)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Groups, Resolutions
from dpcore.models import Evidence
from dpcore.models.fitting import Transcript

SUFFIX = "/earlier"
"""How the steps of earlier measurements end, so that a release does not confuse them with its own."""

DEVIATIONS = 8.0
"""Columns that differ by more than this many standard deviations of their noise are not those of the same table."""

TOTAL_DEVIATIONS = 6.0
"""Nor are numbers of rows that differ by more than this many."""


@dataclass(frozen=True, eq=False)
class Earlier:
    """What an earlier release has measured.

    Attributes:
        resolutions: The columns and their coarser versions, which the axes of its measurements refer to.
        transcript: Its measurements, under names that end with `SUFFIX`.
        rows_per_unit: How many rows of a unit count, chosen at random by each run; 0 if all count.
        weighted: Whether rows count as often as a column says, so that the total also depends on that choice.
    """

    resolutions: Resolutions
    transcript: Transcript
    rows_per_unit: int
    weighted: bool = False

    @classmethod
    def of(
        cls, resolutions: Resolutions, measured: Transcript, *, rows_per_unit: int, weighted: bool = False
    ) -> "Earlier":
        """Return the measurements of an earlier release as evidence for a later one."""
        first, later = (
            tuple(replace(measurement, step=f"{measurement.step}{SUFFIX}") for measurement in part)
            for part in (measured.first, measured.later)
        )
        return cls(resolutions, Transcript(first, later), rows_per_unit, weighted)

    def coarser(self) -> Iterator[tuple[int, Groups]]:
        """Yield the coarser versions in the order of their axes, each as its column and the group of every cell."""
        of = self.resolutions
        for axis in range(of.columns, len(of.shape)):
            yield of.column(axis), of.groups(of.column(axis), axis)

    def _has_as_many_rows(self, own: Sequence[Measurement]) -> bool:
        """Return whether the noisy totals could be the same. The rows of a unit are chosen at random, but their number is not."""
        if not own or not self.transcript.first or (self.weighted and self.rows_per_unit):
            return True
        (now, variance), (before, earlier_variance) = _total(own), _total(self.transcript.first)
        return (now - before) ** 2 <= TOTAL_DEVIATIONS**2 * (variance + earlier_variance)

    def agrees_with(self, own: Sequence[Measurement]) -> bool:
        """Return whether new measurements of the columns could be of the same table. This looks at noisy counts only.

        The squares of the differences, divided by their variances, follow a chi-squared distribution if the table is the same. Its cube
        root is nearly normal (Wilson and Hilferty 1931). Laplace noise has longer tails, for which the limit has room.
        """
        if not self._has_as_many_rows(own):
            return False
        earlier, square, cells = dict(Evidence.of(self.transcript.first)), 0.0, 0
        for axes, now in Evidence.of(own):
            if axes in earlier and len(axes) == 1:
                before = earlier[axes]
                rows = (np.abs(now.counts) + np.abs(before.counts)) / 2
                variances = now.variance + before.variance + 2 * self.rows_per_unit * rows
                square += float(((now.counts - before.counts) ** 2 / variances).sum())
                cells += now.counts.size
        if not cells:
            return True
        limit = cells * (1 - 2 / (9 * cells) + DEVIATIONS * math.sqrt(2 / (9 * cells))) ** 3
        return square <= limit


def _total(measurements: Sequence[Measurement]) -> tuple[float, float]:
    """Return the number of rows by several measurements, weighted by their precision, and its variance."""
    precisions = [1 / float(measured.variances.sum()) for measured in measurements]
    sums = [float(measured.values.sum()) for measured in measurements]
    return float(np.average(sums, weights=precisions)), 1 / sum(precisions)
