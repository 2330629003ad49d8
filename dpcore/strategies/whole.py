"""Counts of all rows, from counts of the rows that a limit on units leaves (docs/decisions/0077)."""

import math
from dataclasses import dataclass, replace

import numpy as np

from dpcore.curator.curator import Offer
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.sizes import Floats, Sizes, ratios, shares_by_class
from dpcore.marginals.workload import Axes

CLEARLY = 10.0
"""Standard deviations of noise above which the number of a class's rows is known well enough by its own counts."""


@dataclass(frozen=True)
class Counted:
    """What is known of rows of which only a part is counted.

    Attributes:
        sizes: The classes of units.
        limit: The limit on the rows of a unit.
    """

    sizes: Sizes
    limit: int


class Whole:
    """Turns noisy counts of some rows into counts of all, and what is expected of all rows into what is expected of some.

    Args:
        sizes: The classes of units.
        resolutions: The columns, and their coarser versions.
        limit: The limit on the rows of a unit.
    """

    def __init__(self, sizes: Sizes, resolutions: Resolutions, *, limit: int) -> None:
        self._sizes, self._resolutions = sizes, resolutions
        self._rows = np.array(sizes.rows)
        self._kept = sizes.kept(limit)
        # Of each column: noisy counts by class, and their variance.
        self._by_class: dict[int, tuple[Floats, float]] = {}
        self._shares: dict[int, Floats] = {}
        self.ratio = 1.0
        """Of all rows to the counted ones, in the last measurement."""

    @property
    def classes(self) -> int:
        """The number of classes of units."""
        return self._sizes.classes

    def column(self, measured: Measurement) -> Measurement:
        """Return counts of all rows in a column, from counts by class of the counted rows."""
        (axis,), counts = measured.axes, measured.values.astype(np.float64)
        variance = measured.variance
        if axis in self._by_class:
            before, its_variance = self._by_class[axis]
            together = variance + its_variance
            counts, variance = (
                (counts * its_variance + before * variance) / together,
                variance * its_variance / together,
            )
        self._by_class[axis] = counts, variance
        # As many rows of each class as its noisy counts say if that is clear, and otherwise as many as the total lets expect.
        likely, found = self._sizes.counted(max(float(counts.sum()), 1.0)), counts.sum(axis=0)
        counted = np.where(found > CLEARLY * math.sqrt(len(counts) * variance), found, likely)
        self._shares[axis] = shares_by_class(counts, counted=counted, variance=variance)
        summed = replace(measured, values=measured.values.sum(axis=1), noise=measured.noise * self._sizes.classes**0.5)
        return self._corrected(summed, counted)

    def marginal(self, measured: Measurement) -> Measurement:
        """Return counts of all rows in a marginal, from its counts of the counted rows."""
        return self._corrected(measured, self._sizes.counted(max(float(measured.values.sum()), 1.0)))

    def kept(self, offer: Offer) -> Offer:
        """Return what is expected of the kept rows, from what is expected of all."""
        factor = self._ratios(offer.axes, self._kept)
        tolerated = offer.tolerated * float(self._kept.sum()) / self._sizes.total
        return replace(offer, expected=np.rint(offer.expected / factor).astype(np.int64), tolerated=round(tolerated))

    def _corrected(self, measured: Measurement, counted: Floats) -> Measurement:
        """Multiply counts by the ratio of all rows to the counted ones, and their noise likewise."""
        factor = self._ratios(measured.axes, counted)
        self.ratio = self._sizes.total / float(counted.sum())
        values = np.rint(measured.values * factor).astype(np.int64)
        return replace(measured, values=values, noise=measured.noise * self.ratio, each=measured.noise * factor)

    def _ratios(self, axes: Axes, counted: Floats) -> Floats:
        return ratios([self._of(axis) for axis in axes], rows=self._rows, counted=counted)

    def _of(self, axis: int) -> Floats:
        """Return each class's shares of the cells of an axis. Without counts by class, all classes are alike."""
        column = self._resolutions.column(axis)
        size = self._resolutions.shape[axis]
        if column not in self._shares:
            return np.full((size, self._sizes.classes), 1 / size)
        shares = np.zeros((size, self._sizes.classes))
        np.add.at(shares, np.asarray(self._resolutions.groups(column, axis)), self._shares[column])
        return shares
