"""Choose joint counts from which all wanted marginals can be summed. This needs fewer passes over the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from dpcore.marginals.workload import Axes

MOST_CELLS = 1 << 17
"""The largest joint count that is not itself a wanted marginal: it fits in the processor's cache."""


@dataclass(frozen=True)
class Joint:
    """Axes that are counted together, and the numbers of the wanted marginals that are summed from them."""

    axes: Axes
    marginals: tuple[int, ...]


def cover(sets: Sequence[Axes], *, shape: Sequence[int], most_cells: int = MOST_CELLS) -> list[Joint]:
    """Choose joint counts of bounded size so that every wanted marginal is contained in one of them.

    Greedy: start with the largest remaining marginal, then repeatedly add the axis that completes the most others for its size, within
    the limit.

    >>> cover([(0, 1), (2, 0), (1, 2)], shape=(2, 3, 4))
    [Joint(axes=(0, 1, 2), marginals=(0, 1, 2))]
    >>> [joint.axes for joint in cover([(0, 1), (2, 0), (1, 2)], shape=(2, 3, 4), most_cells=6)]
    [(1, 2), (0, 2), (0, 1)]
    """
    sizes = np.array(shape, dtype=np.float64)
    needed = np.zeros((len(sets), len(shape)), dtype=np.float32)
    for number, axes in enumerate(sets):
        needed[number, list(axes)] = 1
    largest_first = sorted(range(len(sets)), key=lambda number: prod(shape[axis] for axis in sets[number]))
    left = np.ones(len(sets), dtype=np.bool_)
    joints = []
    while largest_first:
        seed = largest_first.pop()
        if not left[seed]:
            continue
        chosen = _grown(needed[seed] > 0, needed[left], sizes=sizes, most_cells=most_cells)
        inside = left & ~needed[:, ~chosen].any(axis=1)
        left &= ~inside
        # small axes first: cell numbers over the first axes then need few bits
        ordered = sorted(np.flatnonzero(chosen).tolist(), key=lambda axis: shape[axis])
        joints.append(Joint(tuple(ordered), tuple(np.flatnonzero(inside).tolist())))
    return joints


def _grown(
    chosen: np.ndarray[tuple[int], np.dtype[np.bool_]],
    needed: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    *,
    sizes: np.ndarray[tuple[int], np.dtype[np.float64]],
    most_cells: int,
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Add axes to the chosen ones, best first, while the number of cells stays within the limit."""
    chosen = chosen.copy()
    cells = float(sizes[chosen].prod())
    # marginals that lack more axes are too far from complete for the axes that fit
    needed = needed[needed[:, ~chosen].sum(axis=1) <= 2]
    while True:
        fits = ~chosen & (cells * sizes <= most_cells)
        lacking = needed[:, ~chosen].sum(axis=1)
        # rank axes by the marginals they complete; break ties by the marginals they bring one axis closer
        completed = (lacking == 1).astype(np.float32) @ needed
        nearer = (lacking == 2).astype(np.float32) @ needed
        worth = np.where(fits, (completed + nearer / (4 * len(needed))) / np.log2(sizes + 1), 0)
        best = int(worth.argmax())
        if worth[best] <= 0:
            return chosen
        chosen[best] = True
        cells *= float(sizes[best])
