"""Gaussian noise on counts, rounded to whole numbers: by its sigma, by an amount, or calibrated to (epsilon, delta).

Rounded Gaussian noise is post-processing of continuous noise and so has the same guarantee. Discrete Gaussian noise of the same
sigma does not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from dpcore.errors import UsageError
from dpcore.mechanisms.calibration import checked_amount, closest_affordable
from dpcore.mechanisms.descriptions import Description, describe_sensitivity, number_in, sensitivity_in
from dpcore.mechanisms.sampling.noise import SMALLEST_SCALE, Counts, checked_scale, checked_sensitivity, with_noise
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import (
    Currency,
    analytic_gaussian_sigma,
    classic_gaussian_sigma,
    gaussian_gdp,
    gaussian_zcdp,
    spend_amount,
)
from dpcore.privacy.protection import Sensitivity

LARGEST_SIGMA = 19_999.0
"""The widest noise that has a table. Rounded Gaussian noise is drawn from a table only."""

_TOO_WIDE = f"rounded Gaussian noise has a sigma of at most {LARGEST_SIGMA:,.0f}"


@dataclass(frozen=True, kw_only=True)
class RoundedGaussian:
    """Add to each count an independent normal number of standard deviation sigma, rounded to the nearest whole number.

    Guarantee:
        The noisy counts are post-processing of the continuous Gaussian mechanism, because a whole count plus rounded noise
        is the count plus continuous noise, rounded. So they have all of its guarantees: mu^2 = l2^2 / sigma^2 in Gaussian
        differential privacy, which the discrete Gaussian does not satisfy, and l2^2 / (2 sigma^2) in zCDP. No pure
        guarantee. Up to the sampler's distance of 2^-109 per count from this distribution.

    Sensitivity:
        l2, of whole counts, kept as its square.

    Randomness:
        The operating system's, through `entropy`. It never depends on the counts.

    Reference:
        Dong, Roth and Su 2022, Gaussian differential privacy; Balle and Wang 2018 for its (epsilon, delta) profile.
    """

    name: ClassVar[str] = "rounded-gaussian"

    sigma: float
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        """Validate sigma and the sensitivity before any draw."""
        object.__setattr__(self, "sigma", checked_scale(self.sigma))
        if self.sigma > LARGEST_SIGMA:
            raise UsageError(f"{_TOO_WIDE}; spend more, or add discrete Gaussian noise from an account in zcdp")
        checked_sensitivity(self.sensitivity)

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: Sensitivity) -> Self:
        """Return the mechanism with the least noise that costs at most `amount`."""
        checked_sensitivity(sensitivity)
        least = spend_amount(_price(LARGEST_SIGMA, sensitivity=sensitivity, currency=currency))
        if checked_amount(amount) < least:
            raise UsageError(
                f"{_TOO_WIDE}, which costs more than an amount of {amount}; leave at least {least} for this step, keep fewer rows "
                "per unit, or use an account in zcdp"
            )
        sigma = closest_affordable(
            lambda sigma: _price(sigma, sensitivity=sensitivity, currency=currency),
            amount=amount,
            wanted=SMALLEST_SCALE,
            cheapest=LARGEST_SIGMA,
        )
        return cls(sigma=sigma, sensitivity=sensitivity)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from its description."""
        return cls(sigma=number_in(description, "sigma"), sensitivity=sensitivity_in(description))

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, per count. Rounding adds the variance of a unit interval, unless sigma is small."""
        if self.sigma >= 2.0:
            return math.sqrt(self.sigma**2 + 1 / 12)  # they differ by less than 1e-30 of it
        beyond = [math.erfc((k - 0.5) / (self.sigma * math.sqrt(2.0))) for k in range(1, 30)]
        return math.sqrt(sum((2 * k - 1) * mass for k, mass in enumerate(beyond, start=1)))

    def price(self, currency: Currency) -> int:
        """Return the price of one draw over all counts, as an amount."""
        return spend_amount(_price(self.sigma, sensitivity=self.sensitivity, currency=currency))

    def draw(self, counts: Counts) -> Counts:
        """Return noisy counts."""
        return with_noise(counts, shape=Shape.ROUNDED_GAUSSIAN, scale=self.sigma)

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return {"name": self.name, "sigma": repr(self.sigma), **describe_sensitivity(self.sensitivity)}


def classic_gaussian(
    *, epsilon: Fraction | float, delta: Fraction | float, sensitivity: Sensitivity
) -> RoundedGaussian:
    """Return noise of the classic sigma, l2 sqrt(2 ln(1.25 / delta)) / epsilon, rounded up.

    Guarantee:
        (epsilon, delta), for 0 < epsilon < 1 only. From 1 on the bound is not proved, and for large epsilons it is false:
        at epsilon 10 and delta 1e-10 it gives less noise than is needed. `analytic_gaussian` always gives less noise
        where both hold. This bound is here because the literature quotes it.

    Sensitivity:
        l2, of whole counts, kept as its square.

    Randomness:
        That of `RoundedGaussian`.

    Reference:
        Dwork and Roth 2014, Thm. A.1.

    >>> classic_gaussian(epsilon=1, delta=1e-6, sensitivity=Sensitivity(1, 1, 1))
    Traceback (most recent call last):
    dpcore.errors.UsageError: the classic Gaussian bound holds for an epsilon below 1 only; use analytic_gaussian, which holds for any
    """
    squared = checked_sensitivity(sensitivity).l2_squared
    sigma = classic_gaussian_sigma(epsilon, delta=delta, l2_squared=squared)
    return RoundedGaussian(sigma=sigma, sensitivity=sensitivity)


def analytic_gaussian(
    *, epsilon: Fraction | float, delta: Fraction | float, sensitivity: Sensitivity
) -> RoundedGaussian:
    """Return noise of the least sigma that keeps (epsilon, delta), rounded up.

    Guarantee:
        (epsilon, delta), for any epsilon: sigma = l2 / mu, with the largest mu for which Phi(mu/2 - epsilon/mu) -
        e^epsilon Phi(-mu/2 - epsilon/mu) <= delta. One part in 10^12 is left to rounding: a sigma that is smaller by more
        than that does not satisfy (epsilon, delta).

    Sensitivity:
        l2, of whole counts, kept as its square.

    Randomness:
        That of `RoundedGaussian`.

    Reference:
        Balle and Wang 2018, Thm. 8 of arXiv:1805.06530v2.

    >>> round(analytic_gaussian(epsilon=1, delta=1e-6, sensitivity=Sensitivity(1, 1, 1)).sigma, 6)
    4.224679
    """
    squared = checked_sensitivity(sensitivity).l2_squared
    sigma = analytic_gaussian_sigma(epsilon, delta=delta, l2_squared=squared)
    return RoundedGaussian(sigma=sigma, sensitivity=sensitivity)


def _price(sigma: float, *, sensitivity: Sensitivity, currency: Currency) -> Fraction:
    if Currency(currency) is Currency.PURE:
        raise UsageError("Gaussian noise has no pure epsilon; use Laplace noise, or an account with a delta")
    price = gaussian_gdp if Currency(currency) is Currency.GDP else gaussian_zcdp
    return price(l2_squared=sensitivity.l2_squared, sigma=sigma)
