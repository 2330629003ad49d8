"""Sparse vectors under audit: AboveThreshold and the technique with several positives, beside published forms that are broken."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpcore.accounting import UNIT, Currency
from dpcore.auditing import planted
from dpcore.auditing.broken_sparse_vectors import BROKEN_SPARSE_VECTORS
from dpcore.auditing.case import Bug, Case
from dpcore.auditing.cases.outputs import once
from dpcore.auditing.checks import DistributionCheck, Draw, EventCheck, StreamCheck
from dpcore.auditing.events import Outcomes
from dpcore.mechanisms.above_threshold import AboveThreshold
from dpcore.mechanisms.sessions import Session
from dpcore.mechanisms.sparse_vector import SparseVector

EPSILON = 4.0
LESS = 2.0
"""An epsilon at which even a rare answer is seen often enough to show that values moved too far."""

DRAWS = 40_000
FEWER_DRAWS = 20_000
BROKEN_DRAWS = 400_000

HERE, THERE = [-1, -1, -1, -1, 0], [0, 0, 0, 0, -1]
"""Values that move as far as they may, the first four up and the last down: it is likelier to be the first positive here."""

_PRICES = {
    Currency.PURE: "epsilon",
    Currency.ZCDP: "epsilon tanh(epsilon / 2)",
    Currency.GDP: "4 Phi^-1(e^x / (1 + e^x))^2 with x = epsilon",
}


class Interactive(Protocol):
    """Whatever begins sessions."""

    @property
    def scales(self) -> tuple[float, float]:
        """The scale of the threshold's noise, and that of each value's."""

    def begin(self, threshold: int, /) -> Session:
        """Return a session."""


def answered(mechanism: Interactive, values: Sequence[int]) -> Draw:
    """Return sessions with a threshold of 0, each told by its answers as the digits of a number that starts with 1."""
    asked = np.array(values, dtype=np.int64)

    def told(answers: npt.NDArray[np.bool_]) -> int:
        return int("1" + "".join("1" if answer else "0" for answer in answers.tolist()), base=2)

    def draw(count: int) -> Outcomes:
        sessions = (mechanism.begin(0).ask_all(asked) for _ in range(count))
        return np.fromiter(map(told, sessions), dtype=np.int64, count=count)

    return draw


def probabilities(scales: tuple[float, float], values: Sequence[int], *, positives: int) -> dict[int, float]:
    """Return the exact probability of each sequence of answers, told as `answered` does: a sum over the threshold's noise."""
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
    """Return the probability that discrete Laplace noise is at least so much."""
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


def _distribution(event: EventCheck, drawn: Interactive, *, values: list[int], positives: int) -> DistributionCheck:
    exact = sorted(probabilities(drawn.scales, values, positives=positives).items())
    return DistributionCheck(
        setting=event.setting,
        draw=event.here,
        draws=event.draws,
        outcomes=np.array([code for code, _ in exact], dtype=np.int64),
        probabilities=np.array([probability for _, probability in exact]),
    )


def _above(epsilon: float, *, monotone: bool = False) -> AboveThreshold:
    return AboveThreshold(epsilon=epsilon, sensitivity=1, monotone=monotone)


def _sparse(epsilon: float, *, monotone: bool = False, positives: int = 1) -> SparseVector:
    return SparseVector(epsilon=epsilon, sensitivity=1, positives=positives, monotone=monotone)


def _common_bugs(kind: Callable[..., AboveThreshold | SparseVector]) -> tuple[Bug, ...]:
    less, monotone = kind(LESS), kind(EPSILON, monotone=True)
    return (
        Bug(
            name="sensitivity halved",
            how="values move by 2 where the sensitivity says 1",
            check=_event(
                "moved by 2, paid as 1",
                less,
                charged=less.charge(Currency.PURE),
                here=HERE,
                there=[1, 1, 1, 1, -2],
                draws=FEWER_DRAWS,
            ),
        ),
        Bug(
            name="neighbour flag ignored",
            how="values move both ways, as if a row was replaced, and the noise is that of monotone ones",
            check=_event(
                "moved both ways, paid as monotone",
                monotone,
                charged=monotone.charge(Currency.PURE),
                here=HERE,
                there=THERE,
                draws=FEWER_DRAWS,
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
    sound = _above(EPSILON)
    charged = sound.charge(Currency.PURE)
    event = _event("four just below, then one", sound, charged=charged, here=HERE, there=THERE)
    return Case(
        name=AboveThreshold.name,
        theorem="The first of any number of values to reach a threshold, with noise of 2 D / epsilon on it and 4 D / epsilon on them, is epsilon-DP.",
        reference="Dwork and Roth 2014, Thm. 3.23",
        prices=_PRICES,
        checks=(
            event,
            _distribution(event, sound, values=HERE, positives=1),
            StreamCheck(setting="sessions", draw=answered(sound, [0, 0, 0])),
        ),
        bugs=(*_common_bugs(_above),),
    )


def sparse_vector() -> Case:
    """Return the audit of the sparse vector technique."""
    one, two = (_sparse(EPSILON, positives=positives) for positives in (1, 2))
    charged = one.charge(Currency.PURE)
    first = _event("four just below, then one", one, charged=charged, here=HERE, there=THERE)
    second = _event("two positives", two, charged=charged, here=[*HERE, 0], there=[*THERE, -1])
    return Case(
        name=SparseVector.name,
        theorem="Which of any number of values reach a threshold, up to c of them, is epsilon-DP with noise D / e1 on it and 2 c D / e2 on them, e1 + e2 = epsilon.",
        reference="Lyu, Su and Li 2017, Alg. 7",
        prices=_PRICES,
        checks=(
            first,
            second,
            _distribution(first, one, values=HERE, positives=1),
            _distribution(second, two, values=[*HERE, 0], positives=2),
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
                        charged=round(form.epsilon * UNIT),
                        here=form.seen(form.here),
                        there=form.seen(form.there),
                        draws=BROKEN_DRAWS,
                    ),
                )
                for form in BROKEN_SPARSE_VECTORS
            ),
        ),
    )
