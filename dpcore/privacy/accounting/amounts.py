"""Amounts of privacy budget as whole numbers, so that no sum in a ledger depends on rounding; from (epsilon, delta), and back to epsilon."""

import math
from enum import StrEnum
from fractions import Fraction
from typing import NoReturn

from dpcore.errors import UsageError
from dpcore.privacy.accounting.conversions import epsilon_to_zcdp, zcdp_to_epsilon
from dpcore.privacy.accounting.gaussian import epsilon_to_gdp, gdp_to_epsilon
from dpcore.privacy.accounting.rounding import as_real, float_up, positive, real, rounded_up
from dpcore.scalars import is_whole

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
    if not is_whole(amount):
        raise UsageError(f"{what} must be a whole number; make it with spend_amount or cap_amount")
    if not 1 <= amount <= LARGEST * AMOUNT_OF_ONE:
        raise UsageError(f"{what} must be from 1 to {LARGEST * AMOUNT_OF_ONE:,}")
    return amount


def budget_of(epsilon: float, *, delta: float, currency: Currency | None = None) -> tuple[Currency, int]:
    """Return a currency, and the amount of it that satisfies (epsilon, delta).

    Without a currency, delta decides: pure epsilon at 0, zCDP above.

    >>> budget_of(0.5, delta=0.0)
    (<Currency.PURE: 'pure'>, 500000000000)
    >>> budget_of(0.5, delta=0.0, currency=Currency.GDP)
    Traceback (most recent call last):
    dpcore.errors.UsageError: a budget in gdp needs a delta above 0; add one, or choose pure
    """
    if currency is None:
        currency = Currency.PURE if delta == 0 else Currency.ZCDP
    currency = Currency(currency)
    if currency is Currency.PURE:
        if delta != 0:
            raise UsageError("a budget in pure epsilon has delta 0; leave the delta out, or choose zcdp or gdp")
        return currency, cap_amount(epsilon)
    if delta == 0:
        raise UsageError(f"a budget in {currency} needs a delta above 0; add one, or choose pure")
    amount_of = epsilon_to_gdp if currency is Currency.GDP else epsilon_to_zcdp
    return currency, cap_amount(amount_of(epsilon, delta=delta))


def epsilon_of(amount: int, *, currency: Currency, delta: Fraction | float) -> float:
    """Return the epsilon that an amount of a currency implies at `delta`, rounded up. For a pure amount delta does not matter.

    >>> Fraction(epsilon_of(AMOUNT_OF_ONE // 3, currency=Currency.PURE, delta=0)) >= Fraction(AMOUNT_OF_ONE // 3, AMOUNT_OF_ONE)
    True
    """
    if amount <= 0:
        return 0.0
    if Currency(currency) is Currency.PURE:
        return float_up(Fraction(amount, AMOUNT_OF_ONE))
    to_epsilon = gdp_to_epsilon if Currency(currency) is Currency.GDP else zcdp_to_epsilon
    return to_epsilon(Fraction(amount, AMOUNT_OF_ONE), delta=delta)


def mu_of(amount: int) -> float:
    """Return the mu of an amount of Gaussian differential privacy, which counts mu^2, rounded up.

    >>> mu_of(AMOUNT_OF_ONE // 2)
    0.7071067811865476
    """
    return rounded_up(real.sqrt(as_real(Fraction(amount, AMOUNT_OF_ONE))))


def amount_of_group(amount: int, *, currency: Currency, size: int) -> int:
    """Return the amount that protects a group of `size` units together.

    >>> [amount_of_group(7, currency=currency, size=3) for currency in Currency]
    [21, 63, 63]
    """
    factor = checked_size(size)
    return amount * (factor if Currency(currency) is Currency.PURE else factor**2)


def checked_size(size: int) -> int:
    """Return a group's size. Raise unless it is a whole number of at least 1."""
    if not is_whole(size) or size < 1:
        raise UsageError("a group's size must be a whole number of at least 1")
    return size
