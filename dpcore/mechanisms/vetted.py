"""What is drawn by opendp: selections, and noise that is too wide for a table. Loaded only when it is needed.

The randomness is opendp's own generator, which the operating system seeds.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace, make_noisy_max
from opendp.measures import max_divergence, zero_concentrated_divergence
from opendp.metrics import l1_distance, l2_distance, linf_distance
from opendp.mod import enable_features

from dpcore.mechanisms.thresholds import Shape

enable_features("contrib")

_MAKERS = {Shape.LAPLACE: (make_laplace, l1_distance), Shape.GAUSSIAN: (make_gaussian, l2_distance)}
"""What opendp can draw as whole numbers."""

_BATCH = 1 << 16
"""Draws made at a time: opendp takes and returns Python objects of many times an array's size."""


def integer_noise(count: int, *, shape: Shape, scale: float) -> npt.NDArray[np.int64]:
    """Return `count` independent draws of discrete noise of any scale: exact, and some 20 microseconds each."""
    vectors = vector_domain(atom_domain(T="i64"))
    make, distance = _MAKERS[shape]
    measurement = make(vectors, distance(T="i64"), scale=scale)
    noise = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BATCH):
        batch = noise[start : start + _BATCH]
        batch[:] = measurement(np.zeros(len(batch), dtype=np.int64))
    return noise


@lru_cache(maxsize=64)
def noisy_max(*, gumbel: bool, scale: float) -> Any:
    """Return opendp's measurement of the largest of noisy scores: with Gumbel noise, priced in rho; or exponential, in epsilon."""
    return make_noisy_max(
        vector_domain(atom_domain(T="i64")),
        linf_distance(T="i64"),
        zero_concentrated_divergence() if gumbel else max_divergence(),
        scale=scale,
    )
