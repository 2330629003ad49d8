"""Convert mu-GDP to (epsilon, delta) and back, and to pure epsilon; and the sigma of Gaussian noise for (epsilon, delta).

A mechanism is mu-GDP if its outputs on neighbours are at least as hard to tell apart as N(0, 1) and N(mu, 1). It is then
(epsilon, delta)-DP for every epsilon, with

    delta = Phi(-a) - e^epsilon Phi(-b),    a = epsilon / mu - mu / 2,    b = epsilon / mu + mu / 2,

and with no smaller delta (Dong, Roth and Su 2022, Cor. 2.13 of arXiv:1905.02383; Balle and Wang 2018). Mechanisms that are mu_1-, mu_2-,
...-GDP, each chosen in the light of all earlier answers, are together mu-GDP if the squares add up to at most mu^2 (Smith and
Thakurta 2022; Koskela, Tobaben and Honkela 2023). So accounts count mu^2.

Each function solves that equation for one of the three by Newton's method, at 400 bits. The result needs no check,
because ln delta is concave, in epsilon and in ln mu, so Newton's steps end on the side where delta is too small:

- In epsilon: delta is the probability that the normal loss exceeds epsilon by more than an exponential number, and the
  upper tail of a sum of two numbers of log-concave densities is log-concave (Prekopa).
- In ln mu: with R the Mills ratio, upper tail / density, e^epsilon density(b) = density(a) makes delta = density(a)
  (R(a) - R(b)). As the derivative of delta by mu is density(a), that of ln delta by ln mu is mu / (R(a) - R(b)), the
  inverse of the mean of -R' over an interval of length mu around epsilon / mu. R is a Laplace transform of a positive
  function, hence -R' is convex and falls: its mean rises when the interval grows and when it moves to the left, and a
  larger mu does both.
"""

import math
from fractions import Fraction
from typing import Any

from dpcore.errors import UsageError
from dpcore.privacy.accounting.normal import density, log_odds, newton, upper_tail
from dpcore.privacy.accounting.rounding import as_real, below_one, positive, real, rounded_down, rounded_up

_SMALLEST, _LARGEST = Fraction(1, 10**30), 1e30
"""The range of mu^2, and the largest epsilon, for which 400 bits leave enough digits after every subtraction."""


def gdp_to_epsilon(mu_squared: Fraction | float, *, delta: Fraction | float) -> float:
    """Return the least epsilon for which mu-GDP implies (epsilon, delta)-DP, rounded up.

    >>> 0.9999 < gdp_to_epsilon(0.07185, delta=1e-5) < 1.0
    True
    """
    mu = _mu(mu_squared)
    promised = as_real(below_one(delta))
    if rounded_up(_delta(mu, real.mpf(0))) <= promised:
        return 0.0

    def better(epsilon: Any) -> Any:
        here = _delta(mu, epsilon)
        return epsilon + real.ln(here / promised) * here / (real.exp(epsilon) * upper_tail(epsilon / mu + mu / 2))

    start = mu * (mu / 2 + _tail_bound(promised))
    return max(rounded_up(newton(start, better=better)), 0.0)


def gdp_to_delta(mu_squared: Fraction | float, *, epsilon: Fraction | float) -> float:
    """Return the least delta for which mu-GDP implies (epsilon, delta)-DP, rounded up; at most 1."""
    mu = _mu(mu_squared)
    promised = real.mpf(0) if epsilon == 0 else as_real(positive(epsilon, what="epsilon"))
    if promised / mu - mu / 2 > 39:  # standard deviations, beyond which the upper tail is below the smallest float
        return math.ulp(0.0)
    return min(rounded_up(_delta(mu, promised)), 1.0)


def epsilon_to_gdp(epsilon: Fraction | float, *, delta: Fraction | float) -> float:
    """Return the largest mu^2 for which mu-GDP implies (epsilon, delta)-DP, rounded down.

    It is reduced by one part in 10^12, so that `gdp_to_epsilon` of the result never exceeds `epsilon`.
    """
    promised = as_real(positive(epsilon, what="epsilon", largest=_LARGEST))
    allowed = as_real(below_one(delta))
    bound = _tail_bound(allowed)
    start = 2 * promised / (bound + real.sqrt(bound * bound + 2 * promised))  # where a is that bound
    least = _mu(_SMALLEST)
    if start < least:
        start = least
        if _delta(start, promised) > allowed:
            raise UsageError("this epsilon and delta are too small for any GDP budget; choose larger ones")

    def better(mu: Any) -> Any:
        here = _delta(mu, promised)
        return mu * real.exp(real.ln(allowed / here) * here / (mu * density(promised / mu - mu / 2)))

    return rounded_down(newton(start, better=better) ** 2 * (1 - real.mpf(10) ** -12))


def gdp_to_pure(mu_squared: Fraction | float) -> float:
    """Return the largest epsilon for which every epsilon-DP mechanism is mu-GDP, rounded down: the inverse of `pure_gdp`."""
    return rounded_down(log_odds(_mu(mu_squared) / 2))


def _mu(mu_squared: Fraction | float) -> Any:
    return real.sqrt(as_real(positive(mu_squared, what="mu squared", smallest=_SMALLEST, largest=_LARGEST)))


def _delta(mu: Any, epsilon: Any) -> Any:
    middle = epsilon / mu
    return upper_tail(middle - mu / 2) - real.exp(epsilon) * upper_tail(middle + mu / 2)


def _tail_bound(probability: Any) -> Any:
    """Return an x whose upper tail is at most the probability: the tail is at most e^(-x^2 / 2)."""
    return real.sqrt(-2 * real.ln(probability))
