"""Combine measurements: one noisy marginal for each set of columns, and the number of rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights
from dpcore.models.smoothing import FEWEST_CELLS, smoothed

Orders = Mapping[int, int]
"""For each ordered column, how many of its cells are in order. The cells after them, such as the one for nulls, have no place in it."""

UNORDERED: Orders = MappingProxyType({})

LEAST_NOISE = 0.25  # counts are whole, so a model need not fit an almost exact measurement more closely than this


@dataclass(frozen=True, eq=False)
class Target:
    """The evidence for one marginal: its noisy counts, and the variance of the noise in each."""

    counts: Weights
    variance: Weights


@dataclass(frozen=True, eq=False)
class _Measured:
    """The measurements of one marginal together: the mean of their counts, and the variance of the noise in each."""

    counts: Weights
    variance: float

    @property
    def target(self) -> Target:
        return Target(self.counts, np.full(self.counts.shape, self.variance))

    def smoothed(self, inside: int) -> Target:
        """Return the evidence for an ordered column, of whose cells the first `inside` are in order."""
        target = self.target
        counts, kept = smoothed(self.counts[:inside], deviation=self.variance**0.5)
        target.variance[:inside] *= kept
        return Target(np.concatenate([counts, self.counts[inside:]]), target.variance)


class Evidence:
    """Noisy marginals by their columns. Repeated measurements of a marginal are averaged, weighted by their precision.

    The counts of an ordered column are smoothed (docs/decisions/0016). Those of a tree are not: it has no cells that only noise separates.

    Args:
        orders: The ordered columns.
    """

    def __init__(self, orders: Orders = UNORDERED) -> None:
        self._orders = orders
        self._measured: dict[Axes, _Measured] = {}
        self._targets: dict[Axes, Target] = {}

    def __iter__(self) -> Iterator[tuple[Axes, Target]]:
        return iter(self._targets.items())

    def add(self, measurement: Measurement) -> None:
        """Add the measurement of a whole marginal."""
        counts, variance = measurement.values.astype(np.float64), max(measurement.noise, LEAST_NOISE) ** 2
        if known := self._measured.get(measurement.axes):
            both = known.variance + variance
            counts = (counts * known.variance + known.counts * variance) / both
            variance *= known.variance / both
        measured = self._measured[measurement.axes] = _Measured(counts, variance)
        inside = self._orders.get(measurement.axes[0], 0) if len(measurement.axes) == 1 else 0
        smooth = inside >= FEWEST_CELLS and measurement.of_column
        self._targets[measurement.axes] = measured.smoothed(inside) if smooth else measured.target

    @property
    def axes(self) -> tuple[Axes, ...]:
        """The sets of columns that were measured."""
        return tuple(self._targets)

    @property
    def total(self) -> float:
        """The number of rows, at least 1: the average of all marginals' sums, weighted by their precision."""
        sums = [float(each.counts.sum()) for each in self._measured.values()]
        precisions = [1 / (each.variance * each.counts.size) for each in self._measured.values()]
        return max(1.0, float(np.average(sums, weights=precisions)))
