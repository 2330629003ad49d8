"""Sums of whole weights over the rows of disjoint groups: the short vectors that a session buys. A count has the weight 1."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.privacy.protection import Protection, Sensitivity

Wholes = npt.NDArray[np.int64]

MOST_WEIGHT = 1 << 20
"""The largest weight. The sum of 2^42 rows, more than a machine holds, fits in 64 bits."""


@dataclass(frozen=True, eq=False)
class Weighing:
    """What a row adds to the numbers of its group, by its value.

    >>> from dpcore.privacy.protection import Neighbours
    >>> patients = Protection(unit="patient", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE)
    >>> Weighing(np.array([[-3, 4], [3, 4]])).sensitivity(patients)
    Sensitivity(l1=14, l2_squared=100, linf=8)

    Attributes:
        weights: A row for each value, and a column for each number. They are public.
        grain: Sums are rounded to whole multiples of it, and are told in these.
    """

    weights: Wholes
    grain: int = 1

    def __post_init__(self) -> None:
        """Reject weights whose sums could exceed 64 bits."""
        if np.abs(self.weights).max(initial=0) > MOST_WEIGHT or self.grain < 1:
            raise UsageError(f"weights are whole numbers up to {MOST_WEIGHT}, and a grain is at least 1; report this")

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """Return how far one neighbour step moves the numbers of all groups together.

        Add x to a sum, and its rounded multiple moves by at most ceil(|x| / grain), which is at most the sum of such ceilings over the
        rows. So rounded sums move as sums of the weights ceil(|w| / grain), with their signs, may move.
        """
        return protection.sensitivity_of(np.sign(self.weights) * -(-np.abs(self.weights) // self.grain))

    def totals(self, counts: Wholes) -> Wholes:
        """Return the sums of each group, from private counts whose last axis is that of the values. The last axis is now that of the numbers."""
        return np.asarray((counts @ self.weights + self.grain // 2) // self.grain, dtype=np.int64)
