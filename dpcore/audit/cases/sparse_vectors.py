"""Audit of AboveThreshold and of the sparse vector technique with several positives, with published variants that are broken."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dpcore.audit.broken_sparse_vectors import BROKEN_SPARSE_VECTORS
from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import FROM_NUMPY, event, told, yes_or_no
from dpcore.audit.checks import DistributionCheck, Draw, EventCheck, StreamCheck
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.textbook.above_threshold import AboveThreshold

EPSILON = 4.0
FAR = 3
"""A sensitivity other than 1: values that change this much need proportionally more noise."""

MORE_DRAWS = 60_000

HERE, THERE = [-1, -1, -1, -1, 0], [0, 0, 0, 0, -1]
"""Values that change as much as allowed, the first four up and the last down. The last is likelier to be the first positive here."""

FAR_HERE, FAR_THERE = ([FAR * value for value in values] for values in (HERE, THERE))

_PRICES = {
    Currency.PURE: "epsilon",
    Currency.ZCDP: "epsilon tanh(epsilon / 2)",
    Currency.GDP: "4 Phi^-1(e^x / (1 + e^x))^2 with x = epsilon",
}


def answered(mechanism: SparseVector, values: Sequence[int]) -> Draw:
    """Return draws of sessions with threshold 0, each encoded by its answers."""
    asked = np.array(values, dtype=np.int64)
    return told(lambda: yes_or_no(mechanism.begin(0).ask_all(asked)))


def probabilities(scales: tuple[float, float], values: Sequence[int], *, positives: int) -> dict[int, float]:
    """Return the exact probability of each answer sequence, encoded as in `answered`, by summing over the threshold's noise."""
    reach = round(50 * scales[0]) + 50
    bars = np.arange(-reach, reach + 1)
    mass = np.exp(-np.abs(bars) / scales[0])
    left = {(1, 0): mass / mass.sum()}
    done: dict[int, float] = {}
    for value in values:
        reaches = _tail(bars - value, scales[1])
        following = {}
        for (code, count), weights in left.items():
            following[2 * code, count] = weights * (1 - reaches)
            if count + 1 < positives:
                following[2 * code + 1, count + 1] = weights * reaches
            else:
                done[2 * code + 1] = float((weights * reaches).sum())
        left = following
    return done | {code: float(weights.sum()) for (code, _), weights in left.items()}


def _tail(least: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.float64]:
    """Return the probability that discrete Laplace noise is at least `least`."""
    above = np.exp(-np.abs(np.where(least > 0, least, 1 - least)) / scale) / (1 + np.exp(-1 / scale))
    tail: npt.NDArray[np.float64] = np.where(least > 0, above, 1 - above)
    return tail


def _event(
    setting: str, drawn: SparseVector, *, tables: tuple[list[int], list[int]], draws: int = 30_000
) -> EventCheck:
    return event(setting, lambda values: answered(drawn, values), tables=tables, paid=drawn, draws=draws)


def distribution(event: EventCheck, exact: Mapping[int, float]) -> DistributionCheck:
    """Return the check of an event's draws on the first table against the exact probabilities of all answers."""
    codes = sorted(exact)
    return DistributionCheck(
        setting=event.setting,
        draw=event.here,
        draws=event.draws,
        outcomes=np.array(codes, dtype=np.int64),
        probabilities=np.array([exact[code] for code in codes]),
    )


def _theorem_scales(epsilon: float, *, sensitivity: int, steps: int, ratio: float) -> tuple[float, float]:
    """Return the scales that a theorem requires: D / e1 and steps D / e2, where e1 : e2 = 1 : ratio and e1 + e2 = epsilon."""
    return sensitivity * (1 + ratio) / epsilon, steps * sensitivity * (1 + 1 / ratio) / epsilon


def _mechanism(
    kind: type[SparseVector],
    epsilon: float = EPSILON,
    *,
    sensitivity: int = 1,
    monotone: bool = False,
    positives: int = 1,
) -> SparseVector:
    return kind(epsilon=epsilon, sensitivity=sensitivity, positives=positives, monotone=monotone)


def _common_bugs(kind: type[SparseVector]) -> tuple[Bug, ...]:
    less = _mechanism(kind, EPSILON / 2)  # even a rare answer occurs often enough to reveal values that change too much
    return (
        Bug(
            name="sensitivity halved",
            how="values change by 2, but the sensitivity is stated as 1",
            check=_event("moved by 2, paid as 1", less, tables=(HERE, [1, 1, 1, 1, -2])),
        ),
        Bug(
            name="neighbour flag ignored",
            how="values change in both directions, as when a row is replaced, but the noise is for monotone ones",
            check=_event("moved both ways, paid as monotone", _mechanism(kind, monotone=True), tables=(HERE, THERE)),
        ),
        FROM_NUMPY,
    )


def above_threshold() -> Case:
    """Return the audit of AboveThreshold."""
    sound = _mechanism(AboveThreshold, sensitivity=FAR)
    first = _event("D = 3, four below, then one", sound, tables=(FAR_HERE, FAR_THERE), draws=MORE_DRAWS)
    scales = _theorem_scales(EPSILON, sensitivity=FAR, steps=2, ratio=1.0)
    return Case(
        name=AboveThreshold.name,
        theorem="The index of the first of any number of values to reach a threshold, with noise of scale 2 D / epsilon on the threshold and 4 D / epsilon on each value, is epsilon-DP.",
        reference="Dwork and Roth 2014, Thm. 3.23",
        prices=_PRICES,
        checks=(
            first,
            distribution(first, probabilities(scales, FAR_HERE, positives=1)),
            StreamCheck(setting="sessions", draw=answered(sound, [0, 0, 0])),
        ),
        bugs=_common_bugs(AboveThreshold),
    )


def sparse_vector() -> Case:
    """Return the audit of the sparse vector technique."""
    far, two = _mechanism(SparseVector, sensitivity=FAR), _mechanism(SparseVector, positives=2)
    two_here, two_there = [*HERE, 0], [*THERE, -1]
    first = _event("D = 3, four below, then one", far, tables=(FAR_HERE, FAR_THERE))
    second = _event("two positives", two, tables=(two_here, two_there), draws=MORE_DRAWS)
    first_scales = _theorem_scales(EPSILON, sensitivity=FAR, steps=2, ratio=2 ** (2 / 3))
    second_scales = _theorem_scales(EPSILON, sensitivity=1, steps=4, ratio=4 ** (2 / 3))
    return Case(
        name=SparseVector.name,
        theorem="The indices of up to c of any number of values that reach a threshold are epsilon-DP with noise of scale D / e1 on the threshold and 2 c D / e2 on each value, e1 + e2 = epsilon.",
        reference="Lyu, Su and Li 2017",
        prices=_PRICES,
        checks=(
            first,
            second,
            distribution(first, probabilities(first_scales, FAR_HERE, positives=1)),
            distribution(second, probabilities(second_scales, two_here, positives=2)),
            StreamCheck(setting="sessions", draw=answered(two, [0, 0, 0])),
        ),
        bugs=(
            *_common_bugs(SparseVector),
            *(
                Bug(
                    name=form.name,
                    how=form.how,
                    check=event(
                        form.name,
                        form.seen,
                        tables=(form.here, form.there),
                        paid=round(form.epsilon * AMOUNT_OF_ONE),
                        draws=400_000,
                    ),
                )
                for form in BROKEN_SPARSE_VECTORS
            ),
        ),
    )
