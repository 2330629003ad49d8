"""Select a candidate with the exact probabilities of the exponential mechanism or of permute-and-flip.

Both depend on how far each score is behind the best, d = max - s, a whole number from 0 to 2^64 - 1, and on an exact fraction,
the rate. All randomness comes from `entropy`. The running time depends on the number of candidates, not on their scores,
except in the rare case of a random number so close to an edge that hundreds of bits are needed to decide.
"""

import itertools
import math
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import coins, entropy, uniform
from dpcore.privacy.accounting.rounding import as_real, real

Differences: TypeAlias = npt.NDArray[np.uint64]

_BITS = 320
"""Fixed-point precision of weights where a selection is decided exactly: errors of 2^-320 per candidate."""

_FAR = 200
"""Beyond this exponent a weight, below 2^-288, counts as zero against the best one's 1."""


def behind_best(scores: npt.NDArray[np.int64]) -> Differences:
    """Return how far each score is behind the best. Raise unless the scores are 64-bit integers.

    The difference of any two 64-bit integers is correct as an unsigned integer, even if it wraps around.
    """
    if not isinstance(scores, np.ndarray) or scores.dtype != np.int64 or scores.ndim != 1:
        raise UsageError("scores must be a one-dimensional array of 64-bit integers; round them to a grid first")
    if scores.size == 0:
        raise UsageError("there is nothing to select from; offer at least one candidate")
    differences: Differences = scores.max(keepdims=True).view(np.uint64) - scores.astype(np.uint64)
    return differences


def permute_and_flip(differences: Differences, *, rate: Fraction) -> int:
    """Return the first candidate in a random order whose coin, of probability e^(-rate d), comes up heads.

    The coins do not depend on the order. So all of them are flipped, and one of the heads is chosen uniformly: in a random
    order each of them comes first with the same probability. The coin of a best candidate is always heads.
    """
    accepted = coins.exp_minus(differences, rate=rate).nonzero()[0]
    return int(accepted[uniform.below(accepted.size, 1)[0]])


def softmax(differences: Differences, *, rate: Fraction) -> int:
    """Return a candidate with probability proportional to e^(-rate d), within 2^-128.

    The weights are laid end to end, and a uniform point on that line lies on the weight of the selected candidate. Weights are
    floats and are summed in chunks. The candidates at both ends of a margin around the point are looked up. If they are the
    same, that candidate is the exact one. Proof: let u = 2^-53, w the length of a chunk, b the number of chunks, n the number of
    candidates and S the sum of the weights, at least 1. Weights are off by 2^-43 or, far ones, by 2^-92 (`coins.exp_estimates`);
    a sum over w terms and one over b add (w + b) u S in whatever order they are taken. So each edge is off by at most r S with
    r = (w + b + 2) u + 2^-43 + n 2^-92, and the point, a product with S of a 64-bit number, by (r + 4u) S. Together that is below
    (w + b + 1500) 2^-52 S for less than 2^40 candidates, and the margin is larger.
    """
    high, low = entropy.random_words(2).tolist()
    weights = coins.exp_estimates(differences, rate=rate)
    width = math.isqrt(weights.size - 1) + 1
    ends = np.add.reduceat(weights, np.arange(0, weights.size, width)).cumsum()
    total = float(ends[-1])
    margin = total * (width + ends.size + 2048) * 2.0**-52
    point = high * 2.0**-64 * total

    def place(at: float) -> int:
        chunk = min(int(ends.searchsorted(at, side="right")), ends.size - 1)
        edges = weights[chunk * width : (chunk + 1) * width].cumsum()
        edges += ends[chunk - 1] if chunk else 0.0
        return min(chunk * width + int(edges.searchsorted(at, side="right")), weights.size - 1)

    first, last = place(point - margin), place(point + margin)
    return first if first == last else _settled(differences, rate=rate, number=high << 64 | low)


def _settled(differences: Differences, *, rate: Fraction, number: int) -> int:
    """Return the candidate on whose weight the point number / 2^128 lies, computed with weights of 320 bits."""
    levels, level_of = np.unique(differences, return_inverse=True)
    weights = [_weight(rate * level) for level in levels.tolist()]
    edges = list(itertools.accumulate(weights[level] for level in level_of.tolist()))
    point = number * edges[-1]
    return next(place for place, edge in enumerate(edges) if edge << 128 > point)


def _weight(exponent: Fraction) -> int:
    return 0 if exponent > _FAR else int(real.ldexp(real.exp(-as_real(exponent)), _BITS))
