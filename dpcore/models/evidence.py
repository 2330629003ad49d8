"""Combine measurements: one noisy marginal for each set of columns, and the number of rows."""

from collections.abc import Iterable, Iterator, Mapping
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


@dataclass(frozen=True, eq=False)
class Target:
    """The evidence for one marginal: its noisy counts, and the variance of the noise in each."""

    counts: Weights
    variance: Weights


class Evidence:
    """Noisy marginals by their columns. Repeated measurements of a marginal are averaged, weighted by their precision.

    The counts of an ordered column are smoothed (docs/decisions/0016). Those of a tree are not: it has no cells that only noise separates.

    Args:
        orders: The ordered columns.
    """

    def __init__(self, orders: Orders = UNORDERED) -> None:
        self._orders = orders
        self._means: dict[
            Axes, tuple[Weights, Weights]
        ] = {}  # the mean of all counts of a marginal, and the variance of the noise in each
        self._targets: dict[Axes, Target] = {}

    @classmethod
    def of(cls, measurements: Iterable[Measurement], orders: Orders = UNORDERED) -> "Evidence":
        """Return the evidence of some measurements."""
        evidence = cls(orders)
        for measurement in measurements:
            evidence.add(measurement)
        return evidence

    def __iter__(self) -> Iterator[tuple[Axes, Target]]:
        return iter(self._targets.items())

    def add(self, measurement: Measurement) -> None:
        """Add the measurement of a whole marginal."""
        axes = measurement.axes
        counts, variances = measurement.values.astype(np.float64), measurement.variances
        if axes in self._means:
            mean, its_variances = self._means[axes]
            both = its_variances + variances
            counts = (counts * its_variances + mean * variances) / both
            variances = variances * its_variances / both
        self._means[axes] = counts, variances
        inside = (
            self._orders.get(axes[0], 0) if len(axes) == 1 else 0
        )  # of an ordered column, the first cells are in order
        if inside >= FEWEST_CELLS and measurement.of_column:
            smooth, left = smoothed(counts[:inside], deviation=float(variances[:inside].mean()) ** 0.5)
            counts = np.concatenate([smooth, counts[inside:]])
            variances = np.concatenate([variances[:inside] * left, variances[inside:]])
        self._targets[axes] = Target(counts, variances)

    @property
    def axes(self) -> tuple[Axes, ...]:
        """The sets of columns that were measured."""
        return tuple(self._targets)

    @property
    def total(self) -> float:
        """The number of rows, at least 1: the average of all marginals' sums, weighted by their precision."""
        sums = [float(counts.sum()) for counts, _ in self._means.values()]
        precisions = [1 / float(variances.sum()) for _, variances in self._means.values()]
        return max(1.0, float(np.average(sums, weights=precisions)))
