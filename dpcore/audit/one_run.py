"""The one-run audit: bound a mechanism's privacy loss from below, from guesses about canaries in a single run.

A fair coin decides for each of m canaries whether it is in the table. A guesser who sees only the output guesses the coins of some of
them. The more guesses are right, the larger epsilon must be: if the mechanism keeps its promise, no guess is right with odds better than
e^epsilon to 1, and all guesses together do no better than independent ones.
"""

from math import exp, log1p
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError

Probabilities: TypeAlias = npt.NDArray[np.float64]

LARGEST_EPSILON = 64.0
STEPS = 40  # of bisection: far more precise than any number of guesses can resolve


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
        canaries: The number of canaries, each in or out by its own fair coin.
        guesses: The number of canaries that were guessed. The others do not affect the bound, unless delta is above 0.
        correct: The number of right guesses.
        delta: The delta that the mechanism claims.
        confidence: The probability, over the coins and the mechanism's noise, with which the bound holds.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise UsageError("an audit needs 0 <= correct <= guesses <= canaries; count the guesses again")
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
    """Bound the probability of `correct` or more right guesses."""
    below = np.cumsum(_binomial(guesses, epsilon)[:correct][::-1])  # probability of 1, 2, ... fewer right guesses
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
