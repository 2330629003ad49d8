"""Corrections of noisy counts by arithmetic alone: the nearest ones that are not negative, and differences shrunk by their noise."""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def project(counts: Floats, total: float) -> Floats:
    """Return the nearest non-negative numbers with this sum.

    >>> project(np.array([5.0, 1.0, -3.0]), 4.0).tolist()
    [4.0, 0.0, 0.0]
    """
    if total <= 0:
        return np.zeros(len(counts))
    falling = np.sort(counts)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    nearest: Floats = np.maximum(counts - excess[np.flatnonzero(falling > excess)[-1]], 0.0)
    return nearest


def shrunk(counts: Floats, *, variance: float) -> Floats:
    """Return how far counts are from their mean, shrunk by as much as noise of this variance alone would move them (James and Stein 1961).

    >>> shrunk(np.array([9.0, 11.0]), variance=1.0).tolist(), shrunk(np.array([9.0, 11.0]), variance=4.0).tolist()
    ([-0.5, 0.5], [0.0, 0.0])
    """
    apart = counts - math.fsum(counts) / len(counts)
    squares, expected = math.fsum(apart**2), (len(counts) - 1) * variance
    return apart * (1 - expected / squares) if squares > expected else np.zeros(len(counts))
