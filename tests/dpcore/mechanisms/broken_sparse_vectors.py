"""Six published forms of the sparse vector technique, four of which are not private, and the exact odds of their answers.

Lyu, Su and Li 2017 compare them. Here all noise is discrete, on whole values, and the threshold is 0. A positive answer
is True, or, of a form that shows the noisy value itself, the range in which that value lies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from dpcore.mechanisms.sampling.noise import with_noise
from dpcore.mechanisms.sampling.thresholds import Shape

Answer: TypeAlias = bool | range
Answers: TypeAlias = tuple[Answer, ...]


@dataclass(frozen=True)
class Form:
    """One form of the technique, by its noises and by when it stops."""

    threshold_scale: float
    query_scale: float | None
    """None: the values get no noise."""
    positives: int | None
    """None: it never stops."""
    redrawn_scale: float | None = None
    """Of the noise that the threshold gets anew after each positive answer; None: it keeps its first."""
    shows_value: bool = False
    """A positive answer is the noisy value that was compared."""

    def probability(self, values: Sequence[int], answers: Answers) -> float:
        """The exact probability of these answers, to a float's precision: a sum over the threshold's noise."""
        mass = self._first
        for value, answer in zip(values, answers, strict=False):  # answers after the last positive are not given
            mass = self._after(mass, value, answer)
        return float(mass.sum())

    def distribution(self, values: Sequence[int]) -> dict[Answers, float]:
        """The exact probabilities of all sequences of yes and no."""
        return {answers: float(mass.sum()) for answers, mass in self._sequences(values, (), self._first)}

    def sample(self, values: Sequence[int], sessions: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw many sessions: which answers are positive, never after the last one, and the noisy values."""
        bars = np.repeat(_noise(self.threshold_scale, (sessions, 1)), len(values), axis=1)
        noisy = np.array(values) + _noise(self.query_scale, bars.shape)
        above = noisy >= bars
        if self.redrawn_scale is not None:
            for place in range(1, len(values)):
                redrawn = _noise(self.redrawn_scale, (sessions,))
                bars[:, place] = np.where(above[:, place - 1], redrawn, bars[:, place - 1])
                above[:, place] = noisy[:, place] >= bars[:, place]
        if self.positives is not None:
            above &= above.cumsum(axis=1) <= self.positives
        return above, noisy

    def event(self, values: Sequence[int], answers: Answers, sessions: int) -> np.ndarray:
        """Say of many sessions whether they gave these answers."""
        above, noisy = self.sample(values, sessions)
        happened = np.ones(sessions, dtype=bool)
        for place, answer in enumerate(answers):
            happened &= above[:, place] == (answer is not False)
            if isinstance(answer, range):
                happened &= (noisy[:, place] >= answer.start) & (noisy[:, place] < answer.stop)
        return happened

    def _sequences(
        self, values: Sequence[int], given: Answers, mass: np.ndarray
    ) -> Iterator[tuple[Answers, np.ndarray]]:
        if len(given) == len(values) or sum(map(bool, given)) == self.positives:
            yield given, mass
            return
        for answer in (False, True):
            yield from self._sequences(values, (*given, answer), self._after(mass, values[len(given)], answer))

    @cached_property
    def _places(self) -> np.ndarray:
        """Every noise of the threshold that has a probability above 1e-21."""
        reach = int(50 * max(self.threshold_scale, self.redrawn_scale or 0.0)) + 1
        return np.arange(-reach, reach + 1)

    @cached_property
    def _first(self) -> np.ndarray:
        return _masses(self._places, self.threshold_scale)

    def _after(self, mass: np.ndarray, value: int, answer: Answer) -> np.ndarray:
        if answer is False:
            return mass * (1.0 - self._reaches(self._places - value))
        if isinstance(answer, range):
            least = np.clip(self._places, answer.start, answer.stop)
            mass = mass * (self._reaches(least - value) - self._reaches(np.array(answer.stop - value)))
        else:
            mass = mass * self._reaches(self._places - value)
        return mass if self.redrawn_scale is None else mass.sum() * _masses(self._places, self.redrawn_scale)

    def _reaches(self, least: np.ndarray) -> np.ndarray:
        """The probability that a value's noise is at least so much."""
        if self.query_scale is None:
            return (least <= 0).astype(float)
        tail = np.exp(-np.abs(np.where(least > 0, least, 1 - least)) / self.query_scale) / (
            1.0 + np.exp(-1.0 / self.query_scale)
        )
        return np.where(least > 0, tail, 1.0 - tail)


def _masses(places: np.ndarray, scale: float) -> np.ndarray:
    weights = np.exp(-np.abs(places) / scale)
    return weights / weights.sum()


def _noise(scale: float | None, shape: tuple[int, ...]) -> np.ndarray:
    zeros = np.zeros(shape, dtype=np.int64)
    return zeros if scale is None else with_noise(zeros, shape=Shape.LAPLACE, scale=scale)


@dataclass(frozen=True)
class Exhibit:
    """A form that claims an epsilon of 1 at a sensitivity of 1, with neighbours and answers that put it to the test."""

    form: Form
    here: tuple[int, ...]
    there: tuple[int, ...]
    answers: Answers


def _steps(negatives: tuple[int, int, int], positives: tuple[int, int, int], shown: Answer = True) -> dict[str, Any]:
    """Values of which the first (how many, here, there) should be negative and the others positive."""
    (n, n_here, n_there), (p, p_here, p_there) = negatives, positives
    return {
        "here": (n_here,) * n + (p_here,) * p,
        "there": (n_there,) * n + (p_there,) * p,
        "answers": (False,) * n + (shown,) * p,
    }


PRIVATE = {
    "Alg. 1, the paper's own": Exhibit(Form(2.0, 4.0, 1), **_steps((4, 0, 1), (1, 0, -1))),
    "Alg. 2, Dwork and Roth 2014": Exhibit(Form(4.0, 8.0, 2, redrawn_scale=4.0), **_steps((4, -2, -1), (2, 0, -1))),
}
"""Those that keep their promise."""

BROKEN = {
    "Alg. 3, Roth 2011: shows the noisy value that was compared": Exhibit(
        Form(2.0, 2.0, 1, shows_value=True), **_steps((4, -2, -1), (1, -2, -3), range(-(10**6), 0))
    ),
    "Alg. 4, Lee and Clifton 2014: the values' noise does not grow with the positives": Exhibit(
        Form(4.0, 4 / 3, 2), **_steps((6, -2, -1), (2, 0, -1))
    ),
    "Alg. 5, Stoddard et al. 2014: no noise on the values, and no stop": Exhibit(
        Form(2.0, None, None), **_steps((1, 0, 1), (1, 1, 0))
    ),
    "Alg. 6, Chen et al. 2015: no stop": Exhibit(Form(2.0, 2.0, None), **_steps((6, -2, -1), (6, 0, -1))),
}
"""Those that do not, whatever their authors wrote."""
