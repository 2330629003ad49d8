"""Select a candidate by its noisy score: the exponential mechanism, and report noisy max."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.calibration import closest_affordable
from dpcore.mechanisms.descriptions import Named, checked_protection
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.mechanisms.sampling import selection
from dpcore.mechanisms.sampling.noise import LARGEST_SCALE, integer_noise
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import (
    Currency,
    exponential_gdp,
    exponential_zcdp,
    gdp_to_pure,
    pure_gdp,
    pure_zcdp,
    spend_amount,
)
from dpcore.privacy.accounting.rounding import float_up
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.scalars import is_number, is_whole

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-12, 1e3
"""Below, a selection is almost uniform; above, it protects nobody."""

_NEVER = np.uint64(1 << 62)
"""A distance behind the best score that no noise can make up: noise stays below 2^47."""


class Flavour(Named):
    """The noise that decides a selection. It also decides the price, so it has no default."""

    GUMBEL = "gumbel"
    """Probabilities proportional to e^(score / scale): the original mechanism, cheap in zCDP and GDP."""
    PERMUTE_AND_FLIP = "permute-and-flip"
    """Exponential noise: never a worse selection at the same pure epsilon, often a better one; expensive in zCDP and GDP."""
    LAPLACE = "laplace"
    """Discrete Laplace noise, as in the textbooks. Only `ReportNoisyMax` has it."""

    @classmethod
    def best_for(cls, currency: Currency) -> "Flavour":
        """Return the flavour that suits a currency."""
        return cls.PERMUTE_AND_FLIP if Currency(currency) is Currency.PURE else cls.GUMBEL


@dataclass(frozen=True, kw_only=True)
class NoisyMaximum(Mechanism):
    """Select the index of the largest whole-numbered score, each with its own noise of a scale that is the same for all.

    Attributes:
        epsilon: The pure epsilon of a selection.
        sensitivity: The most that one neighbour step can move any one score.
        flavour: The noise.
    """

    epsilon: float
    sensitivity: int
    flavour: Flavour

    def __post_init__(self) -> None:
        """Validate the parameters before any draw."""
        _check_sensitivity(self.sensitivity)
        if not (
            is_number(self.epsilon) and SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON
        ):  # a NaN fails this too
            limits = f"from {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}"
            raise UsageError(f"a selection's epsilon must be a number {limits}; spend an amount in that range")
        self._normalise(epsilon=float(self.epsilon), flavour=Flavour(self.flavour))

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: int, **parameters: Any) -> Self:
        """Return the mechanism with the largest epsilon that costs at most `amount`, by default in the flavour that suits the currency."""
        _check_sensitivity(sensitivity)
        flavour = Flavour(parameters.pop("flavour", Flavour.best_for(currency)))
        epsilon = epsilon_for(amount, currency=currency, bounded_range=flavour is Flavour.GUMBEL)
        return cls(epsilon=epsilon, sensitivity=sensitivity, flavour=flavour, **parameters)

    def price(self, currency: Currency) -> int:
        """Return the price of one selection, as an amount."""
        return spend_amount(price(self.epsilon, currency=currency, bounded_range=self.flavour is Flavour.GUMBEL))

    def draw(self, scores: npt.NDArray[np.int64]) -> int:
        """Return the index of the selected score."""
        behind = selection.behind_best(scores)
        if self.flavour is Flavour.GUMBEL:
            return selection.softmax(behind, rate=self._rate)
        if self.flavour is Flavour.PERMUTE_AND_FLIP:
            return selection.permute_and_flip(behind, rate=self._rate)
        noise = integer_noise(behind.size, shape=Shape.LAPLACE, scale=float_up(1 / self._rate))
        noise -= np.minimum(behind, _NEVER).astype(np.int64)
        return int(noise.argmax())  # the first of several equal maxima

    @property
    def _apart(self) -> int:
        """How much further apart one neighbour step can move two scores, as a multiple of the sensitivity."""
        return 2

    @cached_property
    def _rate(self) -> Fraction:
        """The inverse of the noise's scale: the exponent of a candidate's weight, for each step that its score is behind the best."""
        return Fraction(self.epsilon) / (self._apart * self.sensitivity)


class ExponentialMechanism(NoisyMaximum):
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

    def __post_init__(self) -> None:
        """Validate the parameters before any draw."""
        super().__post_init__()
        if self.flavour is Flavour.LAPLACE:
            raise UsageError(
                "the flavour must be one of: gumbel, permute-and-flip; only ReportNoisyMax has Laplace noise"
            )


@dataclass(frozen=True, kw_only=True)
class ReportNoisyMax(NoisyMaximum):
    """Select the index of the largest whole-numbered score, each with its own noise of scale 2 sensitivity / epsilon.

    Scores are monotone if, on any two neighbours, no score of one is below the same score of the other. Counts are, where a
    unit is added or removed. Half of that scale, sensitivity / epsilon, is then enough. With Gumbel or exponential noise and scores
    that are not monotone, this is the exponential mechanism.

    Guarantee:
        Pure epsilon. Proof for Laplace and exponential noise: fix the noise of all candidates but i. Then i is selected if
        its own noise X is at least some r, that is if its score reaches the largest of the others, or exceeds it where that
        one comes before i: a fixed rule for ties. On a neighbour that largest one rises by at most the sensitivity D and
        the score of i falls by at most D, so r rises by k <= 2D; if scores are monotone, only one of the two happens, and
        k <= D. All are whole numbers, and P(X = m + 1) >= e^(-1/scale) P(X = m) for discrete Laplace noise, so
        P(X >= r + k) >= e^(-k/scale) P(X >= r) >= e^-epsilon P(X >= r). Exponential noise satisfies the same inequality,
        and has no ties. With Gumbel noise i has probability proportional to e^(score / scale): the privacy loss is the
        movement of one score, up to a term that is the same for all candidates, and so lies in an interval of length
        2D / scale, or D / scale if scores are monotone; either is epsilon. Hence epsilon^2 / 8 in zCDP and the mu^2 of a
        pure epsilon / 2 in GDP. The other two have no better known bounds than those of any pure mechanism:
        epsilon tanh(epsilon / 2), and the mu^2 of epsilon. Up to the samplers' distance of 2^-109 per candidate.

    Sensitivity:
        The most that one neighbour step can move any one score: a whole number, which holds in machine arithmetic because
        scores are 64-bit integers.

    Randomness:
        The operating system's, through `entropy`. How long a selection takes does not depend on the scores.

    Reference:
        Dwork and Roth 2014, Claim 3.9; McKenna and Sheldon 2020, with Ding et al. 2021, for exponential noise; Dong, Durfee
        and Rogers 2020, Cesar and Rogers 2021 for Gumbel noise.
    """

    name: ClassVar[str] = "report-noisy-max"

    monotone: bool

    def __post_init__(self) -> None:
        """Validate the parameters before any draw."""
        super().__post_init__()
        if not isinstance(self.monotone, bool):
            raise UsageError(
                "pass monotone=True if a neighbour step moves all scores in the same direction, else monotone=False"
            )
        if self.flavour is Flavour.LAPLACE and 1 / self._rate > LARGEST_SCALE:
            raise UsageError(
                f"Laplace noise has a scale of at most {LARGEST_SCALE:g}, and this epsilon and sensitivity need more; "
                "spend more, use a coarser grid of scores, or use exponential or Gumbel noise"
            )

    @classmethod
    def of_counts(cls, *, epsilon: float, protection: Protection, flavour: Flavour, monotone: bool = True) -> Self:
        """Return the mechanism for scores that are counts of rows, with the sensitivity of a protection.

        Each count moves by at most what a unit counts. If a unit is added or removed, all counts move in one direction. If a
        unit is replaced, they need not. `monotone=False` says that scores do not rise and fall with the counts.
        """
        protected = checked_protection(protection)
        return cls(
            epsilon=epsilon,
            sensitivity=protected.count_sensitivity.linf,
            flavour=flavour,
            monotone=monotone and protected.neighbours is Neighbours.ADD_REMOVE,
        )

    @property
    def _apart(self) -> int:
        return 1 if self.monotone else 2


def _check_sensitivity(sensitivity: int) -> None:
    if not is_whole(sensitivity) or not 1 <= sensitivity < 2**31:
        raise UsageError(
            "the scores' sensitivity must be a whole number from 1 to 2,147,483,647; use a coarser grid of scores"
        )


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


def epsilon_for(
    amount: int,
    *,
    currency: Currency,
    bounded_range: bool,
    between: tuple[float, float] = (SMALLEST_EPSILON, LARGEST_EPSILON),
) -> float:
    """Return the largest epsilon in a range, of a selection or a sparse vector, that costs at most `amount`."""
    return closest_affordable(
        lambda epsilon: price(epsilon, currency=currency, bounded_range=bounded_range),
        amount=amount,
        best=between[1],
        cheapest=between[0],
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
