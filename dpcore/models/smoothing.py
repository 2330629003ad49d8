"""Smooth the noisy counts of an ordered column where they show no structure beyond their noise.

Neighbouring cells of an ordered column, such as ages, mostly have similar counts. Each noisy count by itself tells little, but all of them
together tell the shape. Haar wavelets describe the counts as differences between neighbouring runs of cells, of every length and at every
place. Differences within the noise are dropped. What is left keeps single peaks that stand out, and is smooth between them. Counts that
show structure everywhere are hardly changed.

This is post-processing: it reads noisy counts only.

References: Donoho and Johnstone 1994 (wavelet shrinkage); Coifman and Donoho 1995 (shifts of all lengths).
"""

import numpy as np
from numpy.typing import NDArray

FEWEST_CELLS = 16
"""Columns with fewer cells in order stay as they are."""

STANDS_OUT = 2.0  # standard deviations of noise above which a difference is kept


def smoothed(counts: NDArray[np.float64], *, deviation: float) -> tuple[NDArray[np.float64], float]:
    """Return smoothed counts, and the number of differences that are left, divided by the cells. The sum stays the same.

    This share stands for the variance that is left. On a flat column more is left, as differences that noise has made large stay.

    Args:
        counts: The noisy counts of all cells, in order.
        deviation: The standard deviation of the noise in each.

    >>> counts, left = smoothed(np.array([9.0, 11, 12, 8, 10, 10, 90, 11, 9]), deviation=2.0)
    >>> counts.round(1).tolist(), round(left, 2)
    ([10.1, 10.1, 10.1, 9.8, 9.8, 10.0, 90.0, 10.5, 9.6], 0.44)
    """
    cells = len(counts)
    means = np.concatenate([counts, counts[::-1]])  # mirrored, so that the ends have neighbours
    differences, left = [], 1.0
    run = 1  # the length of the runs that are compared
    while 2 * run <= len(means):
        after = np.roll(means, -run)
        half, means = (means - after) / 2, (means + after) / 2
        stands_out = np.abs(half) > STANDS_OUT * deviation / np.sqrt(2 * run)
        differences.append(np.where(stands_out, half, 0.0))
        left += float(stands_out.mean()) * cells / (2 * run)
        run *= 2
    for half in reversed(differences):
        run //= 2
        means = (means + half + np.roll(means - half, run)) / 2
    return means[:cells], min(1.0, left / cells)
