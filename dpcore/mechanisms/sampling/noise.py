"""Add integer noise of any scale to counts: from an inversion table, or by `wide` where a table would be too long."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import wide
from dpcore.mechanisms.sampling.inversion import has_table, inversion_table
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.protection import Sensitivity

Counts: TypeAlias = npt.NDArray[np.int64]

SMALLEST_SCALE = 0.01
"""Below this scale, noise is almost certainly zero and protects nobody."""

LARGEST_SCALE = 2.0**40
"""Above this scale, noise drowns any count. Up to it, a count with its noise fits easily in 64 bits."""


def checked_scale(scale: float) -> float:
    """Return a scale as a float. Raise if it is out of range."""
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise UsageError("a noise scale must be a finite number")
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        limits = f"from {SMALLEST_SCALE:g} to {LARGEST_SCALE:g}"
        raise UsageError(f"a noise scale must be {limits}; spend less for more noise, or more for less")
    return float(scale)


def checked_sensitivity(sensitivity: Sensitivity) -> Sensitivity:
    """Return the sensitivity. Raise if no movement of whole counts can have it."""
    if not isinstance(sensitivity, Sensitivity):
        raise UsageError("a sensitivity must be a Sensitivity with its three norms; derive it from a Protection")
    l1, l2_squared, linf = sensitivity.l1, sensitivity.l2_squared, sensitivity.linf
    if any(isinstance(norm, bool) or not isinstance(norm, int) for norm in (l1, l2_squared, linf)):
        raise UsageError(
            "a sensitivity's norms must be whole numbers, the L2 norm as its square; derive it from a Protection"
        )
    if not (1 <= linf <= l1 and linf**2 <= l2_squared <= l1 * linf):
        raise UsageError(
            "a sensitivity must have 1 <= linf <= l1 and linf^2 <= l2^2 <= l1 linf; derive it from a Protection"
        )
    return sensitivity


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
