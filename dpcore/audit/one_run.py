"""The one-run audit: how much privacy a mechanism must have lost, told from guesses about canaries in a single run of it.

Each of m canaries is put in or left out by a fair coin. Whoever sees the output guesses the coins of some of them. The more guesses are
right, the larger epsilon must be: a mechanism that keeps its promise lets no guess be right with odds better than e^epsilon to 1, and the
guesses do no better together than independent ones.
"""

from math import exp, log1p
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError

Probabilities: TypeAlias = npt.NDArray[np.float64]

LARGEST_EPSILON = 64.0
STEPS = 40  # of bisection: far below what any number of guesses can tell apart


def least_epsilon(*, canaries: int, guesses: int, correct: int, delta: float, confidence: float) -> float:
    """Return a lower bound on epsilon that holds with the given confidence, for a mechanism that claims (epsilon, delta).

    Guarantee: if the mechanism is (epsilon, delta)-differentially private with respect to adding or removing a canary, the result is above
    epsilon with probability at most 1 - confidence, whoever guesses and however.

    Reference: Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023, Theorem 5.2 and Appendix D.

    >>> round(least_epsilon(canaries=1000, guesses=1000, correct=731, delta=0.0, confidence=0.95), 2)
    0.88
    >>> least_epsilon(canaries=1000, guesses=1000, correct=500, delta=0.0, confidence=0.95)
    0.0

    Args:
        canaries: How many there were, each in or out by its own fair coin.
        guesses: About how many of them a guess was made; the others cost nothing, unless delta is above 0.
        correct: How many guesses were right.
        delta: The delta that the mechanism claims.
        confidence: With which probability, over the coins and the mechanism's noise, the bound holds.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise UsageError("an audit has at most as many right guesses as guesses, and as many guesses as canaries")
    if not 0 <= delta < 1 or not 0 < confidence < 1:
        raise UsageError("an audit needs a delta from 0 to below 1, and a confidence between 0 and 1")

    def plausible(epsilon: float) -> bool:
        return _chance(epsilon, canaries=canaries, guesses=guesses, correct=correct, delta=delta) > 1 - confidence

    low, high = 0.0, LARGEST_EPSILON
    if plausible(low):
        return low
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if plausible(middle) else (middle, high)
    return low


def _chance(epsilon: float, *, canaries: int, guesses: int, correct: int, delta: float) -> float:
    """Bound the probability of so many right guesses or more."""
    below = np.cumsum(_binomial(guesses, epsilon)[:correct][::-1])  # of 1, 2, ... fewer right guesses than there were
    beyond = max(0.0, 1.0 - float(below[-1])) if correct else 1.0
    most = float((below / np.arange(1, correct + 1)).max(initial=0.0))
    return beyond + 2 * canaries * delta * most


def _binomial(trials: int, log_odds: float) -> Probabilities:
    """Return the probabilities of 0, 1, ..., trials successes, each with the given log odds."""
    hits = np.arange(trials + 1)
    log_factorials = np.cumsum(np.log(np.maximum(hits, 1)))
    log_ways = log_factorials[-1] - log_factorials - log_factorials[::-1]
    probabilities: Probabilities = np.exp(log_ways - (trials - hits) * log_odds - trials * log1p(exp(-log_odds)))
    return probabilities
