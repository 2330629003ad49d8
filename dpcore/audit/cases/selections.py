"""Audits of the exponential mechanism in both flavours, and of report noisy max, with its three kinds of noise."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import FROM_NUMPY, Priced, event, once, told
from dpcore.audit.checks import DistributionCheck, Draw, EventCheck, StreamCheck
from dpcore.mechanisms.exponential import ExponentialMechanism, Flavour, NoisyMaximum, ReportNoisyMax
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection

FAR = 3
"""A sensitivity other than 1: scores that change this much need proportionally more noise."""


LEVELS = np.arange(11)
"""The distances of candidates from the best score in the check of the distribution."""

SIZES = np.rint(np.exp(LEVELS / 2)).astype(np.int64)
"""The number of candidates at each distance, chosen so that all distances are selected about equally often. That makes the rate most visible."""

Probabilities = npt.NDArray[np.float64]


def softmax_probabilities(rate: float) -> Probabilities:
    """Return the probability of each distance from the best, if a candidate has probability ~ e^(-rate distance)."""
    weights = SIZES * np.exp(-rate * LEVELS)
    probabilities: Probabilities = weights / weights.sum()
    return probabilities


def permute_and_flip_probabilities(rate: float) -> Probabilities:
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
    probabilities: Probabilities = SIZES * coins * ((product / factors) @ (weights / 2))
    return probabilities


def selected(mechanism: NoisyMaximum, scores: list[int]) -> Draw:
    """Return draws of the index selected among some scores."""
    candidates = np.array(scores, dtype=np.int64)
    return told(lambda: mechanism.draw(candidates))


def _between(
    setting: str,
    drawn: NoisyMaximum,
    *,
    tables: tuple[list[int], list[int]],
    paid: Priced | None = None,
    currency: Currency = Currency.PURE,
) -> EventCheck:
    """Return the check of selections among the scores of two tables, against the mechanism's own price or that of another."""
    return event(
        setting,
        lambda scores: selected(drawn, scores),
        tables=tables,
        paid=paid or drawn,
        currency=currency,
        draws=24_000,
    )


def _behind(first: int, second: int, *, others: int = 1) -> tuple[list[int], list[int]]:
    """Return two neighbouring tables. In each, the first candidate scores below all others by one of two gaps."""
    return [0, *[first] * others], [0, *[second] * others]


def _exponential(flavour: Flavour, epsilon: float = 2.0, *, sensitivity: int = 1) -> ExponentialMechanism:
    return ExponentialMechanism(epsilon=epsilon, sensitivity=sensitivity, flavour=flavour)


def _spread(flavour: Flavour) -> tuple[DistributionCheck, Bug]:
    """Return the check of the selected distances, and the bug in which they are compared with a narrower distribution."""
    probabilities = softmax_probabilities if flavour is Flavour.GUMBEL else permute_and_flip_probabilities
    scores = np.repeat(-LEVELS, SIZES)
    draw = selected(_exponential(flavour, 1.0), scores.tolist())
    sound = DistributionCheck(
        setting=f"{flavour.value}, {SIZES.sum()} candidates",
        draw=once(lambda count: -scores[draw(count)]),
        draws=60_000,
        outcomes=LEVELS,
        probabilities=probabilities(0.5),
    )
    bug = Bug(
        name=f"{flavour.value} scale x1.03",
        how="the selection noise is 3% wider than its epsilon states",
        check=replace(sound, probabilities=probabilities(0.5 * 1.03)),
    )
    return sound, bug


def exponential() -> Case:
    """Return the audit of the exponential mechanism."""
    flavours = Flavour.GUMBEL, Flavour.PERMUTE_AND_FLIP
    (gumbel, flip), (far_gumbel, far_flip) = (
        [_exponential(flavour, sensitivity=sensitivity) for flavour in flavours] for sensitivity in (1, FAR)
    )
    flipped = _between("permute-and-flip, D = 3, behind by 0 or 6", far_flip, tables=_behind(0, 2 * FAR))
    (gumbel_spread, gumbel_bug), (flip_spread, flip_bug) = map(_spread, flavours)
    balanced = _between(
        "Gumbel, D = 3, ahead or behind by 3", far_gumbel, tables=_behind(-FAR, FAR), currency=Currency.ZCDP
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
            _between("Gumbel, behind 4 by 0 or 2", gumbel, tables=_behind(0, 2, others=4)),
            balanced,
            replace(balanced, currency=Currency.GDP, charged=far_gumbel.price(Currency.GDP)),
            gumbel_spread,
            flip_spread,
            StreamCheck(setting="Gumbel", draw=selected(gumbel, [0, 0, 1])),
            StreamCheck(setting="permute-and-flip", draw=selected(flip, [0, 0, 1])),
        ),
        bugs=(
            Bug(
                name="epsilon^2/8 for permute-and-flip",
                how="permute-and-flip is charged the rho of the exponential mechanism",
                check=_between(
                    "permute-and-flip, behind by 0 or 2, epsilon 1",
                    _exponential(Flavour.PERMUTE_AND_FLIP, 1.0),
                    paid=_exponential(Flavour.GUMBEL, 1.0),
                    tables=_behind(0, 2),
                    currency=Currency.ZCDP,
                ),
            ),
            Bug(
                name="sensitivity halved",
                how="scores change by 2, but the sensitivity is stated as 1",
                check=_between("permute-and-flip, behind by 0 or 4, paid as 2", flip, tables=_behind(0, 4)),
            ),
            gumbel_bug,
            flip_bug,
            FROM_NUMPY,
        ),
    )


def noisy_max() -> Case:
    """Return the audit of report noisy max."""
    laplace, gumbel = (
        ReportNoisyMax(epsilon=2.0, sensitivity=FAR, flavour=flavour, monotone=False)
        for flavour in (Flavour.LAPLACE, Flavour.GUMBEL)
    )
    counted, added = (
        ReportNoisyMax.of_counts(
            epsilon=2.0,
            protection=Protection(unit="person", rows_per_unit=FAR, neighbours=neighbours),
            flavour=Flavour.PERMUTE_AND_FLIP,
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
            _between("Laplace, D = 3, behind 4 by 0 or 6", laplace, tables=_behind(0, 2 * FAR, others=4)),
            _between("exponential, 3 rows of 9 9 replaced: 6 12", counted, tables=moved),
            _between("exponential, 3 rows added to 9 9: 9 12", added, tables=([9, 9], [9, 9 + FAR])),
            _between("Gumbel, D = 3, ahead or behind by 3", gumbel, tables=_behind(-FAR, FAR), currency=Currency.ZCDP),
            StreamCheck(setting="laplace", draw=selected(laplace, [0, 0, 1])),
        ),
        bugs=(
            Bug(
                name="neighbour flag ignored",
                how="rows are replaced, so counts change in both directions, but the noise is for monotone scores",
                check=_between("exponential, rows replaced, paid as monotone", added, tables=moved),
            ),
            Bug(
                name="sensitivity halved",
                how="scores change by twice as much as stated",
                check=_between("Laplace, D = 3, behind by 0 or 12, paid as 6", laplace, tables=_behind(0, 4 * FAR)),
            ),
        ),
    )
