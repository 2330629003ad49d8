"""Audits of integer noise: discrete Laplace, discrete Gaussian and rounded Gaussian, also calibrated to (epsilon, delta)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpcore.audit import planted
from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import FROM_NUMPY, event, noisy
from dpcore.audit.checks import Check, DistributionCheck, Draw, EventCheck, StreamCheck
from dpcore.audit.events import Outcomes
from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from dpcore.mechanisms.sampling import wide
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.textbook.gaussian import analytic_gaussian, classic_gaussian

MORE_DRAWS = 1_000_000
WIDER = 1.03
CALIBRATED_DELTA = 0.01

_STEPS = 10
_SENSITIVITY = Sensitivity(_STEPS, _STEPS**2, _STEPS)

Weights = npt.NDArray[np.float64]


class Sampler(Protocol):
    """A function that draws noise of a given scale."""

    def __call__(self, count: int, *, scale: float) -> Outcomes:
        """Return `count` draws."""


def laplace_weights(k: npt.NDArray[np.int64], scale: float) -> Weights:
    """Return the probability of each noise, up to a factor."""
    return np.exp(-np.abs(k) / scale)


def gaussian_weights(k: npt.NDArray[np.int64], scale: float) -> Weights:
    """Return the probability of each noise, up to a factor."""
    return np.exp(-0.5 * (k / scale) ** 2)


def rounded_weights(k: npt.NDArray[np.int64], scale: float) -> Weights:
    """Return the probability of each noise, computed in the upper tail to avoid cancellation."""
    edges = (np.abs(k)[:, None] + np.array([-0.5, 0.5])) / (scale * math.sqrt(2.0))
    tails = np.vectorize(math.erfc)(edges) / 2
    weights: Weights = tails[:, 0] - tails[:, 1]
    return weights


def on_counts(setting: str, drawn: Any, *, tables: tuple[list[int], list[int]], currency: Currency) -> EventCheck:
    """Return the check of noisy counts on two tables against the price of their noise."""
    return event(
        setting, lambda counts: noisy(drawn, counts), tables=tables, paid=drawn, draws=400_000, currency=currency
    )


@dataclass(frozen=True)
class Family:
    """One kind of integer noise: its class, its weights, and its currencies."""

    kind: Any
    weights: Any
    currencies: tuple[Currency, ...]

    def at(self, scale: float, *, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> Any:
        """Return the mechanism at a scale."""
        sensitivity = Protection(unit="row", rows_per_unit=1, neighbours=neighbours).sensitivity
        return self.kind(scale=scale, sensitivity=sensitivity)

    def distribution(self, scale: float, *, drawn_at: float) -> DistributionCheck:
        """Return the check of noise drawn at one scale against the distribution at another, which may be the same."""
        reach = round(30 * scale) + 30
        outcomes = np.arange(-reach, reach + 1)
        return DistributionCheck(
            setting=f"noise of {self.kind.width} {scale:g}",
            draw=noisy(self.at(drawn_at), [0]),
            draws=MORE_DRAWS,
            outcomes=outcomes,
            probabilities=self.weights(outcomes, scale),
        )

    def wide(self, setting: str, scale: float, *, draw: Draw) -> DistributionCheck:
        """Return the check of the distribution of wide noise, grouped in ten intervals per scale, as there are too many outcomes to compare."""
        width = max(1, round(scale / 10))
        reach = (round(20 * scale) // width + 1) * width
        noise = np.arange(-reach, reach + width)
        return DistributionCheck(
            setting=setting,
            draw=lambda count: draw(count) // width,
            draws=MORE_DRAWS,
            outcomes=np.arange(-reach // width, reach // width + 1),
            probabilities=self.weights(noise, scale).reshape(-1, width).sum(axis=1),
        )

    def wide_checks(self, sampler: Sampler, *, beyond: float) -> tuple[Check, ...]:
        """Return checks of the sampler for wide noise: called directly, and through the mechanism at a scale too large for a lookup table."""
        mechanism = self.at(beyond)
        return (
            *(
                self.wide(f"wide sampler, {self.kind.width} {scale:g}", scale, draw=partial(sampler, scale=scale))
                for scale in (2.5, 300.0)  # numbers of one digit, whose sign is visible, and of two
            ),
            self.wide(f"noise of {self.kind.width} {beyond:g}", beyond, draw=noisy(mechanism, [0])),
            StreamCheck(setting=f"noise of {self.kind.width} {beyond:g}", draw=noisy(mechanism, [0])),
        )

    def case(
        self,
        *,
        theorem: str,
        reference: str,
        prices: Mapping[Currency, str],
        more: tuple[Bug, ...],
        wide: tuple[Check, ...] = (),
    ) -> Case:
        """Return the audit with the checks and bugs of every kind of integer noise, and additional bugs."""
        narrow, replaced = self.at(1.0), self.at(2.0, neighbours=Neighbours.REPLACE_ONE)
        last = self.currencies[0]
        return Case(
            name=self.kind.name,
            theorem=theorem,
            reference=reference,
            prices=prices,
            checks=(
                *(
                    on_counts("one count, 0 or 1", narrow, tables=([0], [1]), currency=currency)
                    for currency in self.currencies
                ),
                on_counts("a row replaced: 1 0 or 0 1", replaced, tables=([1, 0], [0, 1]), currency=last),
                *(self.distribution(scale, drawn_at=scale) for scale in (2.0, 40.0)),
                StreamCheck(setting="noise on 100 counts", draw=noisy(narrow, [0])),
                *wide,
            ),
            bugs=(
                Bug(
                    name=f"{self.kind.width} x{WIDER:g}",
                    how=f"the noise is {WIDER - 1:.0%} wider than the stated {self.kind.width}",
                    check=self.distribution(40.0, drawn_at=40.0 * WIDER),
                ),
                Bug(
                    name="sensitivity halved",
                    how="a unit changes a count by 2, but the sensitivity is stated as 1",
                    check=on_counts("one count, 0 or 2, paid as 0 or 1", narrow, tables=([0], [2]), currency=last),
                ),
                Bug(
                    name="neighbour flag ignored",
                    how="rows are replaced, but the price is that of adding or removing one",
                    check=on_counts("1 0 or 0 1, paid as add-remove", narrow, tables=([1, 0], [0, 1]), currency=last),
                ),
                FROM_NUMPY,
                *more,
            ),
        )


LAPLACE = Family(DiscreteLaplace, laplace_weights, (Currency.PURE, Currency.ZCDP, Currency.GDP))
GAUSSIAN = Family(DiscreteGaussian, gaussian_weights, (Currency.ZCDP,))
ROUNDED = Family(RoundedGaussian, rounded_weights, (Currency.GDP, Currency.ZCDP))


def laplace() -> Case:
    """Return the audit of discrete Laplace noise."""
    continuous = planted.FloatLaplace(scale=1.0)
    return LAPLACE.case(
        theorem="Integer counts with noise of probability ~ e^(-|k| / b) are epsilon-DP with epsilon = L1 / b.",
        reference="Ghosh, Roughgarden and Sundararajan 2009; Dwork, McSherry, Nissim and Smith 2006",
        prices={
            Currency.PURE: "L1 / b",
            Currency.ZCDP: "with t = 1 / b: t d - (1 - e^(-t d)) t / sinh t for each count that changes by d",
            Currency.GDP: "4 Phi^-1(e^x / (1 + e^x))^2 with x = L1 / b",
        },
        more=(
            Bug(
                name="float noise",
                how="the noise is a float, b ln U, whose last bits reveal which count it was added to",
                check=event(
                    "one count, 0 or 1, textbook floats",
                    continuous.possible_from_nought,
                    tables=(0, 1),
                    paid=LAPLACE.at(1.0),
                    draws=20_000,
                ),
            ),
            Bug(
                name="zero drawn twice",
                how="the wide sampler keeps negative zeros, which makes zero twice as likely",
                check=LAPLACE.wide("wide sampler, scale 2.5", 2.5, draw=planted.twofold_zero(2.5)),
            ),
        ),
        wide=LAPLACE.wide_checks(wide.laplace, beyond=1e4),
    )


def gaussian() -> Case:
    """Return the audit of discrete Gaussian noise."""
    narrow = GAUSSIAN.at(1.0)
    return GAUSSIAN.case(
        theorem="Integer counts with noise of probability ~ e^(-k^2 / (2 sigma^2)) are rho-zCDP with rho = L2^2 / (2 sigma^2).",
        reference="Canonne, Kamath and Steinke 2020",
        prices={Currency.ZCDP: "L2^2 / (2 sigma^2)"},
        more=(
            Bug(
                name="rho halved",
                how="L2^2 / (4 sigma^2) is charged",
                check=replace(
                    on_counts("one count, 0 or 1", narrow, tables=([0], [1]), currency=Currency.ZCDP),
                    charged=narrow.price(Currency.ZCDP) // 2,
                ),
            ),
        ),
        wide=GAUSSIAN.wide_checks(wide.gaussian, beyond=1e5),
    )


def rounded() -> Case:
    """Return the audit of rounded Gaussian noise."""
    return ROUNDED.case(
        theorem="Rounding is post-processing: counts with rounded normal noise are mu-GDP with mu = L2 / sigma, and rho-zCDP.",
        reference="Dong, Roth and Su 2022; Bun and Steinke 2016",
        prices={Currency.GDP: "L2^2 / sigma^2", Currency.ZCDP: "L2^2 / (2 sigma^2)"},
        more=(),
    )


def _promised(setting: str, drawn: RoundedGaussian, *, epsilon: float, moved: int = _STEPS) -> EventCheck:
    return event(
        f"{setting}, delta {CALIBRATED_DELTA:g}",
        lambda count: noisy(drawn, [count]),
        tables=(moved, 0),
        paid=round(epsilon * AMOUNT_OF_ONE),
        draws=MORE_DRAWS,
        delta=CALIBRATED_DELTA,
    )


def _far(drawn: RoundedGaussian, count: int) -> Draw:
    """Return draws of whether a noisy count is as large as a count of 0 becomes only once in 10^5 draws."""
    above = noisy(drawn, [count])

    def draw(draws: int) -> Outcomes:
        return (above(draws) >= 4.265 * drawn.scale).astype(np.int64)

    return draw


def calibrated() -> Case:
    """Return the audit of noise that is calibrated to (epsilon, delta)."""
    exact = analytic_gaussian(epsilon=1.0, delta=CALIBRATED_DELTA, sensitivity=_SENSITIVITY)
    classic = classic_gaussian(epsilon=0.9, delta=CALIBRATED_DELTA, sensitivity=_SENSITIVITY)
    epsilon, delta, moved = 8.0, 0.2, 100
    beyond = RoundedGaussian(
        scale=moved * math.sqrt(2 * math.log(1.25 / delta)) / epsilon,
        sensitivity=Sensitivity(moved, moved**2, moved),
    )
    return Case(
        name="calibrated-gaussian",
        theorem="Normal noise is (epsilon, delta)-DP if and only if Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m) <= delta, m = L2 / sigma; "
        "for epsilon < 1 it is if sigma >= L2 sqrt(2 ln(1.25 / delta)) / epsilon.",
        reference="Balle and Wang 2018, Thm. 8; Dwork and Roth 2014, Thm. A.1",
        prices={Currency.GDP: "L2^2 / sigma^2", Currency.ZCDP: "L2^2 / (2 sigma^2)"},
        checks=(
            _promised("analytic", exact, epsilon=1.0),
            _promised("classic", classic, epsilon=0.9),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="a count changes by twice the stated sensitivity",
                check=_promised("analytic, moved twice as far", exact, epsilon=1.0, moved=2 * _STEPS),
            ),
            Bug(
                name="classic bound beyond epsilon 1",
                how="the classic sigma is used for epsilon 8, where its bound is unproved and wrong",
                check=event(
                    f"classic formula, delta {delta:g}",
                    lambda count: _far(beyond, count),
                    tables=(moved, 0),
                    paid=round(epsilon * AMOUNT_OF_ONE),
                    draws=4_000_000,
                    delta=delta,
                ),
            ),
        ),
    )
