"""Units of different sizes: what a measurement counts of them, and how its counts become counts of all rows.

A measurement counts only some rows of a unit that has many, so its counts say less of such units than the table does. Units are divided into
classes by their number of rows. How many rows a class has is known from a noisy histogram; how its rows differ from those of others, from
noisy counts of each column by class. So a marginal of the counted rows is multiplied, cell by cell, by the expected ratio of all rows to the
counted ones. All of it is public, and costs no privacy (docs/decisions/0077).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.marginals.shrinkage import project

Floats = NDArray[np.float64]

TINY = 1e-12  # so that nothing is divided by 0


@dataclass(frozen=True)
class Sizes:
    """The classes of units by their number of rows.

    Attributes:
        ends: The most rows of a unit in each class but the last one, which has no upper end.
        rows: About how many rows the units of each class have together.
        units: About how many units there are in each class.
        deviation: The relative standard deviation of the sum of `rows`.
    """

    ends: tuple[int, ...]
    rows: tuple[float, ...]
    units: tuple[float, ...]
    deviation: float

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.rows)

    @property
    def total(self) -> float:
        """About how many rows there are."""
        return float(sum(self.rows))

    def kept(self, limit: int) -> Floats:
        """Return about how many rows of each class a limit on the rows of a unit keeps."""
        return np.asarray(np.minimum(np.array(self.rows), limit * np.array(self.units)))

    def counted(self, total: float) -> Floats:
        """Return about how many rows of each class are counted if `total` are: at most so many of each unit, whatever its class.

        >>> Sizes((1,), rows=(100.0, 900.0), units=(100.0, 90.0), deviation=0.0).counted(280.0).tolist()
        [100.0, 180.0]
        """
        rows, units = np.array(self.rows), np.array(self.units)
        own = rows / units
        order = np.argsort(own, kind="stable")
        below = np.concatenate([[0.0], np.cumsum(rows[order])])[:-1]  # of the classes whose units are counted whole
        above = np.cumsum(units[order][::-1])[::-1]
        most = float(np.max(np.where((total - below) / above <= own[order], (total - below) / above, 0.0), initial=0.0))
        return rows if total >= self.total else rows * np.minimum(1.0, max(most, 1e-9) / own)


def shares_by_class(counts: Floats, *, counted: Floats, variance: float) -> Floats:
    """Return each class's shares of the cells of a column, from noisy counts by cell and class.

    A class differs from all together as far as it stands out of the noise: all of its cells together (James and Stein 1961), or one of them by
    more than the largest noise of so many cells (the garrote of Breiman 1995 at the threshold of Donoho and Johnstone 1994).

    Args:
        counts: A row for each cell, a column for each class.
        counted: About how many rows of each class are counted.
        variance: The variance of the noise in each count.
    """
    together = project(counts.sum(axis=1), 1.0) if counts.sum() <= 0 else np.maximum(counts.sum(axis=1), 0.0)
    together = together / together.sum()
    shares = np.empty(counts.shape)
    largest = 2 * math.log(max(len(counts), 2)) * variance
    for place, (own, rows) in enumerate(zip(counts.T, counted.tolist(), strict=True)):
        apart = own - rows * together
        squares = np.maximum(apart**2, TINY)
        kept = max(0.0, 1 - (len(own) - 1) * variance / float(squares.sum()))
        likely = np.maximum(rows * together + apart * np.maximum(kept, 1 - largest / squares), 0.0)
        shares[:, place] = likely / likely.sum() if likely.sum() > 0 else together
    return shares


def ratios(shares: Sequence[Floats], *, rows: Floats, counted: Floats) -> Floats:
    """Return the expected ratio of all rows to the counted ones in each cell of a marginal, if columns are independent within a class.

    >>> by_class = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> ratios([by_class], rows=np.array([10.0, 30.0]), counted=np.array([10.0, 10.0])).tolist()
    [1.0, 3.0]

    Args:
        shares: For each axis, the share of each of its cells in every class.
        rows: All rows of each class.
        counted: The counted rows of each class.
    """
    joint = np.ones((1, len(rows)))
    for own in shares:
        joint = (joint[:, np.newaxis, :] * own[np.newaxis, :, :]).reshape(-1, len(rows))
    whole, part = joint @ rows, joint @ counted
    usual = float(rows.sum()) / max(float(counted.sum()), 1.0)
    found: Floats = np.divide(whole, part, out=np.full(len(whole), usual), where=part > 0)
    return found.reshape([len(own) for own in shares])
