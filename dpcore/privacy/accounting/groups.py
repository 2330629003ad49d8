"""Group privacy: the protection of several units together, in each currency and for pairs (epsilon, delta).

Each bound holds for any mechanism and any group of that size. It follows from a chain of neighbours, one unit at a time.
"""

from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.privacy.accounting.composition import checked_delta
from dpcore.privacy.accounting.rounding import as_real, positive, real, rounded_up


def checked_size(size: int) -> int:
    """Return a group's size. Raise unless it is a whole number of at least 1."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UsageError("a group's size must be a whole number of at least 1")
    return size


def group_pure(epsilon: Fraction | float, *, size: int) -> Fraction:
    """Return the epsilon that protects a group of `size` units together: size epsilon."""
    return checked_size(size) * positive(epsilon, what="epsilon")


def group_approximate(epsilon: Fraction | float, *, delta: Fraction | float, size: int) -> tuple[Fraction, float]:
    """Return the (epsilon, delta) that protects a group of `size` units: (k e, d (e^(k e) - 1) / (e^e - 1)), rounded up.

    Each of the k steps adds a delta, and multiplies the earlier ones by e^epsilon. The delta is capped at 1, which guarantees nothing.

    Reference:
        Dwork and Roth 2014, Def. 2.4, applied k times; their Thm. 2.2 is the case of delta 0.

    >>> group_approximate(Fraction(1, 2), delta=0, size=3)
    (Fraction(3, 2), 0.0)
    """
    units, exact, lost = checked_size(size), positive(epsilon, what="epsilon", largest=1e6), checked_delta(delta)
    if lost == 0:
        return units * exact, 0.0
    growth = real.expm1(as_real(units * exact)) / real.expm1(as_real(exact))
    return units * exact, min(rounded_up(min(as_real(lost) * growth, real.mpf(2))), 1.0)


def group_zcdp(rho: Fraction | float, *, size: int) -> Fraction:
    """Return the rho that protects a group of `size` units together: size^2 rho.

    Reference: Bun and Steinke 2016, for the privacy of groups.
    """
    return checked_size(size) ** 2 * positive(rho, what="rho")


def group_gdp(mu_squared: Fraction | float, *, size: int) -> Fraction:
    """Return the mu^2 that protects a group of `size` units together: size^2 mu^2.

    Reference: Dong, Roth and Su 2022, Thm. 3 of the journal's numbering.
    """
    return checked_size(size) ** 2 * positive(mu_squared, what="mu squared")
