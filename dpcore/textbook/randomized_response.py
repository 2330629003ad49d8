"""Randomized response: make each respondent's answer deniable before anyone collects it."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.calibration import closest_affordable
from dpcore.mechanisms.descriptions import Description
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.mechanisms.sampling import coins, uniform
from dpcore.privacy.accounting import Currency, pure_zcdp, spend_amount
from dpcore.privacy.accounting.normal import log_odds_quantile
from dpcore.privacy.accounting.rounding import as_real, real, rounded_down, rounded_up
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.scalars import is_number, is_whole

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-12, 30.0
"""Below, an answer carries no information; above, fewer than one in 10^12 answers can be denied."""

_LN_3 = rounded_up(real.ln(3))

Estimates = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse(Mechanism):
    """Report the true answer with probability t, and otherwise any of the k possible answers, all equally likely.

    With t = (e^epsilon - 1) / (e^epsilon + k - 1), the true answer is e^epsilon times as likely as each other one. t is
    rounded down to a float and its coin is exact, so the odds are exactly those of that float, and never above e^epsilon.

    Guarantee:
        With q = 1 / (e^epsilon + k - 1) and p = e^epsilon q, an answer costs epsilon in pure currency. In GDP it costs
        mu = Phi^-1(p) - Phi^-1(q), the least possible. If the true answer is exchanged for another, the errors of the best
        tests lie on straight lines with corners at (q, 1 - p) and (1 - p, q). Those of N(0, 1) against N(mu, 1) lie on a
        convex curve with the same ends, so they are nowhere larger if they are not larger at the corners. In zCDP it costs
        mu^2 / 2, which follows, or epsilon tanh(epsilon / 2) if that is less, as it is for two answers, where it is exact.
        The answers of a unit that gives m of them are drawn independently and cost m times as much.

    Sensitivity:
        The rows of a unit, by a Protection with replace-one neighbours. The number of answers is public, in total and per
        unit: under add-remove the mere presence of an answer would reveal the unit.

    Randomness:
        The operating system's, through `entropy`. It never depends on the answers.

    Reference:
        Warner 1965; Kairouz, Oh and Viswanath 2014, Extremal mechanisms for local differential privacy, for k answers.
    """

    name: ClassVar[str] = "randomized-response"

    epsilon: float
    answers: int
    protection: Protection

    def __post_init__(self) -> None:
        """Validate the parameters before any draw."""
        _check(self.answers, self.protection)
        if not (
            is_number(self.epsilon) and SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON
        ):  # a NaN fails this too
            limits = f"from {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}"
            raise UsageError(f"randomized response needs an epsilon {limits} per answer; spend an amount in that range")
        self._normalise(epsilon=float(self.epsilon))

    @classmethod
    def coins(cls, *, protection: Protection) -> Self:
        """Return the survey with two fair coins: on tails, the truth; on heads, a second coin decides yes (1) or no (0).

        The true answer then has probability exactly 3/4, and costs ln 3, rounded up to a float.

        >>> row = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.REPLACE_ONE)
        >>> RandomizedResponse.coins(protection=row).probabilities
        (Fraction(3, 4), Fraction(1, 4))
        """
        return cls(epsilon=_LN_3, answers=2, protection=protection)

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, answers: int, protection: Protection) -> Self:
        """Return the mechanism with the largest probability of a true answer that costs each unit at most `amount`."""
        _check(answers, protection)

        def price(epsilon: float) -> Fraction:
            return protection.rows_per_unit * _price(epsilon, answers=answers, currency=currency)

        epsilon = closest_affordable(
            price,
            amount=amount,
            best=LARGEST_EPSILON,
            cheapest=SMALLEST_EPSILON,
        )
        return cls(epsilon=epsilon, answers=answers, protection=protection)

    @cached_property
    def truth(self) -> float:
        """The probability t of reporting the truth on purpose. A random answer may happen to be true as well."""
        odds = real.expm1(as_real(self.epsilon))
        return rounded_down(odds / (odds + self.answers))

    @property
    def probabilities(self) -> tuple[Fraction, Fraction]:
        """The exact probabilities of drawing the true answer and each other answer."""
        truth = Fraction(self.truth)
        untrue = (1 - truth) / self.answers
        return truth + untrue, untrue

    def price(self, currency: Currency) -> int:
        """Return the price of all answers of one unit, as an amount."""
        price = _price(self.epsilon, answers=self.answers, currency=currency)
        return spend_amount(self.protection.rows_per_unit * price)

    def draw(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the randomized answers to collect instead of the true ones, which are coded 0, ..., k - 1.

        Code the answers by a declared universe first. Then no code is ever out of range. An error about one would reveal
        that somebody gave such an answer.
        """
        if not isinstance(codes, np.ndarray) or codes.dtype != np.int64:
            raise UsageError("answers must be an array of 64-bit integers; code them by the declared universe")
        if codes.size and not 0 <= codes.min() <= codes.max() < self.answers:
            raise UsageError(
                "answers must be coded from 0 to k - 1; code them by the declared universe, then ask again"
            )
        honest = coins.biased(coins.threshold(Fraction(self.truth)), codes.size).reshape(codes.shape)
        return np.where(honest, codes, uniform.below(self.answers, codes.size).reshape(codes.shape))

    def estimate(self, counts: npt.NDArray[np.int64]) -> Estimates:
        """Return unbiased estimates of how often each answer is true, from how often each was collected.

        The estimates add up to the number of answers, and any of them may be negative. This is post-processing and free.
        """
        whole = isinstance(counts, np.ndarray) and counts.dtype == np.int64
        if not whole or counts.shape != (self.answers,) or bool((counts < 0).any()):
            raise UsageError(
                f"counts must be {self.answers} whole numbers: how often each answer was collected, in order"
            )
        truth, total = self.truth, int(counts.sum())
        return np.asarray((counts - total * (1 - truth) / self.answers) / truth, dtype=np.float64)

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return super().describe() | {"truth": repr(self.truth)}


def _check(answers: int, protection: Protection) -> None:
    if not is_whole(answers) or not 2 <= answers < 2**31:
        raise UsageError("the number of possible answers must be a whole number from 2 to 2,147,483,647")
    if not isinstance(protection, Protection):
        raise UsageError("protection must be a Protection; declare whom randomized response protects")
    if protection.neighbours is not Neighbours.REPLACE_ONE:
        raise UsageError(
            "randomized response reveals who answered, so it does not protect under add-remove; declare neighbours: "
            "replace-one if the number of answers is public, or else measure noisy counts"
        )
    if protection.weight is not None or protection.row_weight != 1:
        raise UsageError(
            "randomized response counts every answer once; declare no weight, or else measure noisy counts"
        )


def _price(epsilon: float, *, answers: int, currency: Currency) -> Fraction:
    """Return the price of one answer."""
    if Currency(currency) is Currency.PURE:
        return Fraction(epsilon)
    if Currency(currency) is Currency.GDP:
        return _mu_squared(epsilon, answers=answers)
    rho = Fraction(pure_zcdp(epsilon))
    return rho if answers == 2 else min(rho, _mu_squared(epsilon, answers=answers) / 2)


def _mu_squared(epsilon: float, *, answers: int) -> Fraction:
    exact = as_real(epsilon)
    log_odds = exact - real.ln(answers - 1), -real.ln(real.exp(exact) + answers - 2)
    true, untrue = (real.sign(odds) * log_odds_quantile(abs(odds)) for odds in log_odds)
    margin = (
        real.mpf(2) ** -60
    )  # far more than the relative error after cancellation, and less than a float can represent
    return Fraction(rounded_up(((true - untrue) * (1 + margin)) ** 2))
