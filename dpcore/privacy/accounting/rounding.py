"""Exact arguments in, outward-rounded floats out: keeps every other result of this package on the safe side."""

import math
from fractions import Fraction
from typing import Any

import mpmath

from dpcore.errors import UsageError

real = mpmath.MPContext()
"""Real numbers of 400 bits, in a private mpmath context: no other user of mpmath can change its precision."""
real.prec = 400


def positive(
    value: Fraction | float, *, what: str, smallest: Fraction = Fraction(0), largest: float = math.inf
) -> Fraction:
    """Return the exact value of a number. Raise unless it is finite, above 0 and within the given limits."""
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
    """Return the exact value of a delta. Raise unless it is above 0 and below 1."""
    exact = positive(delta, what="delta")
    if exact >= 1:
        raise UsageError("delta must be below 1; choose it far below one over the number of rows")
    return exact


def as_real(value: Fraction | float) -> Any:
    """Convert a number to 400 bits. The value of a float is kept exactly."""
    exact = Fraction(value)
    return real.mpf(exact.numerator) / exact.denominator


def rounded_up(value: Any) -> float:
    """Round a computed real number up to a float: the least float that is certainly not below it, or the next one."""
    # far more than the relative error of any formula here, cancellation included, and far less than a float's ulp
    least = value + abs(value) * real.mpf(2) ** -120
    nearest = float(least)
    return nearest if real.mpf(nearest) >= least else math.nextafter(nearest, math.inf)


def rounded_down(value: Any) -> float:
    """Round a computed real number down to a float: the largest float that is certainly not above it, or the one before."""
    return -rounded_up(-value)


def float_up(exact: Fraction) -> float:
    """Return the least float that is not below a fraction: its exact value, if that is a float."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def float_down(exact: Fraction) -> float:
    """Return the largest float that is not above a fraction: its exact value, if that is a float."""
    return -float_up(-exact)
