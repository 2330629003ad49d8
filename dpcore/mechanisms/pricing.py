"""What an amount buys: the noise of a marginal, the noise of one count, and the least amount that buys any noise."""

from collections.abc import Callable, Mapping

from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from dpcore.mechanisms.currency_noise import LEAST_NOISE, Noise
from dpcore.mechanisms.rounded import LARGEST_SIGMA
from dpcore.mechanisms.sampling.noise import LARGEST_SCALE
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection, Sensitivity

CELL_NOISE: Mapping[Currency, type[Noise]] = {
    Currency.PURE: DiscreteLaplace,
    Currency.ZCDP: DiscreteLaplace,
    Currency.GDP: RoundedGaussian,
}
"""The noise for a single count. In GDP, Laplace noise would be almost twice as wide."""

_WIDEST: Mapping[Currency, Callable[[Sensitivity], Noise]] = {
    Currency.PURE: lambda sensitivity: DiscreteLaplace(scale=LARGEST_SCALE, sensitivity=sensitivity),
    Currency.ZCDP: lambda sensitivity: DiscreteGaussian(sigma=LARGEST_SCALE, sensitivity=sensitivity),
    Currency.GDP: lambda sensitivity: RoundedGaussian(sigma=LARGEST_SIGMA, sensitivity=sensitivity),
}


def marginal_noise(amount: int, *, currency: Currency, protection: Protection) -> Noise:
    """Return the least noise that an amount buys for all counts of a marginal."""
    return LEAST_NOISE[currency].for_amount(amount, currency=currency, sensitivity=protection.sensitivity)


def cell_noise(amount: int, *, currency: Currency, protection: Protection) -> Noise:
    """Return the least noise that an amount buys for a single count."""
    return CELL_NOISE[currency].for_amount(amount, currency=currency, sensitivity=protection.count_sensitivity)


def least_amount(*, currency: Currency, protection: Protection) -> int:
    """Return the least amount that buys noise for a marginal: the price of the widest noise. A single count costs no more.

    >>> from dpcore.privacy.protection import Neighbours
    >>> one_row = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
    >>> [least_amount(currency=currency, protection=one_row) for currency in Currency]
    [1, 1, 2501]
    """
    return _WIDEST[currency](protection.sensitivity).price(currency)
