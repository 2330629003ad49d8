"""Integer noise that is too wide for one table: Laplace noise digit by digit, Gaussian noise by rejection from it.

A geometric number G, of probability (1 - q) q^G, has independent digits in any base: with G the sum of g_j B^j, q^G is the
product of the q^(g_j B^j). So each digit is drawn from its own table with 128-bit thresholds. The last digit is drawn from the
table of a geometric number, cut where less than 2^-140 is left. G with a random sign is discrete Laplace noise, provided that
a negative zero, which would count the zero twice, is drawn again.

Discrete Gaussian noise is Laplace noise y of scale t, accepted with probability e^(-(|y| - sigma^2 / t)^2 / (2 sigma^2)): the
product is proportional to e^(-y^2 / (2 sigma^2)). About three in four are accepted at t = floor(sigma) + 1.

Tables and coins together are off by less than 2^-113.7, and at least three draws in four are accepted, so the noise is within 2^-113
of its distribution (`accounting.sampler`).

Reference: Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy, Alg. 3.
"""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.mechanisms.sampling import coins, entropy
from dpcore.mechanisms.sampling.inversion import InversionTable, table_of
from dpcore.mechanisms.sampling.thresholds import Shape, reach_of, weights_of

Draws: TypeAlias = npt.NDArray[np.int64]

BASE_BITS = 12
"""The bits of a digit. Its table takes a few milliseconds to build."""

_LAST_SCALE = 256.0
"""Above this scale the last digit is split once more. Its table has at most 25,000 outcomes."""

_BATCH = 1 << 16
"""Draws made at a time, so that the intermediate arrays fit in a processor's cache."""


def laplace(count: int, *, scale: float) -> Draws:
    """Return `count` independent, exact draws of discrete Laplace noise, at about 0.1 microseconds each."""
    digits = _digits(scale)
    return _until_accepted(count, lambda tried: _laplace_tries(tried, digits))


def gaussian(count: int, *, scale: float) -> Draws:
    """Return `count` independent, exact draws of discrete Gaussian noise, at about 0.2 microseconds each."""
    digits = _digits(float(math.floor(scale) + 1))
    return _until_accepted(count, lambda tried: _gaussian_tries(tried, digits, sigma=scale))


def _until_accepted(count: int, tries: Callable[[int], tuple[Draws, npt.NDArray[np.bool_]]]) -> Draws:
    """Return the first `count` accepted draws. Which ones are rejected depends on the noise alone."""
    noise = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        drawn, accepted = tries(min(count - filled, _BATCH))
        good = drawn[accepted]
        noise[filled : filled + good.size] = good
        filled += good.size
    return noise


def _laplace_tries(count: int, digits: tuple[InversionTable, ...]) -> tuple[Draws, npt.NDArray[np.bool_]]:
    """Return signed numbers, and a mask that excludes the negative zeros."""
    size = np.zeros(count, dtype=np.int64)
    for digit in reversed(digits):
        size <<= BASE_BITS
        size += digit.draw(count)
    signs = entropy.random_words(-(-count // 64)).view(np.uint8)
    minus = np.unpackbits(signs, count=count).astype(np.bool_)
    accepted = ~(minus & (size == 0))
    np.negative(size, out=size, where=minus)
    return size, accepted


def _gaussian_tries(
    count: int, digits: tuple[InversionTable, ...], *, sigma: float
) -> tuple[Draws, npt.NDArray[np.bool_]]:
    """Return Laplace noise, and a mask of the draws that are accepted as Gaussian noise.

    Let u = 2^-53 and z = (|y| - sigma^2 / t) / sigma. |y| is exact as a float, so the float of z is off by at most 5u (|z| + 2),
    and the float of x = z^2 / 2 by 5u |z| (|z| + 2) + 2u x. Times e^-x this is below 20u, and the exponential's own error is no
    larger: far within the 2^-41 that the coins allow. Beyond x = 64 both are within 2^-92 of 0.
    """
    noise, proper = _laplace_tries(count, digits)
    centre = sigma / (math.floor(sigma) + 1) * sigma
    exponents = (np.abs(noise) - centre) / sigma
    exponents *= exponents
    exponents *= -0.5
    np.maximum(exponents, -64.0, out=exponents)
    accepted = coins.flips(np.exp(exponents), exponent=lambda place: _exponent(int(noise[place]), sigma=sigma))
    return noise, proper & accepted


def _exponent(noise: int, *, sigma: float) -> Fraction:
    square = Fraction(sigma) ** 2
    return (abs(noise) - square / (math.floor(sigma) + 1)) ** 2 / (2 * square)


@lru_cache(maxsize=16)
def _digits(scale: float) -> tuple[InversionTable, ...]:
    """Return the tables of the digits of a geometric number of ratio e^(-1 / scale), lowest digit first."""
    tables, exact = [], Fraction(scale)
    while exact > _LAST_SCALE:
        tables.append(_geometric(exact, outcomes=1 << BASE_BITS))
        exact /= 1 << BASE_BITS
    return (*tables, _geometric(exact, outcomes=reach_of(Shape.LAPLACE, float(exact)) + 1))


def _geometric(scale: Fraction, *, outcomes: int) -> InversionTable:
    """Return the table of a number below `outcomes` with probabilities proportional to e^(-k / scale)."""
    # at most 25,000 errors of 2^-320 add up to far less than 2^-128
    *edges, total = itertools.accumulate(weights_of(Shape.LAPLACE, scale, outcomes=outcomes))
    return table_of([(edge << 128) // total for edge in edges], reach=0)
