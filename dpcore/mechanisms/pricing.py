"""What an amount buys: the noise of a marginal, the noise of one count, the least amount that buys any noise, and the best currency."""

from collections.abc import Mapping

from dpcore.errors import UsageError
from dpcore.mechanisms.noise import LEAST_NOISE, DiscreteLaplace, Noise, RoundedGaussian, one_number
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity

CELL_NOISE: Mapping[Currency, type[Noise]] = {
    Currency.PURE: DiscreteLaplace,
    Currency.ZCDP: DiscreteLaplace,
    Currency.GDP: RoundedGaussian,
}
"""The noise for a single count. In GDP, Laplace noise would be almost twice as wide."""

SMALL_PART = 1_000
"""An account's currency is chosen by the noise that this part of its budget buys: a small measurement of a small run."""

MANY_ROWS = 64
"""How many rows of a person count, if the unit is a person: how many a run may keep is not known when its account is opened."""


def marginal_noise(amount: int, *, currency: Currency, protection: Protection, by_norm: bool = False) -> Noise:
    """Return the least noise that an amount buys for all counts of a marginal.

    Args:
        amount: The amount.
        currency: The account's currency.
        protection: Whom the counts protect.
        by_norm: Whether of each unit as many rows count as keep the norm of its counts within the limit on its rows.
    """
    sensitivity = protection.norm_sensitivity if by_norm else protection.sensitivity
    return LEAST_NOISE[currency].for_amount(amount, currency=currency, sensitivity=sensitivity)


def cell_noise(amount: int, *, currency: Currency, protection: Protection) -> Noise:
    """Return the least noise that an amount buys for a single count."""
    return CELL_NOISE[currency].for_amount(amount, currency=currency, sensitivity=protection.count_sensitivity)


def number_noise(amount: int, *, currency: Currency, sensitivity: int) -> Noise:
    """Return the least noise that an amount buys for a single whole number that moves by at most `sensitivity`."""
    return CELL_NOISE[currency].for_amount(amount, currency=currency, sensitivity=one_number(sensitivity))


def least_amount(*, currency: Currency, protection: Protection) -> int:
    """Return the least amount that buys noise for a marginal: the price of the widest noise. A single count costs no more.

    >>> from dpcore.privacy.protection import Neighbours
    >>> one_row = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
    >>> [least_amount(currency=currency, protection=one_row) for currency in Currency]
    [1, 1, 2501]
    """
    return widest_noise(currency, protection.sensitivity).price(currency)


def widest_noise(currency: Currency, sensitivity: Sensitivity) -> Noise:
    """Return the widest noise that can be drawn for numbers of this sensitivity."""
    kind = LEAST_NOISE[currency]
    return kind(scale=kind.widest, sensitivity=sensitivity)


def currency_for(epsilon: float, *, delta: float, unit: str, neighbours: Neighbours) -> Currency:
    """Return the currency of a new account, unless its steward chooses one: that with the least noise for the same promise.

    At delta 0 that is pure epsilon. Above, Gaussian DP needs less noise than zCDP for every epsilon and delta, because its conversion is
    exact. But its noise has a largest width: if a small part of the budget would need more, the currency is zCDP, which has none
    (docs/decisions/0008).

    >>> [currency_for(epsilon, delta=1e-9, unit="patient", neighbours=Neighbours.ADD_REMOVE).value for epsilon in (1.0, 0.1)]
    ['gdp', 'zcdp']
    """
    if delta == 0:
        return Currency.PURE
    rows = 1 if unit == "row" else MANY_ROWS
    protection = Protection(unit=unit, rows_per_unit=rows, neighbours=neighbours)
    noise: dict[Currency, float] = {}
    for currency in (Currency.ZCDP, Currency.GDP):
        try:
            _, amount = budget_of(epsilon, delta=delta, currency=currency)
            bought = marginal_noise(amount // SMALL_PART, currency=currency, protection=protection)
        except UsageError:
            continue  # too small a budget for this currency
        noise[currency] = bought.standard_deviation
    return min(noise, key=noise.__getitem__, default=Currency.ZCDP)
