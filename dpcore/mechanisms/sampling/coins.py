"""Exact biased coins: a uniform 128-bit number is compared with floor(2^128 p).

The first 64 bits decide almost every coin, and the other 64 are drawn only if they don't. So a coin's probability is p within
2^-128, and exactly p where 2^128 p is a whole number, 0 and 1 included.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import entropy
from dpcore.mechanisms.sampling.uniform import checked_count
from dpcore.privacy.accounting.rounding import as_real, real
from dpcore.scalars import is_whole

Flips: TypeAlias = npt.NDArray[np.bool_]

LARGEST_RATE = 2**64
"""The largest exponent per step of difference. Beyond it, the coin of any difference above 0 is certain anyway."""

MARGIN = 2.0**-40
"""A coin whose number lies this close to its estimated probability is compared exactly."""

_FARTHEST = 64.0
"""Larger exponents are estimated as this one: e^-64 is 2^-92, negligible against the margin."""

_HALF, _LOWER, _FIRST = np.uint64(32), np.uint64(2**32 - 1), np.uint64(11)
"""The shift for the upper half of a word, the mask for its lower half, and the shift that leaves the 53 bits of a float."""


def threshold(probability: Fraction | Any) -> int:
    """Return floor(2^128 p) for a fraction, or for a real number of `accounting.rounding`.

    >>> threshold(Fraction(3, 4)) == 3 << 126
    True
    """
    if not 0 <= probability <= 1:
        raise UsageError("a coin's probability must be from 0 to 1")
    if isinstance(probability, Fraction):
        return (probability.numerator << 128) // probability.denominator
    return int(real.floor(real.ldexp(real.mpf(probability), 128)))


def biased(threshold: int, count: int) -> Flips:
    """Return `count` independent coins, each of them True with probability threshold / 2^128, exactly."""
    if not is_whole(threshold) or not 0 <= threshold <= 1 << 128:
        raise UsageError("a coin's threshold must be a whole number from 0 to 2^128; make it with coins.threshold")
    words = entropy.random_words(checked_count(count))
    if threshold == 1 << 128:
        return np.ones(count, dtype=np.bool_)
    high, low = np.uint64(threshold >> 64), np.uint64(threshold % (1 << 64))
    heads: Flips = words < high
    tied = (words == high).nonzero()[0]
    if tied.size:
        heads[tied] = entropy.random_words(tied.size) < low
    return heads


def exp_minus(differences: npt.NDArray[np.uint64], *, rate: Fraction) -> Flips:
    """Return an independent coin for each difference d, True with probability e^(-rate d).

    The running time does not depend on the differences, except for a comparison at 400 bits for one coin in 2^39.
    """
    return flips(exp_estimates(differences, rate=rate), exponent=lambda place: rate * int(differences[place]))


def exp_estimates(differences: npt.NDArray[np.uint64], *, rate: Fraction) -> npt.NDArray[np.float64]:
    """Return e^(-rate d) for each difference d as a float, with a relative error below 2^-43, or an absolute one of 2^-92.

    Let u = 2^-53. The float of the rate, the float of d (the sum of two exact floats) and their product each have a relative
    error of at most u. So the exponent x is off by x (3u + 4u^2), and e^-x by at most 64 (3u + 4u^2) < 2^-45.4 up to x = 64.
    The library's exponential adds its own error of about one unit in the last place, 2^-52; the bound leaves room for 200 of
    them. Beyond x = 64 both the result and the exact value are within e^-64 < 2^-92 of 0. Nothing overflows or underflows.
    """
    if not 0 < rate <= LARGEST_RATE:
        raise UsageError("the rate of an exponential must be above 0 and at most 2^64; use a coarser grid of scores")
    # in halves of 32 bits: a processor that converts only signed numbers would branch for those beyond 2^63
    exponents = (differences >> _HALF).view(np.int64).astype(np.float64)
    exponents *= 2.0**32
    exponents += (differences & _LOWER).view(np.int64)
    exponents *= -float(rate)
    np.maximum(exponents, -_FARTHEST, out=exponents)
    np.exp(exponents, out=exponents)
    return exponents


def flips(estimates: npt.NDArray[np.float64], *, exponent: Callable[[int], Fraction]) -> Flips:
    """Return independent coins of probability e^-x, given estimates of e^-x and, on demand, the exact exponents x.

    A coin is U < p with U uniform. The float of its first 53 bits is within 2^-53 of U, and the float of their difference to
    the estimate is within 2^-53 of the exact difference. So if the estimate is within 2^-41 of p, a difference of at least the
    margin of 2^-40 has the right sign. Any other coin is decided by all 128 bits.

    Args:
        estimates: e^-x of each coin, within 2^-41.
        exponent: Returns the exact x of the coin at an index.
    """
    words = entropy.random_words(estimates.size)
    gaps = (words >> _FIRST).view(np.int64) * 2.0**-53
    gaps -= estimates
    heads: Flips = gaps < 0
    close = (np.abs(gaps) < MARGIN).nonzero()[0]
    if close.size:
        for place, low in zip(close.tolist(), entropy.random_words(close.size).tolist(), strict=True):
            heads[place] = (int(words[place]) << 64 | low) < exp_threshold(exponent(place))
    return heads


def exp_threshold(exponent: Fraction) -> int:
    """Return floor(2^128 e^-x), computed at 400 bits."""
    if exponent > 128:
        return 0  # 2^128 e^-128 is far below 1; this also avoids the exponential of huge numbers
    return threshold(real.exp(-as_real(exponent)))
