"""Noise that no run draws: the price of continuous Laplace noise, and the exact profile of discrete Gaussian noise."""

from fractions import Fraction
from typing import Any

from dpcore.privacy.accounting.amounts import checked_size
from dpcore.privacy.accounting.rounding import as_real, positive, real, rounded_up

_LEAST, _MOST = Fraction(1, 10**30), 1e6
"""The range of epsilon. Below, differences of nearly equal numbers lose their digits; no account goes above."""

_SIGMAS = (Fraction(1, 100), 1e4)
"""The range of discrete sigmas whose profile is summed term by term."""

_BITS, _FINE = 512, 340
"""The bits of a term in such a sum; and the sum ends with a term that is 2^-340 of the first."""


def laplace_zcdp(epsilon: Fraction | float) -> float:
    """Return the rho of continuous Laplace noise at sensitivity / scale = epsilon: epsilon + e^-epsilon - 1.

    It does not hold for discrete noise, which costs more (`discrete_laplace_zcdp`).

    Reference: Harrison and Manurangsi 2025.
    """
    exact = as_real(positive(epsilon, what="epsilon", smallest=_LEAST, largest=_MOST))
    return rounded_up(exact + real.exp(-exact) - 1)


def discrete_gaussian_delta(epsilon: Fraction | float, *, sigma_squared: Fraction | float, shift: int) -> float:
    """Return the least delta at an epsilon of discrete Gaussian noise on one whole number that moves by at most `shift`, rounded up.

    With m = epsilon sigma^2 / shift - shift / 2, it is P(k > m) - e^epsilon P(k > m + shift). For a small sigma it exceeds the profile
    of continuous noise, so that profile must not be used for it.

    Reference:
        Canonne, Kamath and Steinke 2020, for the exact delta of discrete Gaussian noise.
    """
    squared = positive(sigma_squared, what="sigma squared", smallest=_SIGMAS[0] ** 2, largest=_SIGMAS[1] ** 2)
    distance = checked_size(shift)
    promised = Fraction(0) if epsilon == 0 else positive(epsilon, what="epsilon", largest=1e6)
    middle = promised * squared / distance - Fraction(distance, 2)
    above, far = _weight_above(middle, squared), _weight_above(middle + distance, squared)
    whole = 1 + 2 * _weight_above(Fraction(0), squared)
    delta = (above - real.exp(as_real(promised)) * far) / whole
    return min(rounded_up(delta), 1.0)


def _weight_above(bound: Fraction, squared: Fraction) -> Any:
    """Return the sum of e^(-k^2 / (2 sigma^2)) over whole k above a bound, to 2^-300 of it."""
    if bound < 0:
        # the whole sum less the terms at or below the bound, which by symmetry are those above its mirror image or on it
        whole = 1 + 2 * _weight_above(Fraction(0), squared)
        on = real.exp(-as_real(bound**2 / (2 * squared))) if bound.denominator == 1 else 0
        return whole - _weight_above(-bound, squared) - on
    k = bound // 1 + 1
    # fixed point, in units of 2^-512 of the first term: ten times as fast, and each step loses a few units to rounding
    ratio = _fixed(real.exp(-as_real(Fraction(2 * k + 1) / (2 * squared))))
    shrink = _fixed(real.exp(-1 / as_real(squared)))
    total, term, least = 0, 1 << _BITS, 1 << (_BITS - _FINE)
    while term > least:
        total += term
        term = term * ratio >> _BITS
        ratio = ratio * shrink >> _BITS
    return real.exp(-as_real(Fraction(k * k) / (2 * squared))) * real.mpf(total) / real.mpf(1 << _BITS)


def _fixed(number: Any) -> int:
    return int(number * (1 << _BITS))
