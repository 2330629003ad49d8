"""Exact arguments in, outward-rounded floats out: what keeps every other result of this package on the safe side."""

import math
from fractions import Fraction
from typing import Any

import mpmath

from dpcore.errors import UsageError

real = mpmath.MPContext()
"""Real numbers of 400 bits, in a context of our own: nobody else who uses mpmath can change its precision."""
real.prec = 400

_GUARD = real.mpf(2) ** -120
"""Far more than the relative error of any formula here, cancellation included, and far less than a float's ulp."""


def positive(
    value: Fraction | float, *, what: str, smallest: Fraction = Fraction(0), largest: float = math.inf
) -> Fraction:
    """Return the exact value of a finite number above 0 and within the given limits, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise UsageError(f"{what} must be a number")
    if not math.isfinite(value):
        raise UsageError(f"{what} must be a finite number")
    if value <= 0:
        raise UsageError(f"{what} must be above 0")
    if value < smallest:
        raise UsageError(f"{what} must be at least {float(smallest):g}")
    if value > largest:
        raise UsageError(f"{what} must be at most {largest:g}")
    return Fraction(value)


def below_one(delta: Fraction | float) -> Fraction:
    """Return the exact value of a delta, above 0 and below 1, or refuse it."""
    exact = positive(delta, what="delta")
    if exact >= 1:
        raise UsageError("delta must be below 1; a usual choice is far below one over the number of rows")
    return exact


def as_real(value: Fraction | float) -> Any:
    """Return a number at 400 bits; a float's value is kept exactly."""
    exact = Fraction(value)
    return real.mpf(exact.numerator) / exact.denominator


def rounded_up(value: Any) -> float:
    """Return a float that is certainly not below a computed real number, and is the least such or its neighbour."""
    least = value + abs(value) * _GUARD
    nearest = float(least)
    return nearest if real.mpf(nearest) >= least else math.nextafter(nearest, math.inf)


def rounded_down(value: Any) -> float:
    """Return a float that is certainly not above a computed real number, and is the largest such or its neighbour."""
    return -rounded_up(-value)


def float_up(exact: Fraction) -> float:
    """Return the least float that is not below a fraction: the fraction itself, if it is a float."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def float_down(exact: Fraction) -> float:
    """Return the largest float that is not above a fraction: the fraction itself, if it is a float."""
    return -float_up(-exact)
