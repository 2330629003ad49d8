"""Report noisy max: the index of the largest noisy score."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.descriptions import Named, checked_protection
from dpcore.mechanisms.exponential import checked_epsilon, checked_sensitivity, epsilon_for, price
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.mechanisms.sampling import selection
from dpcore.mechanisms.sampling.noise import LARGEST_SCALE, integer_noise
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import Currency, spend_amount
from dpcore.privacy.accounting.rounding import float_up
from dpcore.privacy.protection import Neighbours, Protection

_NEVER = np.uint64(1 << 62)
"""A distance behind the best score that no noise can make up: noise stays below 2^47."""


class MaxNoise(Named):
    """The noise that the scores get. It also decides the price, so it has no default."""

    LAPLACE = "laplace"
    """Discrete Laplace noise, as in the textbooks."""
    EXPONENTIAL = "exponential"
    """One-sided noise, equivalent to permute-and-flip: never a worse selection at the same pure epsilon."""
    GUMBEL = "gumbel"
    """Equivalent to the exponential mechanism: cheap in zCDP and GDP."""


@dataclass(frozen=True, kw_only=True)
class ReportNoisyMax(Mechanism):
    """Select the index of the largest whole-numbered score, each with its own noise of scale 2 sensitivity / epsilon.

    Scores are monotone if, on any two neighbours, no score of one is below the same score of the other. Counts are, where a
    unit is added or removed. Half of that scale, sensitivity / epsilon, is then enough.

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

    epsilon: float
    sensitivity: int
    noise: MaxNoise
    monotone: bool

    def __post_init__(self) -> None:
        """Validate the parameters before any draw."""
        checked_sensitivity(self.sensitivity)
        self._normalise(epsilon=checked_epsilon(self.epsilon), noise=MaxNoise(self.noise))
        if not isinstance(self.monotone, bool):
            raise UsageError(
                "pass monotone=True if a neighbour step moves all scores in the same direction, else monotone=False"
            )
        if self.noise is MaxNoise.LAPLACE and 1 / self._rate > LARGEST_SCALE:
            raise UsageError(
                f"Laplace noise has a scale of at most {LARGEST_SCALE:g}, and this epsilon and sensitivity need more; "
                "spend more, use a coarser grid of scores, or use exponential or Gumbel noise"
            )

    @classmethod
    def of_counts(cls, *, epsilon: float, protection: Protection, noise: MaxNoise) -> Self:
        """Return the mechanism for scores that are counts of rows, with the sensitivity of a protection.

        Each count moves by at most what a unit counts. If a unit is added or removed, all counts move in one direction. If a
        unit is replaced, they need not.
        """
        protected = checked_protection(protection)
        return cls(
            epsilon=epsilon,
            sensitivity=protected.count_sensitivity.linf,
            noise=noise,
            monotone=protected.neighbours is Neighbours.ADD_REMOVE,
        )

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: int, noise: MaxNoise, monotone: bool) -> Self:
        """Return the mechanism with the largest epsilon that costs at most `amount`."""
        checked_sensitivity(sensitivity)
        bounded_range = MaxNoise(noise) is MaxNoise.GUMBEL
        epsilon = epsilon_for(amount, currency=currency, bounded_range=bounded_range)
        return cls(epsilon=epsilon, sensitivity=sensitivity, noise=noise, monotone=monotone)

    def price(self, currency: Currency) -> int:
        """Return the price of one selection, as an amount."""
        return spend_amount(price(self.epsilon, currency=currency, bounded_range=self.noise is MaxNoise.GUMBEL))

    def draw(self, scores: npt.NDArray[np.int64]) -> int:
        """Return the index of the selected score."""
        differences = selection.behind_best(scores)
        if self.noise is MaxNoise.GUMBEL:
            return selection.softmax(differences, rate=self._rate)
        if self.noise is MaxNoise.EXPONENTIAL:
            return selection.permute_and_flip(differences, rate=self._rate)
        noise = integer_noise(differences.size, shape=Shape.LAPLACE, scale=float_up(1 / self._rate))
        noise -= np.minimum(differences, _NEVER).astype(np.int64)
        return int(noise.argmax())  # the first of several equal maxima

    @cached_property
    def _rate(self) -> Fraction:
        """The inverse of the noise's scale."""
        return Fraction(self.epsilon) / ((1 if self.monotone else 2) * self.sensitivity)
