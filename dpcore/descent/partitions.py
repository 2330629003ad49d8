"""Estimate counts from a chain of noisy partitions, each finer than the one before.

The least-squares estimate of all counts takes two passes: upwards, each node's own count is averaged with the sum of its children, by their
precision; downwards, what the children lack of their parent's count is divided among them. Downwards, counts also become non-negative, and
children that do not stand out of their noise follow their parent. All of it is arithmetic on noisy counts, in a fixed order.

Reference: Hay, Rastogi, Miklau and Suciu 2010 (hierarchical histograms).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore.marginals.measurements import Counts
from dpcore.marginals.shrinkage import Floats, project, shrunk
from dpcore.universe.leaves import nearness

Positions = npt.NDArray[np.int64]

STANDS_OUT = 3.5  # a child that is above its expected share by this many standard deviations keeps its own estimate
DOUBT = 2.0  # of the other children's mass r with standard deviation s, 1 - (DOUBT s / r)^2 is kept, and the rest goes to those that stand out


@dataclass(frozen=True, eq=False)
class Partition:
    """One level: for each node its first place and its parent in the level before, with the noisy counts and their standard deviation.

    Nodes ascend, and so do their parents. The last `apart` nodes are cells outside the grid, such as the one for nulls. They are never split.
    """

    starts: Positions
    parents: Positions
    counts: Counts
    noise: float
    apart: int


def estimate(levels: Sequence[Partition], *, size: int, density: Floats | None = None) -> Floats:
    """Estimate the counts of the nodes of the last level, on a grid of `size` places.

    `density` is what is expected of each place, relative to the others; None if the same is expected of all.

    >>> level = Partition(np.array([0, 4]), np.zeros(2, dtype=np.int64), np.array([90, -2]), noise=5.0, apart=0)
    >>> estimate([level], size=8).tolist()
    [88.0, 0.0]
    """
    own, variances = _upwards(levels)
    below = np.append(0.0, np.cumsum(density)) if density is not None else np.arange(size + 1.0)
    above = np.array([max(float(math.fsum(own[0])), 0.0)])
    for level, counts, variance in zip(levels, own, variances, strict=True):
        parents = level.parents if len(above) > 1 else np.zeros(len(counts), dtype=np.int64)
        sums = np.bincount(parents, weights=counts, minlength=len(above))
        doubt = np.bincount(parents, weights=variance, minlength=len(above))
        consistent = counts + variance / doubt[parents] * (above - sums)[parents]
        above = _downwards(level, consistent, variance=variance, above=above, below=below)
    return above


def _upwards(levels: Sequence[Partition]) -> tuple[list[Floats], list[Floats]]:
    """Average each node's count with the sum of its children, from the finest level up. Return counts and variances by level."""
    finest = levels[-1]
    counts, variances = [finest.counts.astype(np.float64)], [np.full(finest.counts.size, finest.noise**2)]
    for level, finer in zip(levels[-2::-1], levels[:0:-1], strict=True):
        nodes = level.counts.size
        total = np.bincount(finer.parents, weights=counts[0], minlength=nodes)
        variance = np.bincount(finer.parents, weights=variances[0], minlength=nodes)
        own = level.noise**2
        counts.insert(0, (level.counts * variance + total * own) / (variance + own))
        variances.insert(0, variance * own / (variance + own))
    return counts, variances


def _downwards(level: Partition, counts: Floats, *, variance: Floats, above: Floats, below: Floats) -> Floats:
    """Divide each parent's count among its children. `below` is what is expected before each place."""
    parents = level.parents if len(above) > 1 else np.zeros(len(counts), dtype=np.int64)
    ends = np.searchsorted(parents, np.arange(len(above) + 1))
    inside = len(counts) - level.apart
    widths = np.ones(len(counts))
    bounds = np.append(level.starts, len(below) - 1)
    widths[:inside] = np.diff(below[bounds])
    first = len(above) == 1
    if first:
        widths[:inside] *= nearness(bounds, (counts >= STANDS_OUT * np.sqrt(variance))[:inside])
    divided = np.zeros(len(counts))
    for parent, total in enumerate(above.tolist()):
        children = slice(int(ends[parent]), int(ends[parent + 1]))
        if total > 0:
            noise = np.sqrt(variance[children])
            divided[children] = divide(total, counts[children], noise=noise, widths=widths[children], is_range=first)
    return divided


def divide(total: float, counts: Floats, *, noise: Floats, widths: Floats, is_range: bool = False) -> Floats:
    """Divide a count among intervals with these noisy counts.

    All keep their estimates if all stand out of their noise. Otherwise those do that also stand out above their share by `widths`. What
    is left for the others is shrunk towards nothing, the less it stands out. Their counts are shrunk towards a division by `widths`, the less they differ from it by more
    than their noise (James and Stein 1961).

    With `is_range`, the intervals are those of a whole declared range, most of which may be empty. So nothing is expected of any of them:
    all that stand out of their noise keep their estimates, and what is left must stand out of the noise of all others.

    >>> divide(100.0, np.array([97.0, 2.0, -2.0, 3.0]), noise=np.full(4, 4.0), widths=np.ones(4)).tolist()
    [100.0, 0.0, 0.0, 0.0]
    """
    if len(counts) == 1:
        return np.array([total])
    if (counts >= STANDS_OUT * noise).all():
        return project(counts, total)
    expected = 0.0 if is_range else total * widths / math.fsum(widths)
    large = counts >= STANDS_OUT * noise + expected
    rest = total
    if large.any():
        rest -= math.fsum(counts[large])
        theirs, others = math.fsum(noise[large] ** 2), math.fsum(noise[~large] ** 2)
        # Given the total, the rest is also known from what stands out.
        doubt = DOUBT**2 * (others if is_range else theirs * others / (theirs + others))
        rest = rest - doubt / rest if rest * rest > doubt and rest > 0 else 0.0
    divided = np.zeros(len(counts))
    if rest > 0:
        divided[~large] = _smooth(rest, counts[~large], noise=noise[~large], widths=widths[~large])
    if large.any():
        divided[large] = project(counts[large], total - rest)
    return divided


def _smooth(total: float, counts: Floats, *, noise: Floats, widths: Floats) -> Floats:
    even = total * widths / math.fsum(widths)
    return project(even + shrunk(counts - even, variance=math.fsum(noise**2) / len(noise)), total)
