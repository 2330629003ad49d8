"""The exponential mechanism: select a candidate by its noisy score."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.calibration import closest_affordable
from dpcore.mechanisms.descriptions import Named
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.mechanisms.sampling import selection
from dpcore.privacy.accounting import (
    Currency,
    exponential_gdp,
    exponential_zcdp,
    gdp_to_pure,
    pure_gdp,
    pure_zcdp,
    spend_amount,
)

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-12, 1e3
"""Below, a selection is almost uniform; above, it protects nobody."""


class Flavour(Named):
    """The noise that decides a selection. It also decides the price, so it has no default."""

    GUMBEL = "gumbel"
    """Probabilities proportional to e^(epsilon score / (2 sensitivity)): the original mechanism, cheap in zCDP and GDP."""
    PERMUTE_AND_FLIP = "permute-and-flip"
    """Exponential noise: never a worse selection at the same pure epsilon, often a better one; expensive in zCDP and GDP."""


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(Mechanism):
    """Select the index of a high score among whole-numbered scores.

    Guarantee:
        Either flavour costs epsilon in pure currency. In zCDP Gumbel costs epsilon^2 / 8. Permute-and-flip has no better
        known bound than that of any pure mechanism, epsilon tanh(epsilon / 2). In GDP they cost the mu^2 of a pure
        epsilon / 2 and of a pure epsilon. `for_amount` picks the flavour that suits the currency.

    Sensitivity:
        The most that one neighbour step can move any one score: a whole number, which holds in machine arithmetic because
        scores are 64-bit integers. Scores may move in opposite directions.

    Randomness:
        The operating system's, through `entropy`. The probabilities are exact for the binary value of epsilon, up to 2^-128
        per candidate. How long a selection takes does not depend on the scores.

    Reference:
        McSherry and Talwar 2007; Dong, Durfee and Rogers 2020 for its bounded range, Cesar and Rogers 2021 for the rho;
        McKenna and Sheldon 2020, with Ding et al. 2021, for permute-and-flip as the largest of exponential noises.
    """

    name: ClassVar[str] = "exponential"

    epsilon: float
    sensitivity: int
    flavour: Flavour

    def __post_init__(self) -> None:
        """Validate epsilon and the sensitivity before any draw."""
        checked_sensitivity(self.sensitivity)
        self._normalise(epsilon=checked_epsilon(self.epsilon), flavour=Flavour(self.flavour))

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: int) -> Self:
        """Return the mechanism with the largest epsilon that costs at most `amount`, in the flavour that suits the currency."""
        checked_sensitivity(sensitivity)
        flavour = Flavour.PERMUTE_AND_FLIP if Currency(currency) is Currency.PURE else Flavour.GUMBEL
        epsilon = epsilon_for(amount, currency=currency, bounded_range=flavour is Flavour.GUMBEL)
        return cls(epsilon=epsilon, sensitivity=sensitivity, flavour=flavour)

    def price(self, currency: Currency) -> int:
        """Return the price of one selection, as an amount."""
        return spend_amount(price(self.epsilon, currency=currency, bounded_range=self.flavour is Flavour.GUMBEL))

    def draw(self, scores: npt.NDArray[np.int64]) -> int:
        """Return the index of the selected score."""
        select = selection.softmax if self.flavour is Flavour.GUMBEL else selection.permute_and_flip
        return select(selection.behind_best(scores), rate=self._rate)

    @cached_property
    def _rate(self) -> Fraction:
        """The exponent of a candidate's weight, for each step that its score is behind the best."""
        return Fraction(self.epsilon) / (2 * self.sensitivity)


def checked_epsilon(epsilon: float) -> float:
    """Return a selection's epsilon as a float. Raise if it is out of range."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        raise UsageError("a selection's epsilon must be a finite number")
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        limits = f"from {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}"
        raise UsageError(f"a selection's epsilon must be {limits}; spend an amount in that range")
    return float(epsilon)


def checked_sensitivity(sensitivity: int) -> int:
    """Return the sensitivity of scores. Raise if it is not a whole number in range."""
    if isinstance(sensitivity, bool) or not isinstance(sensitivity, int) or not 1 <= sensitivity < 2**31:
        raise UsageError(
            "the scores' sensitivity must be a whole number from 1 to 2,147,483,647; use a coarser grid of scores"
        )
    return sensitivity


def price(epsilon: float, *, currency: Currency, bounded_range: bool) -> Fraction:
    """Return the price of a selection in a currency.

    Args:
        epsilon: Its pure epsilon.
        currency: The currency of the price.
        bounded_range: Whether its privacy loss, on any two neighbours, lies in an interval of length epsilon. For other
            pure mechanisms the interval has length 2 epsilon.
    """
    if Currency(currency) is Currency.PURE:
        return Fraction(epsilon)
    if Currency(currency) is Currency.GDP:
        return Fraction(exponential_gdp(epsilon) if bounded_range else pure_gdp(epsilon))
    return exponential_zcdp(epsilon) if bounded_range else Fraction(pure_zcdp(epsilon))


def epsilon_for(amount: int, *, currency: Currency, bounded_range: bool) -> float:
    """Return the largest epsilon of a selection that costs at most `amount`."""
    return closest_affordable(
        lambda epsilon: price(epsilon, currency=currency, bounded_range=bounded_range),
        amount=amount,
        wanted=LARGEST_EPSILON,
        cheapest=SMALLEST_EPSILON,
        guess=_guess(currency, bounded_range=bounded_range),
    )


def _guess(currency: Currency, *, bounded_range: bool) -> Callable[[Fraction], float] | None:
    """Return the epsilon that an amount buys, up to rounding. For a range of 2 epsilon there is no simple formula in zCDP."""
    match Currency(currency):
        case Currency.PURE:
            return float
        case Currency.GDP:
            return lambda budget: (2 if bounded_range else 1) * gdp_to_pure(budget)
        case Currency.ZCDP:
            return (lambda budget: math.sqrt(8 * budget)) if bounded_range else None
