"""Selecting among candidates by exact probabilities: the exponential mechanism's, and permute-and-flip's.

Both go by how far each score is behind the best, d = max - s, a whole number from 0 to 2^64 - 1, and by an exact fraction c. All
randomness is `entropy`'s. How long a selection takes depends on the number of candidates, not on their scores, up to the rare
case of a random number so close to an edge that it is settled with hundreds of bits.
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
"""Fixed-point precision of weights where a selection is settled exactly: errors of 2^-320 per candidate."""

_FAR = 200
"""An exponent from which on a weight, below 2^-288, counts as nothing beside the best one's 1."""


def behind_best(scores: npt.NDArray[np.int64]) -> Differences:
    """Return how far each score is behind the best, or refuse what are no scores.

    The difference of any two 64-bit integers is right as an unsigned one, whatever wraps around on the way.
    """
    if not isinstance(scores, np.ndarray) or scores.dtype != np.int64 or scores.ndim != 1:
        raise UsageError("scores must be a one-dimensional array of 64-bit integers; put them on a whole grid first")
    if scores.size == 0:
        raise UsageError("there is nothing to select from; offer at least one candidate")
    differences: Differences = scores.max(keepdims=True).view(np.uint64) - scores.astype(np.uint64)
    return differences


def permute_and_flip(differences: Differences, *, rate: Fraction) -> int:
    """Return the first candidate in a random order whose coin, of probability e^(-rate d), says yes.

    The coins do not depend on the order. So all of them are flipped, and in a random order any of those that say yes comes
    first with the same probability. The coin of a best candidate always says yes.
    """
    accepted = np.cumsum(coins.exp_minus(differences, rate=rate))
    rank = uniform.below(int(accepted[-1]), 1)[0]
    return int(np.searchsorted(accepted, rank, side="right"))


def softmax(differences: Differences, *, rate: Fraction) -> int:
    """Return a candidate with probability proportional to e^(-rate d), within 2^-128.

    A uniform point on a line of the length of all weights lies on the weight of the selected one. The weights are floats,
    their sums are taken in chunks, and the candidates at either end of a margin around the point are found. If they are one and
    the same, it is the exact one. To see it, let u = 2^-53, w the length of a chunk, b the number of chunks and S the sum of the
    weights, at least 1. Weights are off by 2^-43 or, far ones, by 2^-92 (`coins.exp_estimates`); a sum over w terms and one over b
    add (w + b) u S in whatever order they are taken. So each edge is off by at most r S with r = (w + b + 2) u + 2^-43 + n 2^-92,
    and the point, a product with S of a 64-bit number, by (r + 4u) S. Together that is below (w + b + 1500) 2^-52 S for
    less than 2^40 candidates, and the margin is more.
    """
    high, low = entropy.random_words(2).tolist()
    weights = coins.exp_estimates(differences, rate=rate)
    width = math.isqrt(weights.size - 1) + 1
    ends = np.cumsum(np.add.reduceat(weights, np.arange(0, weights.size, width)))
    total = float(ends[-1])
    margin = total * (width + ends.size + 2048) * 2.0**-52
    point = high * 2.0**-64 * total

    def place(at: float) -> int:
        chunk = min(int(np.searchsorted(ends, at, side="right")), ends.size - 1)
        edges = np.cumsum(weights[chunk * width : (chunk + 1) * width])
        edges += ends[chunk - 1] if chunk else 0.0
        return min(chunk * width + int(np.searchsorted(edges, at, side="right")), weights.size - 1)

    first, last = place(point - margin), place(point + margin)
    return first if first == last else _settled(differences, rate=rate, number=high << 64 | low)


def _settled(differences: Differences, *, rate: Fraction, number: int) -> int:
    """Return the candidate on whose weight the point number / 2^128 lies, with weights of 320 bits."""
    levels, level_of = np.unique(differences, return_inverse=True)
    weights = [_weight(rate * level) for level in levels.tolist()]
    edges = list(itertools.accumulate(weights[level] for level in level_of.tolist()))
    point = number * edges[-1]
    return next(place for place, edge in enumerate(edges) if edge << 128 > point)


def _weight(exponent: Fraction) -> int:
    return 0 if exponent > _FAR else int(real.ldexp(real.exp(-as_real(exponent)), _BITS))
