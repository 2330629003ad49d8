"""Audits of the exponential mechanism in both flavours, and of report noisy max, with its three kinds of noise."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.audit import planted
from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import Priced, Selecting, event, numpy_randomness, once, selected
from dpcore.audit.checks import DistributionCheck, EventCheck, StreamCheck
from dpcore.audit.events import Outcomes
from dpcore.mechanisms.exponential import ExponentialMechanism, Flavour
from dpcore.mechanisms.noisy_max import MaxNoise, ReportNoisyMax
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection

EPSILON = 2.0
FAR = 3
"""A sensitivity other than 1: scores that change this much need proportionally more noise."""

DRAWS = 24_000
FEWER_DRAWS = 16_000
MORE_DRAWS = 40_000
DISTRIBUTION_DRAWS = 60_000
WIDER = 1.03

_BACK = 10
"""The largest distance of a candidate from the best score in the check of the distribution."""

LEVELS = np.arange(_BACK + 1)
SIZES = np.rint(np.exp(LEVELS / 2)).astype(np.int64)
"""The number of candidates at each distance, chosen so that all distances are selected about equally often. That makes the rate most visible."""


def softmax_probabilities(rate: float) -> npt.NDArray[np.float64]:
    """Return the probability of each distance from the best, if a candidate has probability ~ e^(-rate distance)."""
    weights = SIZES * np.exp(-rate * LEVELS)
    probabilities: npt.NDArray[np.float64] = weights / weights.sum()
    return probabilities


def permute_and_flip_probabilities(rate: float) -> npt.NDArray[np.float64]:
    """Return the probability of each distance from the best under permute-and-flip.

    Each candidate tosses a coin with probability e^(-rate distance) of heads, and one of those with heads is selected uniformly. A
    candidate with coin p is selected with probability p E[1 / (1 + N)], where N is the number of others with heads. This is the
    integral over t from 0 to 1 of p times the product of 1 - q + q t over the others, a polynomial that Gauss's rule with enough points
    integrates exactly.
    """
    nodes, weights = np.polynomial.legendre.leggauss(int(SIZES.sum()) // 2 + 1)
    t = (nodes + 1) / 2
    coins = np.exp(-rate * LEVELS)
    factors = 1 - coins[:, None] + coins[:, None] * t
    product = np.exp((SIZES[:, None] * np.log(factors)).sum(axis=0))
    probabilities: npt.NDArray[np.float64] = SIZES * coins * ((product / factors) @ (weights / 2))
    return probabilities


def distances(mechanism: Selecting, count: int) -> Outcomes:
    """Return the distance of each selected candidate from the best."""
    scores = np.repeat(-LEVELS, SIZES).astype(np.int64)
    return -scores[selected(mechanism, scores.tolist())(count)]


def between(  # noqa: PLR0913  a mechanism, who pays what, and two tables
    setting: str,
    drawn: Selecting,
    *,
    tables: tuple[list[int], list[int]],
    paid: Priced | None = None,
    currency: Currency = Currency.PURE,
    draws: int = DRAWS,
) -> EventCheck:
    """Return the check of selections among the scores of two tables, against the mechanism's own price or that of another."""
    payer: Any = paid or drawn
    return event(
        setting, lambda scores: selected(drawn, scores), tables=tables, paid=payer, currency=currency, draws=draws
    )


def behind(first: int, second: int, *, others: int = 1) -> tuple[list[int], list[int]]:
    """Return two neighbouring tables. In each, the first candidate scores below all others by one of two gaps."""
    return [0, *[first] * others], [0, *[second] * others]


def _exponential(flavour: Flavour, epsilon: float = EPSILON, *, sensitivity: int = 1) -> ExponentialMechanism:
    return ExponentialMechanism(epsilon=epsilon, sensitivity=sensitivity, flavour=flavour)


def _spread(flavour: Flavour) -> tuple[DistributionCheck, Bug]:
    """Return the check of the selected distances, and the bug in which they are compared with a narrower distribution."""
    probabilities = softmax_probabilities if flavour is Flavour.GUMBEL else permute_and_flip_probabilities
    drawn = _exponential(flavour, 1.0)
    sound = DistributionCheck(
        setting=f"{flavour.value}, {SIZES.sum()} candidates",
        draw=once(lambda count: distances(drawn, count)),
        draws=DISTRIBUTION_DRAWS,
        outcomes=LEVELS,
        probabilities=probabilities(0.5),
    )
    bug = Bug(
        name=f"{flavour.value} scale x1.03",
        how="the selection noise is 3% wider than its epsilon states",
        check=replace(sound, probabilities=probabilities(0.5 * WIDER)),
    )
    return sound, bug


def exponential() -> Case:
    """Return the audit of the exponential mechanism."""
    gumbel, flip = _exponential(Flavour.GUMBEL), _exponential(Flavour.PERMUTE_AND_FLIP)
    far_gumbel, far_flip = (
        _exponential(flavour, sensitivity=FAR) for flavour in (Flavour.GUMBEL, Flavour.PERMUTE_AND_FLIP)
    )
    flipped = between("permute-and-flip, D = 3, behind by 0 or 6", far_flip, tables=behind(0, 2 * FAR))
    spreads = [_spread(flavour) for flavour in Flavour]
    balanced = between(
        "Gumbel, D = 3, ahead or behind by 3", far_gumbel, tables=behind(-FAR, FAR), currency=Currency.ZCDP
    )
    return Case(
        name=ExponentialMechanism.name,
        theorem="An index selected with probability ~ e^(epsilon score / (2 D)), or by permute-and-flip, is epsilon-DP; the first is also epsilon^2/8-zCDP.",
        reference="McSherry and Talwar 2007; Cesar and Rogers 2021; McKenna and Sheldon 2020",
        prices={
            Currency.PURE: "epsilon",
            Currency.ZCDP: "epsilon^2 / 8; permute-and-flip epsilon tanh(epsilon / 2)",
            Currency.GDP: "4 Phi^-1(e^x / (1 + e^x))^2 with x = epsilon / 2; permute-and-flip with x = epsilon",
        },
        checks=(
            flipped,
            replace(flipped, currency=Currency.ZCDP, charged=far_flip.price(Currency.ZCDP)),
            between("Gumbel, behind 4 by 0 or 2", gumbel, tables=behind(0, 2, others=4), draws=MORE_DRAWS),
            balanced,
            replace(balanced, currency=Currency.GDP, charged=far_gumbel.price(Currency.GDP)),
            *(sound for sound, _ in spreads),
            StreamCheck(setting="Gumbel", draw=selected(gumbel, [0, 0, 1])),
            StreamCheck(setting="permute-and-flip", draw=selected(flip, [0, 0, 1])),
        ),
        bugs=(
            Bug(
                name="epsilon^2/8 for permute-and-flip",
                how="permute-and-flip is charged the rho of the exponential mechanism",
                check=between(
                    "permute-and-flip, behind by 0 or 2, epsilon 1",
                    _exponential(Flavour.PERMUTE_AND_FLIP, 1.0),
                    paid=_exponential(Flavour.GUMBEL, 1.0),
                    tables=behind(0, 2),
                    currency=Currency.ZCDP,
                ),
            ),
            Bug(
                name="sensitivity halved",
                how="scores change by 2, but the sensitivity is stated as 1",
                check=between(
                    "permute-and-flip, behind by 0 or 4, paid as 2", flip, tables=behind(0, 4), draws=FEWER_DRAWS
                ),
            ),
            *(bug for _, bug in spreads),
            numpy_randomness("Gumbel", selected(planted.NumpyMax(scale=1.0), [0, 0, 1])),
        ),
    )


def _maximum(noise: MaxNoise, *, sensitivity: int = 1, monotone: bool = False) -> ReportNoisyMax:
    return ReportNoisyMax(epsilon=EPSILON, sensitivity=sensitivity, noise=noise, monotone=monotone)


def noisy_max() -> Case:
    """Return the audit of report noisy max."""
    laplace = _maximum(MaxNoise.LAPLACE)
    far_laplace, far_gumbel = (_maximum(noise, sensitivity=FAR) for noise in (MaxNoise.LAPLACE, MaxNoise.GUMBEL))
    counted, added = (
        ReportNoisyMax.of_counts(
            epsilon=EPSILON,
            protection=Protection(unit="person", rows_per_unit=FAR, neighbours=neighbours),
            noise=MaxNoise.EXPONENTIAL,
        )
        for neighbours in (Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE)
    )
    moved = [9, 9], [9 - FAR, 9 + FAR]
    return Case(
        name=ReportNoisyMax.name,
        theorem="The index of the largest score with Laplace, exponential or Gumbel noise of scale 2 D / epsilon, or D / epsilon if scores are monotone, is epsilon-DP.",
        reference="Dwork and Roth 2014, Claim 3.9; Ding et al. 2021; Durfee and Rogers 2019",
        prices={
            Currency.PURE: "epsilon",
            Currency.ZCDP: "epsilon tanh(epsilon / 2); Gumbel epsilon^2 / 8",
            Currency.GDP: "4 Phi^-1(e^x / (1 + e^x))^2 with x = epsilon; Gumbel with x = epsilon / 2",
        },
        checks=(
            between("Laplace, D = 3, behind 4 by 0 or 6", far_laplace, tables=behind(0, 2 * FAR, others=4)),
            between("exponential, 3 rows of 9 9 replaced: 6 12", counted, tables=moved),
            between("exponential, 3 rows added to 9 9: 9 12", added, tables=([9, 9], [9, 9 + FAR])),
            between(
                "Gumbel, D = 3, ahead or behind by 3", far_gumbel, tables=behind(-FAR, FAR), currency=Currency.ZCDP
            ),
            *(StreamCheck(setting=noise.value, draw=selected(_maximum(noise), [0, 0, 1])) for noise in MaxNoise),
        ),
        bugs=(
            Bug(
                name="neighbour flag ignored",
                how="rows are replaced, so counts change in both directions, but the noise is for monotone scores",
                check=between("exponential, rows replaced, paid as monotone", added, tables=moved, draws=FEWER_DRAWS),
            ),
            Bug(
                name="sensitivity halved",
                how="scores change by 2, but the sensitivity is stated as 1",
                check=between("Laplace, behind by 0 or 4, paid as 2", laplace, tables=behind(0, 4), draws=FEWER_DRAWS),
            ),
        ),
    )
