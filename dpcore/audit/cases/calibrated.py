"""Audit of Gaussian noise calibrated to (epsilon, delta), by the classic bound and by the exact one."""

import math

import numpy as np

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import event, noisy
from dpcore.audit.checks import Draw, EventCheck
from dpcore.audit.events import Outcomes
from dpcore.mechanisms import RoundedGaussian
from dpcore.mechanisms.noise import analytic_gaussian, classic_gaussian
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Sensitivity

DRAWS = 1_000_000
RARE_DRAWS = 4_000_000
DELTA = 0.01

_STEPS = 10
_SENSITIVITY = Sensitivity(_STEPS, _STEPS**2, _STEPS)


def _event(setting: str, drawn: RoundedGaussian, *, epsilon: float, moved: int = _STEPS) -> EventCheck:
    return event(
        f"{setting}, delta {DELTA:g}",
        lambda count: noisy(drawn, [count]),
        tables=(moved, 0),
        paid=round(epsilon * AMOUNT_OF_ONE),
        draws=DRAWS,
        delta=DELTA,
    )


def _far(drawn: RoundedGaussian, count: int) -> Draw:
    """Return draws of whether a noisy count is as large as a count of 0 becomes only once in 10^5 draws."""
    above = noisy(drawn, [count])

    def draw(draws: int) -> Outcomes:
        return (above(draws) >= 4.265 * drawn.scale).astype(np.int64)

    return draw


def calibrated() -> Case:
    """Return the audit of noise that is calibrated to (epsilon, delta)."""
    exact = analytic_gaussian(epsilon=1.0, delta=DELTA, sensitivity=_SENSITIVITY)
    classic = classic_gaussian(epsilon=0.9, delta=DELTA, sensitivity=_SENSITIVITY)
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
            _event("analytic", exact, epsilon=1.0),
            _event("classic", classic, epsilon=0.9),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="a count changes by twice the stated sensitivity",
                check=_event("analytic, moved twice as far", exact, epsilon=1.0, moved=2 * _STEPS),
            ),
            Bug(
                name="classic bound beyond epsilon 1",
                how="the classic sigma is used for epsilon 8, where its bound is unproved and wrong",
                check=event(
                    f"classic formula, delta {delta:g}",
                    lambda count: _far(beyond, count),
                    tables=(moved, 0),
                    paid=round(epsilon * AMOUNT_OF_ONE),
                    draws=RARE_DRAWS,
                    delta=delta,
                ),
            ),
        ),
    )
