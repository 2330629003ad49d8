"""Audit of report noisy max, with its three kinds of noise, and in its form for counts of rows."""

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import selected
from dpcore.audit.cases.selections import EPSILON, FAR, FEWER_DRAWS, behind, between
from dpcore.audit.checks import StreamCheck
from dpcore.mechanisms.noisy_max import MaxNoise, ReportNoisyMax
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection


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
