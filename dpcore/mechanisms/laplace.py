"""Discrete Laplace noise on counts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

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
from dpcore.privacy.accounting import Currency, discrete_laplace_zcdp, gdp_to_pure, pure_gdp, spend_amount
from dpcore.privacy.protection import Sensitivity


@dataclass(frozen=True, kw_only=True)
class DiscreteLaplace:
    """Add to each count an independent whole number k with probability proportional to e^(-|k| / scale).

    Guarantee:
        In pure currency l1 / scale, exactly. In zCDP the least rho that covers every movement of whole counts within
        l1 and linf, by `accounting.discrete_laplace_zcdp`, which also proves it. The well-known rho of continuous
        Laplace noise, e + exp(-e) - 1, does not cover discrete noise: a count that moves by 1 costs e tanh(e / 2),
        which is more. In GDP the mu^2 of any mechanism with that pure price; a movement of a single count by 1 costs no
        less. Up to the sampler's distance of 2^-109 per count from this distribution.

    Sensitivity:
        l1 and linf, of whole counts. A movement spread over several counts costs at most as much as one concentrated in
        as few counts as linf allows.

    Randomness:
        The operating system's, through `entropy`: from a table, and beyond scale 2,857 digit by digit. It never depends on
        the counts.

    Reference:
        Ghosh, Roughgarden and Sundararajan 2009 (the geometric mechanism); Dwork, McSherry, Nissim and Smith 2006.
    """

    name: ClassVar[str] = "discrete-laplace"

    scale: float
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        """Validate the scale and the sensitivity before any draw."""
        object.__setattr__(self, "scale", checked_scale(self.scale))
        checked_sensitivity(self.sensitivity)

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: Sensitivity) -> Self:
        """Return the mechanism with the least noise that costs at most `amount`."""
        checked_sensitivity(sensitivity)
        scale = closest_affordable(
            lambda scale: _price(scale, sensitivity=sensitivity, currency=currency),
            amount=amount,
            wanted=SMALLEST_SCALE,
            cheapest=LARGEST_SCALE,
            guess=_guess(sensitivity, currency=currency),
        )
        return cls(scale=scale, sensitivity=sensitivity)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from its description."""
        return cls(scale=number_in(description, "scale"), sensitivity=sensitivity_in(description))

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, per count."""
        return 1.0 / (math.sqrt(2.0) * math.sinh(0.5 / self.scale))

    def price(self, currency: Currency) -> int:
        """Return the price of one draw over all counts, as an amount."""
        return spend_amount(_price(self.scale, sensitivity=self.sensitivity, currency=currency))

    def draw(self, counts: Counts) -> Counts:
        """Return noisy counts."""
        return with_noise(counts, shape=Shape.LAPLACE, scale=self.scale)

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return {"name": self.name, "scale": repr(self.scale), **describe_sensitivity(self.sensitivity)}


def _guess(sensitivity: Sensitivity, *, currency: Currency) -> Callable[[Fraction], float] | None:
    """Return the scale that an amount buys, up to rounding. There is no simple formula in zCDP."""
    match Currency(currency):
        case Currency.PURE:
            return lambda budget: float(sensitivity.l1 / budget)
        case Currency.GDP:
            return lambda budget: sensitivity.l1 / gdp_to_pure(budget)
    return None


def _price(scale: float, *, sensitivity: Sensitivity, currency: Currency) -> Fraction:
    if Currency(currency) is Currency.PURE:
        return sensitivity.l1 / Fraction(scale)
    if Currency(currency) is Currency.GDP:
        return Fraction(pure_gdp(sensitivity.l1 / Fraction(scale)))
    return Fraction(discrete_laplace_zcdp(scale, l1=sensitivity.l1, linf=sensitivity.linf))
