"""Audit of AboveThreshold and of the sparse vector technique with several positives, with published variants that are broken."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpcore.audit import planted
from dpcore.audit.broken_sparse_vectors import BROKEN_SPARSE_VECTORS
from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import once
from dpcore.audit.checks import DistributionCheck, Draw, EventCheck, StreamCheck
from dpcore.audit.events import Outcomes
from dpcore.mechanisms.sessions import Session
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.textbook.above_threshold import AboveThreshold

EPSILON = 4.0
LESS = 2.0
"""An epsilon at which even a rare answer occurs often enough to reveal values that change too much."""

FAR = 3
"""A sensitivity other than 1: values that change this much need proportionally more noise."""

DRAWS = 30_000
MORE_DRAWS = 60_000
BROKEN_DRAWS = 400_000

HERE, THERE = [-1, -1, -1, -1, 0], [0, 0, 0, 0, -1]
"""Values that change as much as allowed, the first four up and the last down. The last is likelier to be the first positive here."""

FAR_HERE, FAR_THERE = ([FAR * value for value in values] for values in (HERE, THERE))

_PRICES = {
    Currency.PURE: "epsilon",
    Currency.ZCDP: "epsilon tanh(epsilon / 2)",
    Currency.GDP: "4 Phi^-1(e^x / (1 + e^x))^2 with x = epsilon",
}


class Interactive(Protocol):
    """A mechanism that begins sessions."""

    def begin(self, threshold: int, /) -> Session:
        """Return a session."""


def answered(mechanism: Interactive, values: Sequence[int]) -> Draw:
    """Return draws of sessions with threshold 0. Each is encoded by its answers as binary digits after a leading 1."""
    asked = np.array(values, dtype=np.int64)

    def told(answers: npt.NDArray[np.bool_]) -> int:
        return int("1" + "".join("1" if answer else "0" for answer in answers.tolist()), base=2)

    def draw(count: int) -> Outcomes:
        sessions = (mechanism.begin(0).ask_all(asked) for _ in range(count))
        return np.fromiter(map(told, sessions), dtype=np.int64, count=count)

    return draw


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


def _event(  # noqa: PLR0913  a mechanism, who pays what, and two tables
    setting: str, drawn: Interactive, *, charged: int, here: list[int], there: list[int], draws: int = DRAWS
) -> EventCheck:
    return EventCheck(
        setting=setting,
        currency=Currency.PURE,
        charged=charged,
        here=once(answered(drawn, here)),
        there=once(answered(drawn, there)),
        draws=draws,
    )


def _distribution(
    event: EventCheck, scales: tuple[float, float], *, values: list[int], positives: int
) -> DistributionCheck:
    exact = sorted(probabilities(scales, values, positives=positives).items())
    return DistributionCheck(
        setting=event.setting,
        draw=event.here,
        draws=event.draws,
        outcomes=np.array([code for code, _ in exact], dtype=np.int64),
        probabilities=np.array([probability for _, probability in exact]),
    )


def _theorem_scales(epsilon: float, *, sensitivity: int, steps: int, ratio: float) -> tuple[float, float]:
    """Return the scales that a theorem requires: D / e1 and steps D / e2, where e1 : e2 = 1 : ratio and e1 + e2 = epsilon."""
    return sensitivity * (1 + ratio) / epsilon, steps * sensitivity * (1 + 1 / ratio) / epsilon


def _above(epsilon: float, *, sensitivity: int = 1, monotone: bool = False) -> AboveThreshold:
    return AboveThreshold(epsilon=epsilon, sensitivity=sensitivity, monotone=monotone)


def _sparse(epsilon: float, *, sensitivity: int = 1, monotone: bool = False, positives: int = 1) -> SparseVector:
    return SparseVector(epsilon=epsilon, sensitivity=sensitivity, positives=positives, monotone=monotone)


def _common_bugs(kind: Callable[..., AboveThreshold | SparseVector]) -> tuple[Bug, ...]:
    less, monotone = kind(LESS), kind(EPSILON, monotone=True)
    return (
        Bug(
            name="sensitivity halved",
            how="values change by 2, but the sensitivity is stated as 1",
            check=_event(
                "moved by 2, paid as 1",
                less,
                charged=less.price(Currency.PURE),
                here=HERE,
                there=[1, 1, 1, 1, -2],
            ),
        ),
        Bug(
            name="neighbour flag ignored",
            how="values change in both directions, as when a row is replaced, but the noise is for monotone ones",
            check=_event(
                "moved both ways, paid as monotone",
                monotone,
                charged=monotone.price(Currency.PURE),
                here=HERE,
                there=THERE,
            ),
        ),
        Bug(
            name="numpy randomness",
            how="the noise comes from NumPy's generator, not from the operating system's entropy",
            check=StreamCheck(setting="sessions", draw=planted.NumpySparseVector().sessions),
        ),
    )


def above_threshold() -> Case:
    """Return the audit of AboveThreshold."""
    sound = _above(EPSILON, sensitivity=FAR)
    charged = sound.price(Currency.PURE)
    event = _event(
        "D = 3, four below, then one", sound, charged=charged, here=FAR_HERE, there=FAR_THERE, draws=MORE_DRAWS
    )
    scales = _theorem_scales(EPSILON, sensitivity=FAR, steps=2, ratio=1.0)
    return Case(
        name=AboveThreshold.name,
        theorem="The index of the first of any number of values to reach a threshold, with noise of scale 2 D / epsilon on the threshold and 4 D / epsilon on each value, is epsilon-DP.",
        reference="Dwork and Roth 2014, Thm. 3.23",
        prices=_PRICES,
        checks=(
            event,
            _distribution(event, scales, values=FAR_HERE, positives=1),
            StreamCheck(setting="sessions", draw=answered(sound, [0, 0, 0])),
        ),
        bugs=(*_common_bugs(_above),),
    )


def sparse_vector() -> Case:
    """Return the audit of the sparse vector technique."""
    one, two = _sparse(EPSILON, sensitivity=FAR), _sparse(EPSILON, positives=2)
    first = _event("D = 3, four below, then one", one, charged=one.price(Currency.PURE), here=FAR_HERE, there=FAR_THERE)
    second = _event(
        "two positives", two, charged=two.price(Currency.PURE), here=[*HERE, 0], there=[*THERE, -1], draws=MORE_DRAWS
    )
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
            _distribution(first, first_scales, values=FAR_HERE, positives=1),
            _distribution(second, second_scales, values=[*HERE, 0], positives=2),
            StreamCheck(setting="sessions", draw=answered(two, [0, 0, 0])),
        ),
        bugs=(
            *_common_bugs(_sparse),
            *(
                Bug(
                    name=form.name,
                    how=form.how,
                    check=EventCheck(
                        setting=form.name,
                        currency=Currency.PURE,
                        charged=round(form.epsilon * AMOUNT_OF_ONE),
                        here=form.seen(form.here),
                        there=form.seen(form.there),
                        draws=BROKEN_DRAWS,
                    ),
                )
                for form in BROKEN_SPARSE_VECTORS
            ),
        ),
    )
