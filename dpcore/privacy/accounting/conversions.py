"""Convert rho-zCDP to (epsilon, delta) and back.

Rho-zCDP implies (epsilon, delta)-DP whenever some order a > 1 satisfies

    ln delta >= (a - 1) (a rho - epsilon) + (a - 1) ln(1 - 1/a) - ln a    (Canonne, Kamath and Steinke 2020, Prop. 12 of arXiv:2004.00010v4).

Each function solves this for one of the three, at the best order. Any order gives a true statement. So the order is
searched for in plain floats, where a small error costs no more than a last digit, and the statement is then evaluated
at that order with 400 bits and rounded outwards. The right side is convex in a: as a function of the order, each of
the three has a single minimum or maximum.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import as_real, below_one, positive, real, rounded_down, rounded_up

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def zcdp_to_epsilon(rho: Fraction | float, *, delta: Fraction | float) -> float:
    """Return the least epsilon for which rho-zCDP implies (epsilon, delta)-DP, rounded up.

    >>> zcdp_to_epsilon(0.1, delta=1e-9) < 2.7154818867306
    True
    """
    return epsilon_at_order(rho, order=best_order(rho, delta=delta), delta=delta)


def best_order(rho: Fraction | float, *, delta: Fraction | float) -> Any:
    """Return the order at which rho-zCDP implies the least epsilon at `delta`."""
    exact, log_inverse = positive(rho, what="rho"), _log_inverse(delta)
    rough, rough_log = float(exact), float(log_inverse)
    return _order(_valley(lambda x: (1.0 + math.exp(x)) * rough + _penalty(x, rough_log)))


def epsilon_at_order(rho: Fraction | float, *, order: Any, delta: Fraction | float) -> float:
    """Return the epsilon that rho-zCDP implies at `delta` by a given order, not necessarily the best, rounded up.

    At a fixed order it is linear in rho: the tangent to `zcdp_to_epsilon` where that order is the best.
    """
    exact = positive(rho, what="rho")
    return max(rounded_up(order * as_real(exact) + _exact_penalty(order, _log_inverse(delta))), 0.0)


def zcdp_to_delta(rho: Fraction | float, *, epsilon: Fraction | float) -> float:
    """Return the least delta for which rho-zCDP implies (epsilon, delta)-DP, rounded up; at most 1."""
    exact = positive(rho, what="rho")
    promised = Fraction(0) if epsilon == 0 else positive(epsilon, what="epsilon")
    rough, rough_epsilon = float(exact), float(promised)

    def log_delta(x: float) -> float:
        less_one = math.exp(x)
        return less_one * ((1.0 + less_one) * rough - rough_epsilon - math.log1p(math.exp(-x))) - math.log1p(less_one)

    order = _order(_valley(log_delta))
    exponent = (order - 1) * (order * as_real(exact) - as_real(promised) + real.ln(1 - 1 / order)) - real.ln(order)
    return min(rounded_up(real.exp(exponent)), 1.0)


def epsilon_to_zcdp(epsilon: Fraction | float, *, delta: Fraction | float) -> float:
    """Return the largest rho for which rho-zCDP implies (epsilon, delta)-DP, rounded down.

    It is reduced by one part in 10^12, so that `zcdp_to_epsilon` of the result never exceeds `epsilon`.
    """
    exact = positive(epsilon, what="epsilon")
    log_inverse = _log_inverse(delta)
    rough, rough_log = float(exact), float(log_inverse)
    order = _order(_valley(lambda x: (_penalty(x, rough_log) - rough) / (1.0 + math.exp(x))))
    rho = rounded_down((as_real(exact) - _exact_penalty(order, log_inverse)) / order * (1 - real.mpf(10) ** -12))
    if rho <= 0:
        raise UsageError("this epsilon and delta are too small for any zCDP budget; choose larger ones")
    return rho


def _log_inverse(delta: Fraction | float) -> Any:
    return -real.ln(as_real(below_one(delta)))


def _penalty(x: float, log_inverse: float) -> float:
    """Return what the order a = 1 + e^x adds to a rho: [ln(1/delta) + (a-1) ln(1-1/a) - ln a] / (a-1)."""
    less_one = math.exp(x)
    return (log_inverse - math.log1p(less_one)) / less_one - math.log1p(math.exp(-x))


def _exact_penalty(order: Any, log_inverse: Any) -> Any:
    return (log_inverse - real.ln(order)) / (order - 1) + real.ln(1 - 1 / order)


def _order(x: float) -> Any:
    return 1 + real.exp(real.mpf(x))


def _valley(objective: Callable[[float], float]) -> float:
    """Return the x = ln(a - 1) that minimises a unimodal function, by golden-section search."""
    low, high = -80.0, 100.0  # 400 bits resolve these orders, and they cover any rho from 1e-80 to 1e60
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = objective(left), objective(right)
    for _ in range(90):  # steps, which narrow that range down to the spacing of floats
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = objective(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = objective(right)
    return left if at_left <= at_right else right
