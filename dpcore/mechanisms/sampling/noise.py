"""Integer noise at any scale, added to counts: from an inversion table, or in parts where a table would be too long."""

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
"""Below it, noise is all but certainly zero and protects nobody."""

LARGEST_SCALE = 2.0**40
"""Above it, noise drowns any count; and up to it, a count with its noise is far within 64 bits."""


def checked_scale(scale: float) -> float:
    """Return a scale as a plain float, or refuse it."""
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise UsageError("a scale of noise must be a finite number")
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        limits = f"from {SMALLEST_SCALE:g} to {LARGEST_SCALE:g}"
        raise UsageError(f"a scale of noise must be {limits}; spend less for more noise, or more for less")
    return float(scale)


def checked_sensitivity(sensitivity: Sensitivity) -> Sensitivity:
    """Return a sensitivity that some movement of whole counts can have, or refuse it."""
    if not isinstance(sensitivity, Sensitivity):
        raise UsageError("a sensitivity is a Sensitivity, with its three norms; derive it from a Protection")
    l1, l2_squared, linf = sensitivity.l1, sensitivity.l2_squared, sensitivity.linf
    if any(isinstance(norm, bool) or not isinstance(norm, int) for norm in (l1, l2_squared, linf)):
        raise UsageError("a sensitivity is given in whole numbers, the L2 one as its square")
    if not (1 <= linf <= l1 and linf**2 <= l2_squared <= l1 * linf):
        raise UsageError(
            "a sensitivity must have 1 <= linf <= l1 and linf^2 <= l2^2 <= l1 linf; derive it from a Protection"
        )
    return sensitivity


def with_noise(counts: Counts, *, shape: Shape, scale: float) -> Counts:
    """Return the counts, each with its own draw of noise added.

    The noise is drawn without looking at the counts. A sum beyond 64 bits wraps around: that is a function of the exact
    sum and so costs no privacy, where an error would tell that the count was large.
    """
    if not isinstance(counts, np.ndarray) or counts.dtype != np.int64:
        raise UsageError("noise is added to an array of 64-bit integers; convert the counts first")
    return counts + integer_noise(counts.size, shape=shape, scale=scale).reshape(counts.shape)


def integer_noise(count: int, *, shape: Shape, scale: float) -> Counts:
    """Return `count` independent draws of noise."""
    if has_table(shape, scale):
        return inversion_table(shape, scale).draw(count)
    if shape is Shape.ROUNDED_GAUSSIAN:
        raise UsageError("rounded Gaussian noise this wide has no table; add discrete Gaussian noise instead")
    draw = wide.laplace if shape is Shape.LAPLACE else wide.gaussian
    return draw(count, scale=scale)
