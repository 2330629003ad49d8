"""Discrete Gaussian noise on counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from dpcore.errors import UsageError
from dpcore.mechanisms.calibration import closest_affordable
from dpcore.mechanisms.descriptions import Description, describe_sensitivity, number_in, sensitivity_in
from dpcore.mechanisms.sampling.noise import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    Counts,
    checked_scale,
    checked_sensitivity,
    with_noise,
)
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import Currency, gaussian_zcdp, spend_amount
from dpcore.privacy.protection import Sensitivity


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian:
    """Add to each count an independent whole number k with probability proportional to e^(-k^2 / (2 sigma^2)).

    Guarantee:
        In zCDP l2^2 / (2 sigma^2), exactly as for continuous noise. No pure guarantee. The (epsilon, delta) profile of
        continuous noise does not hold for a small sigma, so the price goes through rho only, and there is no price in GDP.
        Up to the sampler's distance of 2^-109 per count from this distribution.

    Sensitivity:
        l2, of whole counts, kept as its square.

    Randomness:
        The operating system's, through `entropy`: from a table, and beyond sigma 19,999 by rejection, where the number of
        tries depends on the noise alone. It never depends on the counts.

    Reference:
        Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy.
    """

    name: ClassVar[str] = "discrete-gaussian"

    sigma: float
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        """Validate sigma and the sensitivity before any draw."""
        object.__setattr__(self, "sigma", checked_scale(self.sigma))
        checked_sensitivity(self.sensitivity)

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: Sensitivity) -> Self:
        """Return the mechanism with the least noise that costs at most `amount`."""
        checked_sensitivity(sensitivity)
        sigma = closest_affordable(
            lambda sigma: _price(sigma, sensitivity=sensitivity, currency=currency),
            amount=amount,
            wanted=SMALLEST_SCALE,
            cheapest=LARGEST_SCALE,
            guess=lambda budget: math.sqrt(sensitivity.l2_squared / (2 * budget)),
        )
        return cls(sigma=sigma, sensitivity=sensitivity)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from its description."""
        return cls(sigma=number_in(description, "sigma"), sensitivity=sensitivity_in(description))

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, per count: sigma, or less where sigma is small against the step of 1."""
        if self.sigma >= 2.0:
            return self.sigma  # they differ by less than 1e-30 of it
        weights = [math.exp(-0.5 * (k / self.sigma) ** 2) for k in range(30)]
        return math.sqrt(2 * sum(k * k * weight for k, weight in enumerate(weights)) / (2 * sum(weights) - 1))

    def price(self, currency: Currency) -> int:
        """Return the price of one draw over all counts, as an amount."""
        return spend_amount(_price(self.sigma, sensitivity=self.sensitivity, currency=currency))

    def draw(self, counts: Counts) -> Counts:
        """Return noisy counts."""
        return with_noise(counts, shape=Shape.GAUSSIAN, scale=self.sigma)

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return {"name": self.name, "sigma": repr(self.sigma), **describe_sensitivity(self.sensitivity)}


def _price(sigma: float, *, sensitivity: Sensitivity, currency: Currency) -> Fraction:
    if Currency(currency) is Currency.PURE:
        raise UsageError("Gaussian noise has no pure epsilon; use Laplace noise, or an account with a delta")
    if Currency(currency) is Currency.GDP:
        raise UsageError("discrete Gaussian noise lacks the profile of continuous noise; in gdp use RoundedGaussian")
    return gaussian_zcdp(l2_squared=sensitivity.l2_squared, sigma=sigma)
