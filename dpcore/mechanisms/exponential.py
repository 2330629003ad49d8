"""The exponential mechanism: selecting a candidate by its noisy score."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpcore.accounting import (
    Currency,
    exponential_gdp,
    exponential_zcdp,
    gdp_to_pure,
    pure_gdp,
    pure_zcdp,
    spend_units,
)
from dpcore.errors import UsageError
from dpcore.mechanisms.calibration import closest_affordable
from dpcore.mechanisms.descriptions import Description, number_in, whole_in

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-12, 1e3
"""Below, a selection is blind; above, it protects nobody."""


class Flavour(StrEnum):
    """Which noise decides: it decides the price as well, and has no default."""

    GUMBEL = "gumbel"
    """Probabilities proportional to e^(epsilon score / (2 sensitivity)): the mechanism proper, cheap in zCDP and GDP."""
    PERMUTE_AND_FLIP = "permute-and-flip"
    """Exponential noise: at the same pure epsilon never a worse selection, and often a better one; dear in zCDP and GDP."""


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism:
    """Select the place of a high score among whole-numbered scores.

    Guarantee:
        Either flavour costs epsilon in pure currency. In zCDP Gumbel costs epsilon^2 / 8, and permute-and-flip, of
        which nothing better is known than that it is pure, epsilon tanh(epsilon / 2). In GDP they cost
        the mu^2 of a pure epsilon / 2 and of a pure epsilon. `for_amount` picks the one that suits.

    Sensitivity:
        How far one neighbour step can move any one score: a whole number, true in machine arithmetic because scores are
        64-bit integers. Scores may move in opposite directions.

    Randomness:
        opendp's generator, which the operating system seeds. How long a selection takes depends on the scores.

    Reference:
        McSherry and Talwar 2007; Dong, Durfee and Rogers 2020 for its bounded range, Cesar and Rogers 2021 for the rho;
        McKenna and Sheldon 2020, with Ding et al. 2021, for permute-and-flip as the largest of exponential noises.
    """

    name: ClassVar[str] = "exponential"

    epsilon: float
    sensitivity: int
    flavour: Flavour

    def __post_init__(self) -> None:
        """Refuse an epsilon or a sensitivity that means nothing, before any draw."""
        _check_sensitivity(self.sensitivity)
        number = isinstance(self.epsilon, int | float) and not isinstance(self.epsilon, bool)
        if not (number and math.isfinite(self.epsilon)):
            raise UsageError("the exponential mechanism's epsilon must be a finite number")
        if not SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            limits = f"from {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}"
            raise UsageError(f"the exponential mechanism's epsilon must be {limits}; spend an amount between")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "flavour", Flavour(self.flavour))

    @classmethod
    def for_amount(cls, units: int, *, currency: Currency, sensitivity: int) -> Self:
        """Return the mechanism with the largest epsilon that costs at most `units`, in the currency's own flavour."""
        _check_sensitivity(sensitivity)
        flavour = Flavour.PERMUTE_AND_FLIP if Currency(currency) is Currency.PURE else Flavour.GUMBEL
        epsilon = closest_affordable(
            lambda epsilon: _price(epsilon, flavour=flavour, currency=currency),
            units=units,
            wanted=LARGEST_EPSILON,
            cheapest=SMALLEST_EPSILON,
            guess=(lambda amount: 2 * gdp_to_pure(amount)) if Currency(currency) is Currency.GDP else None,
        )
        return cls(epsilon=epsilon, sensitivity=sensitivity, flavour=flavour)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Return the mechanism that was described."""
        try:
            flavour = Flavour(str(description.get("flavour")))
        except ValueError:
            raise UsageError(f"an exponential mechanism's flavour must be one of: {', '.join(Flavour)}") from None
        return cls(
            epsilon=number_in(description, "epsilon"), sensitivity=whole_in(description, "sensitivity"), flavour=flavour
        )

    def charge(self, currency: Currency) -> int:
        """Return the price of one selection, in units."""
        return spend_units(_price(self.epsilon, flavour=self.flavour, currency=currency))

    def draw(self, scores: npt.NDArray[np.int64]) -> int:
        """Return the place of the selected score."""
        if not isinstance(scores, np.ndarray) or scores.dtype != np.int64 or scores.ndim != 1:
            raise UsageError(
                "scores must be a one-dimensional array of 64-bit integers; put them on a whole grid first"
            )
        if scores.size == 0:
            raise UsageError("there is nothing to select from; offer at least one candidate")
        return int(_measurement(self)(scores.copy()))  # opendp takes no strided or read-only array

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can account again."""
        return {
            "name": self.name,
            "epsilon": repr(self.epsilon),
            "sensitivity": self.sensitivity,
            "flavour": self.flavour.value,
        }


@lru_cache(maxsize=64)
def _measurement(mechanism: ExponentialMechanism) -> Any:
    """Return opendp's measurement at the least scale from 2 sensitivity / epsilon on for which it agrees with our price."""
    from dpcore.mechanisms import vetted  # noqa: PLC0415  opendp takes a fifth of a second to load; prices do without

    gumbel = mechanism.flavour is Flavour.GUMBEL
    price = _price(mechanism.epsilon, flavour=mechanism.flavour, currency=Currency.ZCDP if gumbel else Currency.PURE)
    scale = 2.0 * mechanism.sensitivity / mechanism.epsilon
    while Fraction((measurement := vetted.noisy_max(gumbel=gumbel, scale=scale)).map(mechanism.sensitivity)) > price:
        scale = math.nextafter(scale, math.inf)  # opendp rounds its price up: it may take a few steps to meet ours
    return measurement


def _check_sensitivity(sensitivity: int) -> None:
    if isinstance(sensitivity, bool) or not isinstance(sensitivity, int) or not 1 <= sensitivity < 2**31:
        raise UsageError(
            "the scores' sensitivity must be a whole number from 1 to 2,147,483,647; use a coarser grid of scores"
        )


def _price(epsilon: float, *, flavour: Flavour, currency: Currency) -> Fraction:
    if Currency(currency) is Currency.PURE:
        return Fraction(epsilon)
    if Currency(currency) is Currency.GDP:
        return Fraction(exponential_gdp(epsilon) if flavour is Flavour.GUMBEL else pure_gdp(epsilon))
    return exponential_zcdp(epsilon) if flavour is Flavour.GUMBEL else Fraction(pure_zcdp(epsilon))
