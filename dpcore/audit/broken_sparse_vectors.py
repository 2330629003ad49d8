"""Published forms of the sparse vector technique that are not private, planted to see that the audit catches them.

Lyu, Su and Li 2017 found them. Here their noise is discrete and comes from installed code, the sensitivity is 1 and the threshold 0. Each has
neighbours and answers by which it is caught.
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
    """A form that claims to be epsilon-DP, and is not.

    Attributes:
        name: Whose it is.
        how: What is wrong with it.
        epsilon: What it claims.
        threshold_scale: The scale of the threshold's noise.
        value_scale: The scale of each value's noise; None if there is none.
        negatives: How many values come first that are to be negative, and where they lie on one neighbour; on the other, one higher.
        positives: How many follow that are to be positive, and where they lie; on the other neighbour, one lower.
        shown_below: If a positive answer is the noisy value itself: it is to be below this.
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
        """The values on the other."""
        return [self.negatives[1] + 1] * self.negatives[0] + [self.positives[1] - 1] * self.positives[0]

    def seen(self, values: list[int]) -> Draw:
        """Return sessions, each told by whether it gave the answers that are looked for."""

        def draw(count: int) -> Outcomes:
            noisy = np.array(values) + _noise((count, len(values)), self.value_scale)
            above = noisy >= _noise((count, 1), self.threshold_scale)
            first = self.negatives[0]
            found = np.logical_and(~above[:, :first].any(axis=1), above[:, first:].all(axis=1))
            if self.shown_below is not None:
                found = np.logical_and(found, noisy[:, first] < self.shown_below)
            return np.asarray(found, dtype=np.int64)

        return draw


def _noise(shape: tuple[int, int], scale: float | None) -> npt.NDArray[np.int64]:
    counts = np.zeros(shape, dtype=np.int64)
    return counts if scale is None else DiscreteLaplace(scale=scale, sensitivity=Sensitivity(1, 1, 1)).draw(counts)


BROKEN_SPARSE_VECTORS = (
    BrokenSparseVector(
        name="Roth 2011 (Alg. 3)",
        how="the noisy value that was compared is shown, without noise of its own",
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
        how="the values get no noise, and there is no last positive",
        epsilon=2.0,
        threshold_scale=1.0,
        value_scale=None,
        negatives=(1, 0),
        positives=(1, 1),
    ),
    BrokenSparseVector(
        name="Chen et al. 2015 (Alg. 6)",
        how="there is no last positive",
        epsilon=2.0,
        threshold_scale=1.0,
        value_scale=1.0,
        negatives=(4, -1),
        positives=(4, 0),
    ),
)
