"""What the measurements say together: one noisy marginal for each set of columns, and the number of rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpcore.measurements import Measurement
from dpcore.models.model import Weights
from dpcore.workload import Axes

LEAST_NOISE = 0.25  # counts are whole: what a huge budget measures exactly need not be met any closer


@dataclass(frozen=True, eq=False)
class Target:
    """What is known of one marginal: its noisy counts, and the variance of the noise in each."""

    counts: Weights
    variance: float


class Evidence:
    """Noisy marginals by their columns. A marginal that is measured again is averaged, each time weighted by its precision."""

    def __init__(self) -> None:
        self._targets: dict[Axes, Target] = {}

    def __iter__(self) -> Iterator[tuple[Axes, Target]]:
        return iter(self._targets.items())

    def add(self, measurement: Measurement) -> None:
        """Take a whole marginal in."""
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
    def cells(self) -> int:
        """How many noisy counts there are."""
        return sum(target.counts.size for target in self._targets.values())

    @property
    def total(self) -> float:
        """The number of rows: every marginal's sum is an estimate, and they are averaged by their precision; at least 1."""
        sums = [float(target.counts.sum()) for target in self._targets.values()]
        precisions = [1 / (target.variance * target.counts.size) for target in self._targets.values()]
        return max(1.0, float(np.average(sums, weights=precisions)))
