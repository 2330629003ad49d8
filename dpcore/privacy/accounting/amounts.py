"""Amounts of privacy as whole numbers, so that no sum in a ledger ever depends on rounding."""

import math
from enum import StrEnum
from fractions import Fraction
from typing import NoReturn

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import positive

AMOUNT_OF_ONE = 10**12
"""The amount that stands for an epsilon, rho or mu^2 of 1: amounts are whole multiples of 1e-12."""

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


def spend_amount(price: Fraction | float) -> int:
    """Return the amount that pays for a price of so much epsilon, rho or mu^2, rounded up.

    A float is taken at its exact binary value, so 0.1, which is a little more than one tenth, costs 1 more than
    that. A spend that must stay within a given amount is found the other way round, by a mechanism's
    `for_amount`.

    >>> spend_amount(Fraction(1, 3))
    333333333334
    >>> spend_amount(0.0)
    Traceback (most recent call last):
    dpcore.errors.UsageError: an amount must be above 0
    """
    return math.ceil(positive(price, what="an amount", largest=LARGEST) * AMOUNT_OF_ONE)


def cap_amount(budget: Fraction | float) -> int:
    """Return the amount that a budget of so much epsilon, rho or mu^2 holds, rounded down.

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
    """Return a whole number within what an amount can be, or refuse it."""
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise UsageError(f"{what} must be a whole number; make it with spend_amount or cap_amount")
    if not 1 <= amount <= LARGEST * AMOUNT_OF_ONE:
        raise UsageError(f"{what} must be from 1 to {LARGEST * AMOUNT_OF_ONE:,}")
    return amount
