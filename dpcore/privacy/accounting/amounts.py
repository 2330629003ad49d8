"""Amounts of privacy as whole numbers, so that no sum in a ledger ever depends on rounding."""

import math
from enum import StrEnum
from fractions import Fraction
from typing import NoReturn

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import positive

UNIT = 10**12
"""How many units make one epsilon, one rho or one mu^2."""

LARGEST = 10**6
"""The largest amount, in epsilon, rho or mu^2: a few of them still add up within a database's 64-bit integer."""


class Currency(StrEnum):
    """What an account counts in, fixed when it is opened. In each, the amounts of steps chosen one by one simply add."""

    PURE = "pure"
    """Epsilon."""
    ZCDP = "zcdp"
    """Rho, of zero-concentrated differential privacy."""
    GDP = "gdp"
    """Mu squared, of Gaussian differential privacy: as hard to tell apart as N(0, 1) and N(mu, 1)."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"{value!r} is no currency; choose one of: {', '.join(cls)}")

    @property
    def symbol(self) -> str:
        """What an amount is called: epsilon, rho, mu^2."""
        return {Currency.PURE: "epsilon", Currency.ZCDP: "rho", Currency.GDP: "mu^2"}[self]


def spend_units(amount: Fraction | float) -> int:
    """Return the units that pay for `amount` of a currency, rounded up.

    A float is taken at its exact binary value, so 0.1, which is a little more than one tenth, costs one unit more than
    that. A spend that must stay within a given number of units is found the other way round, by a mechanism's
    `for_amount`.

    >>> spend_units(Fraction(1, 3))
    333333333334
    >>> spend_units(0.0)
    Traceback (most recent call last):
    dpcore.errors.UsageError: an amount must be above 0
    """
    return math.ceil(positive(amount, what="an amount", largest=LARGEST) * UNIT)


def cap_units(amount: Fraction | float) -> int:
    """Return the units that a budget of `amount` of a currency holds, rounded down.

    >>> cap_units(Fraction(1, 3))
    333333333333
    >>> cap_units(1e-13)
    Traceback (most recent call last):
    dpcore.errors.UsageError: a budget must be at least 1e-12
    """
    return math.floor(positive(amount, what="a budget", smallest=Fraction(1, UNIT), largest=LARGEST) * UNIT)


def checked_units(units: int, *, what: str) -> int:
    """Return a whole number of units within what an amount can be, or refuse it."""
    if isinstance(units, bool) or not isinstance(units, int):
        raise UsageError(f"{what} must be a whole number of units; make it with spend_units or cap_units")
    if not 1 <= units <= LARGEST * UNIT:
        raise UsageError(f"{what} must be from 1 to {LARGEST * UNIT:,} units")
    return units
