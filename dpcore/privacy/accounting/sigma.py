"""The sigma of Gaussian noise that an (epsilon, delta) needs, and the delta of discrete Gaussian noise.

The profile of continuous noise, delta as a function of epsilon, is `gaussian.gdp_to_delta` at mu^2 = l2^2 / sigma^2.
"""

from fractions import Fraction
from typing import Any

from dpcore.errors import UsageError
from dpcore.privacy.accounting.gaussian import epsilon_to_gdp
from dpcore.privacy.accounting.groups import checked_size
from dpcore.privacy.accounting.rounding import as_real, below_one, positive, real, rounded_up

_SIGMAS = (Fraction(1, 100), 1e4)
"""The range of discrete sigmas whose profile is summed term by term."""

_BITS, _FINE = 512, 340
"""The bits of a term in such a sum; and the sum ends with a term that is 2^-340 of the first."""


def analytic_gaussian_sigma(
    epsilon: Fraction | float, *, delta: Fraction | float, l2_squared: Fraction | float
) -> float:
    """Return the least sigma of continuous Gaussian noise that satisfies (epsilon, delta), rounded up by at most 1e-12 of it.

    Assumptions:
        Continuous noise, or post-processing of counts with such noise. Not for the discrete Gaussian, whose profile is above.

    Reference:
        Balle and Wang 2018, Thm. 8 of arXiv:1805.06530v2.

    >>> 3.7306316348159 < analytic_gaussian_sigma(1.0, delta=1e-5, l2_squared=1) < 3.73063163483
    True
    """
    squared = positive(l2_squared, what="an L2 sensitivity", smallest=Fraction(1, 10**30), largest=1e30)
    return rounded_up(real.sqrt(as_real(squared) / as_real(epsilon_to_gdp(epsilon, delta=delta))))


def classic_gaussian_sigma(
    epsilon: Fraction | float, *, delta: Fraction | float, l2_squared: Fraction | float
) -> float:
    """Return the sigma of the classic bound, l2 sqrt(2 ln(1.25 / delta)) / epsilon, rounded up.

    Assumptions:
        An epsilon below 1; larger ones are rejected, because the bound is not proved for them and is wrong for large ones.
        Continuous noise.

    Reference:
        Dwork and Roth 2014, Thm. A.1.
    """
    exact = positive(epsilon, what="epsilon", smallest=Fraction(1e-12))
    if exact >= 1:
        raise UsageError(
            "the classic Gaussian bound holds for an epsilon below 1 only; use analytic_gaussian, which holds for any"
        )
    squared = positive(l2_squared, what="an L2 sensitivity", smallest=Fraction(1, 10**30), largest=1e30)
    return rounded_up(
        real.sqrt(2 * as_real(squared) * real.ln(as_real(Fraction(5, 4) / below_one(delta)))) / as_real(exact)
    )


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
