"""Published variants of the sparse vector technique that are not private, planted to test that the audit catches them.

Lyu, Su and Li 2017 refuted them. Here their noise is discrete and drawn by the installed code, the sensitivity is 1 and the threshold 0.
Each comes with the neighbours and the answers that expose it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore.audit.checks import Draw
from dpcore.audit.events import Outcomes
from dpcore.mechanisms import DiscreteLaplace
from dpcore.privacy.protection import Sensitivity


@dataclass(frozen=True, kw_only=True)
class BrokenSparseVector:
    """A variant that claims epsilon-DP but is not.

    Attributes:
        name: Its authors and year.
        how: What is wrong with it.
        epsilon: The epsilon it claims.
        threshold_scale: The scale of the threshold's noise.
        value_scale: The scale of each value's noise; None for no noise.
        negatives: The number of values, asked first, whose expected answer is negative, and their value on one neighbour. On the other
            neighbour they are one higher.
        positives: The number of values after them whose expected answer is positive, and their value on one neighbour. On the other
            neighbour they are one lower.
        shown_below: If a positive answer shows the noisy value, the bound that this value must be below.
    """

    name: str
    how: str
    epsilon: float
    threshold_scale: float
    value_scale: float | None
    negatives: tuple[int, int]
    positives: tuple[int, int]
    shown_below: int | None = None

    @property
    def here(self) -> list[int]:
        """The values on one neighbour."""
        return [self.negatives[1]] * self.negatives[0] + [self.positives[1]] * self.positives[0]

    @property
    def there(self) -> list[int]:
        """The values on the other neighbour."""
        return [self.negatives[1] + 1] * self.negatives[0] + [self.positives[1] - 1] * self.positives[0]

    def seen(self, values: list[int]) -> Draw:
        """Return draws of sessions, each reported as whether it gave the expected answers."""

        def draw(count: int) -> Outcomes:
            noisy = np.array(values) + _noise((count, len(values)), self.value_scale)
            above = noisy >= _noise((count, 1), self.threshold_scale)
            first = self.negatives[0]
            as_expected = ~above[:, :first].any(axis=1) & above[:, first:].all(axis=1)
            if self.shown_below is not None:
                as_expected &= noisy[:, first] < self.shown_below
            return np.asarray(as_expected, dtype=np.int64)

        return draw


def _noise(shape: tuple[int, int], scale: float | None) -> npt.NDArray[np.int64]:
    counts = np.zeros(shape, dtype=np.int64)
    return counts if scale is None else DiscreteLaplace(scale=scale, sensitivity=Sensitivity(1, 1, 1)).draw(counts)


BROKEN_SPARSE_VECTORS = (
    BrokenSparseVector(
        name="Roth 2011 (Alg. 3)",
        how="the noisy value that was compared is shown, without fresh noise",
        epsilon=1.0,
        threshold_scale=2.0,
        value_scale=2.0,
        negatives=(4, -2),
        positives=(1, -2),
        shown_below=0,
    ),
    BrokenSparseVector(
        name="Lee and Clifton 2014 (Alg. 4)",
        how="the values' noise does not grow with the number of positives",
        epsilon=2.0,
        threshold_scale=2.0,
        value_scale=2 / 3,
        negatives=(4, -1),
        positives=(2, 0),
    ),
    BrokenSparseVector(
        name="Stoddard et al. 2014 (Alg. 5)",
        how="the values get no noise, and the number of positives is unlimited",
        epsilon=2.0,
        threshold_scale=1.0,
        value_scale=None,
        negatives=(1, 0),
        positives=(1, 1),
    ),
    BrokenSparseVector(
        name="Chen et al. 2015 (Alg. 6)",
        how="the number of positives is unlimited",
        epsilon=2.0,
        threshold_scale=1.0,
        value_scale=1.0,
        negatives=(4, -1),
        positives=(4, 0),
    ),
)
