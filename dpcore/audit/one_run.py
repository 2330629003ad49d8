"""The one-run audit: a lower bound of a mechanism's privacy loss, in the currency of its price, from guesses about canaries in a single run.

A fair coin decides for each of m canaries whether it is in the table. A guesser who sees only the output guesses the coins of some of
them. The more guesses are right, the more must have been lost. A mechanism in rho or mu^2 promises a whole trade-off curve, and one pair
(epsilon, delta) alone says little about Gaussian noise, so the guesses are compared with the curve.

Write `most(q)` for the largest probability that a promise allows an event on one neighbour if it has probability q on the other.
`most` is concave, and `least` is its inverse: the smallest q that goes with a given probability.

Theorem. Each of m canaries is in by its own fair coin. From the output alone a guesser picks exactly r canaries and guesses their coins.
Let N be the number of right guesses, and G(t) = P(N >= t). If the promise holds for every change of one coin, then for t = 1, ..., r

    (r - t + 1) G(t - 1)  >=  m least((t G(t) + G(t + 1) + ... + G(r)) / m) + G(t) + ... + G(r).

Proof. Fix the coins S, a canary j and a t. Let O be the outputs from which j is guessed right with N >= t. With the coin of j flipped,
the same outputs are those from which j is guessed wrong with N >= t - 1. So P(O given S) <= most(P(O given S with j flipped)). Take the
average over j and S, where flipping one coin leaves S uniform, and use that `most` is concave:

    E[N; N >= t] / m  <=  most(E[r - N; N >= t - 1] / m).

Summation by parts writes both expectations in terms of G: E[N; N >= t] = t G(t) + G(t + 1) + ... + G(r), and
E[r - N; N >= t - 1] = (r - t + 1) G(t - 1) - G(t) - ... - G(r).

Corollary. Suppose that P(N >= c) >= miss. Set H(c) = miss, H(t) = 0 above c, and let H(t - 1) be the larger of H(t) and the lower bound
that the theorem gives with H in place of G. By induction downwards from c, G(t) >= H(t), since the right side of the theorem rises with
every G(s). If H exceeds 1, that is impossible: at least c right guesses then have a probability below `miss`.

In pure epsilon this is the bound of Steinke, Nasr and Jagielski: no guess is right with odds better than e^epsilon to 1, and all guesses
together do no better than independent ones. Their Theorem 5.2 also holds if the number of guesses depends on the output.

Reference: Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023; Mahloujifar, Melis and Chaudhuri 2025,
"Auditing f-differential privacy in one run", for the idea of the curve; the proof is the one above.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency

Least: TypeAlias = Callable[[float], float]
"""Returns the smallest probability of an event on one neighbour, given its probability on the other."""

MOST_AMOUNT = {Currency.PURE: 40.0, Currency.ZCDP: 400.0, Currency.GDP: 800.0}
"""The largest amount at which a lower bound is searched."""

_NORMAL = NormalDist()
_ORDERS = 1 + np.geomspace(1e-2, 30.0, 16)
"""The orders at which Renyi divergences are compared. Fewer orders make the curve weaker but never wrong."""


def least_amount(  # noqa: PLR0913  what was guessed, and how sure the bound must be
    *,
    currency: Currency,
    canaries: int,
    guesses: int,
    correct: int,
    miss: float,
    between: tuple[float, float] | None = None,
) -> float:
    """Return a lower bound of the amount that a mechanism must have lost, given the right guesses from one run.

    Guarantee: for a mechanism that loses at most an amount a for each change of one coin, the result is above a with probability at most
    `miss`, whoever guesses and however, as long as the number of guesses does not depend on the output. In epsilon it may.

    >>> guessed = {"canaries": 2000, "guesses": 2000, "miss": 1e-8}
    >>> round(least_amount(currency=Currency.PURE, correct=1462, **guessed), 2)
    0.72
    >>> least_amount(currency=Currency.GDP, correct=1000, **guessed)
    0.0

    Args:
        currency: The currency of the amount: epsilon, rho or mu^2.
        canaries: The number of canaries, each in or out by its own fair coin.
        guesses: The number of canaries that are guessed, fixed in advance but in epsilon.
        correct: The number of right guesses.
        miss: The probability with which the result may be too large.
        between: The range in which to search for the bound. The result is clipped to this range.
    """
    if not 0 <= correct <= guesses <= canaries or not 0 < miss < 0.5:
        raise UsageError(
            "an audit needs 0 <= correct <= guesses <= canaries, and a miss above 0 and below 0.5; count the guesses again"
        )

    def plausible(amount: float) -> bool:
        curve = curve_of(currency, amount)
        return _plausible(curve, canaries=canaries, guesses=guesses, correct=correct, miss=miss)

    low, high = between or (0.0, MOST_AMOUNT[currency])
    if 2 * correct <= guesses or plausible(low):
        return low
    if not plausible(high):
        return high
    for _ in range(14):  # precise to a 16,000th of the range
        middle = (low + high) / 2
        low, high = (low, middle) if plausible(middle) else (middle, high)
    return low


def curve_of(currency: Currency, amount: float) -> Least:
    """Return the curve that an amount promises.

    In epsilon: q >= p e^-epsilon and 1 - p >= (1 - q) e^-epsilon. In mu^2: the normal quantiles of p and q differ by at most mu. In rho:
    at every order, the Renyi divergence between two coins with these probabilities is at most the order times rho.
    Each of these sets of pairs (q, p) is convex, that of rho because p^a q^(1 - a) is convex for a > 1; so `most` is concave.

    Reference: Dong, Roth and Su 2022, for epsilon and mu; van Erven and Harremoes 2014, for the data-processing inequality of rho.

    >>> [round(curve_of(currency, 1.0)(0.5), 3) for currency in Currency]
    [0.184, 0.041, 0.159]
    """
    if currency is Currency.PURE:
        shrink, grow = math.exp(-amount), math.exp(amount)
        return lambda p: max(p * shrink, 1 - grow * (1 - p))
    if currency is Currency.GDP:
        mu = math.sqrt(amount)
        return lambda p: _NORMAL.cdf(_NORMAL.inv_cdf(p) - mu) if 0 < p < 1 else p
    return _zcdp_curve(amount)


@lru_cache(maxsize=256)
def _zcdp_curve(rho: float) -> Least:
    """Tabulate the curve of zCDP. Between two knots, use the value at the lower one, and below the first one 0: smaller, so the bound stays valid."""
    half = np.geomspace(1e-14, 0.5, 150)
    knots = np.concatenate((half, 1 - half[-2::-1]))
    low, high = np.zeros_like(knots), knots.copy()  # with q = p nothing is lost
    allowed = (_ORDERS - 1) * _ORDERS * rho
    for _ in range(40):
        middle = (low + high) / 2
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            within = _renyi_within(knots, middle, allowed) & _renyi_within(middle, knots, allowed)
        low, high = np.where(within, low, middle), np.where(within, middle, high)
    places, values = knots.tolist(), low.tolist()

    def least(p: float) -> float:
        place = bisect_right(places, p)
        return values[place - 1] if place else 0.0

    return least


def _renyi_within(p: np.ndarray, q: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return for which pairs of coins all Renyi divergences are within the allowed values: (a - 1) D_a <= (a - 1) a rho."""
    orders = _ORDERS[:, None]
    heads = orders * np.log(p) + (1 - orders) * np.log(q)
    tails = orders * np.log1p(-p) + (1 - orders) * np.log1p(-q)
    within: np.ndarray = (np.logaddexp(heads, tails) <= allowed[:, None]).all(axis=0)
    return within


def _plausible(least: Least, *, canaries: int, guesses: int, correct: int, miss: float) -> bool:
    """Return whether the curve allows `correct` or more right guesses with probability `miss`, by the corollary's recursion."""
    tail = miss  # H(t)
    tails = miss  # H(t) + ... + H(r)
    for t in range(correct, 0, -1):
        weighted = ((t - 1) * tail + tails) / canaries  # t H(t) + H(t + 1) + ... + H(r)
        tail = max(tail, (canaries * least(weighted) + tails) / (guesses - t + 1))
        if tail > 1:
            return False
        tails += tail
    return True
