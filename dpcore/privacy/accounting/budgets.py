"""Convert (epsilon, delta) to an amount of a currency, and an amount to an epsilon."""

from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.privacy.accounting.amounts import AMOUNT_OF_ONE, Currency, cap_amount
from dpcore.privacy.accounting.conversions import epsilon_to_zcdp, zcdp_to_epsilon
from dpcore.privacy.accounting.gaussian import epsilon_to_gdp, gdp_to_epsilon
from dpcore.privacy.accounting.groups import checked_size
from dpcore.privacy.accounting.rounding import as_real, float_up, real, rounded_up


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
