"""What the last bits of a float with float noise tell of what it was before (Mironov 2012), for audits and their controls."""

import math
from collections.abc import Callable

import numpy as np

from tests.contracts.mechanism import epsilon_at_least

Answer = Callable[[float, int], np.ndarray]
"""Answers a query whose true value is the first argument, so many times."""

GRAIN = 2.0**-53
"""A double from 1/2 to 1 is a multiple of it, and so is what is left of one when 1 is taken away."""


def float_laplace(scale: float) -> Answer:
    """The textbook's sampler in floats: value +- scale ln(u), with a uniform double u."""
    generator = np.random.default_rng()

    def answer(value: float, count: int) -> np.ndarray:
        signs = generator.integers(0, 2, size=count) * 2 - 1
        return value + scale * signs * np.log1p(-generator.random(count))

    return answer


def off_grain(answers: np.ndarray, grain: float = GRAIN) -> np.ndarray:
    """Which answers are no multiple of the grain: none is that comes from 1 by adding a double and rounding.

    The noise that takes 1 to an answer below 1/2 is at least 1/2 in size, hence a multiple of 2^-53; the difference of
    two such numbers is exact. From 0 each answer is the noise itself, and a small one has bits far below.
    """
    return np.fmod(answers, grain) != 0


def shown_by_last_bits(answer: Answer, *, here: float, there: float, count: int, grain: float = GRAIN) -> float:
    """A pure epsilon that the answers certainly exceed, by whether their last bits could come from `there`."""
    events, neighbours_events = (off_grain(answer(value, count), grain) for value in (here, there))
    return epsilon_at_least(events, neighbours_events)


def share_told_apart(answer: Answer, *, here: float, there: float, count: int) -> float:
    """How often answers on `here` can't be had from `there` at all."""
    never = not off_grain(answer(there, count)).any()
    return float(off_grain(answer(here, count)).mean()) if never else math.nan
