"""The distribution functions of integer noise as whole numbers: floor(2^128 F(k)) for every k that can be drawn."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from dpcore.mechanisms.descriptions import Named
from dpcore.privacy.accounting.normal import upper_tail
from dpcore.privacy.accounting.rounding import as_real, real

_BITS = 320
"""Fixed-point precision while a table is built: the recurrence adds up reach^3 errors of 2^-320, far below 2^-128."""

_FACTOR_BITS = 256
"""Precision of the factors that turn weights into masses of intervals: reach errors of some 2^-252 add up to 2^-234."""

_NARROW = 1.0
"""Below this sigma there are few outcomes, and each is evaluated separately."""


class Shape(Named):
    """The distributions of integer noise. The shape decides which currencies can pay, so it has no default."""

    LAPLACE = "discrete-laplace"
    """p(k) ~ e^(-|k| / scale)."""
    GAUSSIAN = "discrete-gaussian"
    """p(k) ~ e^(-k^2 / (2 scale^2))."""
    ROUNDED_GAUSSIAN = "rounded-gaussian"
    """p(k) = Phi((k + 1/2) / scale) - Phi((k - 1/2) / scale): continuous noise, rounded to the nearest whole number."""


def reach_of(shape: Shape, scale: float) -> int:
    """Return the largest noise that can be drawn. Less than 2^-140 of the distribution lies beyond it."""
    return math.ceil((98 if shape is Shape.LAPLACE else 14) * scale) + 1


def thresholds(shape: Shape, scale: float) -> list[int]:
    """Return floor(2^128 F(k)) for k = -reach .. reach - 1, computed from one half of the symmetric distribution."""
    if shape is Shape.ROUNDED_GAUSSIAN:
        lower = [tail >> (_BITS - 128) for tail in _rounded_tails(scale)]
        # 1 - F is never a multiple of 2^-128, so the floor of one is the complement of the floor of the other
        return lower + [(1 << 128) - 1 - tail for tail in reversed(lower)]
    weights = weights_of(shape, scale, outcomes=reach_of(shape, scale) + 1)
    # the weights of -reach, then of -reach and -reach + 1, and so on: the smallest terms come first
    tails = list(itertools.accumulate(reversed(weights[1:])))
    total = weights[0] + 2 * tails[-1]
    parts = [divmod(tail << 128, total) for tail in tails]
    lower = [whole for whole, _ in parts]
    # the floor of 1 - F, and a tail that underflows the fixed point still has weight, so F stays below 1
    upper = [(1 << 128) - max(1, whole + (rest > 0)) for whole, rest in reversed(parts)]
    return lower + upper


def weights_of(shape: Shape, scale: Fraction | float, *, outcomes: int) -> list[int]:
    """Return 2^320 p(k) / p(0) for the first k from 0 on, by p(k+1) = p(k) r(k) and r(k+1) = r(k) step."""
    inverse = 1 / Fraction(scale)
    if shape is Shape.LAPLACE:
        ratio, step = _exp_of_minus(inverse), 1 << _BITS
    else:
        ratio, step = _exp_of_minus(inverse**2 / 2), _exp_of_minus(inverse**2)
    weights = [1 << _BITS]
    for _ in range(outcomes - 1):
        weights.append((weights[-1] * ratio) >> _BITS)
        ratio = (ratio * step) >> _BITS
    return weights


def _exp_of_minus(exponent: Fraction) -> int:
    return int(real.ldexp(real.exp(-as_real(exponent)), _BITS))


def _rounded_tails(sigma: float) -> Iterator[int]:
    """Yield 2^320 F(-k) of rounded Gaussian noise for k = reach .. 1: the mass beyond reach, then one interval more each time."""
    reach = reach_of(Shape.ROUNDED_GAUSSIAN, sigma)
    if sigma < _NARROW:
        yield from (_tail_beyond(k, sigma) for k in range(reach, 0, -1))
        return
    shift = (reach * reach).bit_length()
    first, *others = reversed(_interval_series(sigma, shift=shift))
    weights = weights_of(Shape.GAUSSIAN, sigma, outcomes=reach + 1)
    tail = _tail_beyond(reach + 1, sigma)
    for k in range(reach, 0, -1):
        square, factor = k * k, first
        for coefficient in others:
            factor = ((factor * square) >> shift) + coefficient
        tail += (weights[k] * factor) >> _FACTOR_BITS
        yield tail


def _tail_beyond(k: int, sigma: float) -> int:
    """Return 2^320 times the normal mass below -(k - 1/2)."""
    return int(real.ldexp(upper_tail((k - real.mpf(0.5)) / as_real(sigma)), _BITS))


def _interval_series(sigma: float, *, shift: int) -> list[int]:
    """Return the coefficients, times 2^256, of the factor that turns the weight of k into the mass of k - 1/2 .. k + 1/2.

    That mass is e^(-k^2 / (2 sigma^2)) / (sigma sqrt(2 pi)) times the integral of cosh(k u / sigma^2) e^(-u^2 / (2
    sigma^2)) over u from -1/2 to 1/2. The factor is a power series in k^2 / 2^shift, which stays below 1. Its terms are
    the even moments of the last exponential over that interval, all of them positive. Integration by parts gives each
    moment from the next higher one, by a sum without cancellation in which errors shrink. The recurrence may therefore
    start with 0 in place of some high moment.
    """
    precision = 1 / as_real(sigma) ** 2
    growth = real.ldexp(precision**2, shift)
    terms = _terms_needed(growth)
    edge = real.exp(-precision / 8)
    moment = real.mpf(0)
    moments = []
    for n in range(terms + 40, -1, -1):
        moment = (moment * precision + real.ldexp(edge, -2 * n)) / (2 * n + 1)
        moments.append(moment)
    scale = real.sqrt(precision / (2 * real.pi))
    coefficients = []
    for n, moment in enumerate(reversed(moments[-terms:])):
        coefficients.append(int(real.ldexp(moment * scale, _FACTOR_BITS)))
        scale *= growth / ((2 * n + 1) * (2 * n + 2))
    return coefficients


def _terms_needed(growth: Any) -> int:
    """Return the number of terms after which the rest of the series, which falls faster than geometrically, is below 2^-256."""
    bound, terms = real.mpf(1), 0
    while bound > real.ldexp(1, -_FACTOR_BITS):
        terms += 1
        bound *= growth / (4 * (2 * terms) * (2 * terms + 1))
    return terms
