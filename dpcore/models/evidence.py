"""Combine measurements: one noisy marginal for each set of columns, and the number of rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpcore.measurements import Measurement
from dpcore.models.model import Weights
from dpcore.workload import Axes

LEAST_NOISE = 0.25  # counts are whole, so a model need not fit an almost exact measurement more closely than this


@dataclass(frozen=True, eq=False)
class Target:
    """The evidence for one marginal: its noisy counts, and the variance of the noise in each."""

    counts: Weights
    variance: float


class Evidence:
    """Noisy marginals by their columns. Repeated measurements of a marginal are averaged, weighted by their precision."""

    def __init__(self) -> None:
        self._targets: dict[Axes, Target] = {}

    def __iter__(self) -> Iterator[tuple[Axes, Target]]:
        return iter(self._targets.items())

    def add(self, measurement: Measurement) -> None:
        """Add the measurement of a whole marginal."""
        counts, variance = measurement.values.astype(np.float64), max(measurement.noise, LEAST_NOISE) ** 2
        if known := self._targets.get(measurement.axes):
            both = known.variance + variance
            counts = (counts * known.variance + known.counts * variance) / both
            variance *= known.variance / both
        self._targets[measurement.axes] = Target(counts, variance)

    @property
    def axes(self) -> tuple[Axes, ...]:
        """The sets of columns that were measured."""
        return tuple(self._targets)

    @property
    def total(self) -> float:
        """The number of rows, at least 1: the average of all marginals' sums, weighted by their precision."""
        sums = [float(target.counts.sum()) for target in self._targets.values()]
        precisions = [1 / (target.variance * target.counts.size) for target in self._targets.values()]
        return max(1.0, float(np.average(sums, weights=precisions)))
