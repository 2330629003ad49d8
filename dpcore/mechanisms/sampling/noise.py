"""Add integer noise of any scale to counts: from an inversion table, or by `wide` where a table would be too long."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import wide
from dpcore.mechanisms.sampling.inversion import has_table, inversion_table
from dpcore.mechanisms.sampling.thresholds import Shape

Counts: TypeAlias = npt.NDArray[np.int64]

SMALLEST_SCALE = 0.01
"""Below this scale, noise is almost certainly zero and protects nobody."""

LARGEST_SCALE = 2.0**40
"""Above this scale, noise drowns any count. Up to it, a count with its noise fits easily in 64 bits."""


def with_noise(counts: Counts, *, shape: Shape, scale: float) -> Counts:
    """Return the counts, each with its own draw of noise added.

    The noise is drawn without looking at the counts. A sum beyond 64 bits wraps around. This is post-processing of the
    exact sum and costs no privacy, whereas an error would reveal that the count was large.
    """
    if not isinstance(counts, np.ndarray) or counts.dtype != np.int64:
        raise UsageError("counts must be an array of 64-bit integers; convert them first")
    return counts + integer_noise(counts.size, shape=shape, scale=scale).reshape(counts.shape)


def integer_noise(count: int, *, shape: Shape, scale: float) -> Counts:
    """Return `count` independent draws of noise."""
    if has_table(shape, scale):
        return inversion_table(shape, scale).draw(count)
    if shape is Shape.ROUNDED_GAUSSIAN:
        raise UsageError("rounded Gaussian noise this wide has no table; add discrete Gaussian noise instead")
    draw = wide.laplace if shape is Shape.LAPLACE else wide.gaussian
    return draw(count, scale=scale)
