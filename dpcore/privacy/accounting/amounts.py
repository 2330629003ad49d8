"""Amounts of privacy budget as whole numbers, so that no sum in a ledger depends on rounding."""

import math
from enum import StrEnum
from fractions import Fraction
from typing import NoReturn

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import positive

AMOUNT_OF_ONE = 10**12
"""The amount of an epsilon, rho or mu^2 of 1. Amounts are whole multiples of 1e-12."""

LARGEST = 10**6
"""The largest epsilon, rho or mu^2. A few such amounts still add up within a database's 64-bit integer."""


class Currency(StrEnum):
    """The currency of an account, fixed when it is opened. In each, the amounts of adaptively chosen steps add."""

    PURE = "pure"
    """Epsilon."""
    ZCDP = "zcdp"
    """Rho, of zero-concentrated differential privacy."""
    GDP = "gdp"
    """Mu squared, of Gaussian differential privacy: as hard to tell apart as N(0, 1) and N(mu, 1)."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"{value!r} is not a currency; choose one of: {', '.join(cls)}")

    @property
    def symbol(self) -> str:
        """The name of the quantity: epsilon, rho or mu^2."""
        return {Currency.PURE: "epsilon", Currency.ZCDP: "rho", Currency.GDP: "mu^2"}[self]


def spend_amount(price: Fraction | float) -> int:
    """Convert a price in epsilon, rho or mu^2 to an amount, rounded up.

    A float is taken at its exact binary value, so 0.1, which is a little more than one tenth, costs 1 more than one tenth.
    To stay within a given amount, use a mechanism's `for_amount` instead.

    >>> spend_amount(Fraction(1, 3))
    333333333334
    >>> spend_amount(0.0)
    Traceback (most recent call last):
    dpcore.errors.UsageError: an amount must be above 0
    """
    return math.ceil(positive(price, what="an amount", largest=LARGEST) * AMOUNT_OF_ONE)


def cap_amount(budget: Fraction | float) -> int:
    """Convert a budget in epsilon, rho or mu^2 to an amount, rounded down.

    >>> cap_amount(Fraction(1, 3))
    333333333333
    >>> cap_amount(1e-13)
    Traceback (most recent call last):
    dpcore.errors.UsageError: a budget must be at least 1e-12
    """
    return math.floor(
        positive(budget, what="a budget", smallest=Fraction(1, AMOUNT_OF_ONE), largest=LARGEST) * AMOUNT_OF_ONE
    )


def checked_amount(amount: int, *, what: str) -> int:
    """Return an amount. Raise unless it is a whole number in range."""
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise UsageError(f"{what} must be a whole number; make it with spend_amount or cap_amount")
    if not 1 <= amount <= LARGEST * AMOUNT_OF_ONE:
        raise UsageError(f"{what} must be from 1 to {LARGEST * AMOUNT_OF_ONE:,}")
    return amount
