"""What the counts of one event on two neighbours show of the privacy loss: lower bounds, in each currency.

An event is anything that can be told from an output. If it is much likelier on one of two neighbours than on the other, privacy was lost,
and a guarantee says how much likelier it may be. Its probabilities are known from counts only up to an error; the exact bounds of Clopper
and Pearson make of them statements that fail with at most a chosen probability.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency

_STEPS = 80
"""Of bisection: to the last bit of a float."""

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Tally:
    """How often an event was seen."""

    hits: int
    trials: int

    def __post_init__(self) -> None:
        """Refuse what no count of an event is."""
        if not 0 <= self.hits <= self.trials or self.trials < 1:
            raise UsageError("an event is seen in none, some or all of at least one trial; count it again")

    @classmethod
    def of(cls, events: npt.NDArray[np.bool_]) -> Self:
        """Count an event in trials that each say whether it was seen."""
        return cls(hits=int(np.count_nonzero(events)), trials=events.size)

    @property
    def rest(self) -> "Tally":
        """How often the event was not seen."""
        return Tally(hits=self.trials - self.hits, trials=self.trials)


def probability_bounds(tally: Tally, *, miss: float) -> tuple[float, float]:
    """Return two bounds of an event's probability: each is on the wrong side with probability at most `miss`.

    Reference: Clopper and Pearson 1934.

    >>> low, high = probability_bounds(Tally(hits=0, trials=100), miss=0.01)
    >>> low, round(high, 4)
    (0.0, 0.045)
    """
    _check_miss(miss)
    return _least(tally, miss), 1.0 - _least(tally.rest, miss)


def loss(p: float, q: float, *, currency: Currency, delta: float = 0.0) -> float:
    """Return the least amount of a currency that allows an event the probabilities p on one neighbour and q on the other.

    In epsilon, p <= e^epsilon q + delta. In rho, the event's Kullback-Leibler divergence, as telling whether it was seen is
    post-processing. In mu^2, the distance of normal numbers that make an event as telling. Each rises with p and falls with q where p > q.

    Reference: Dwork and Roth 2014, Def. 2.4; Bun and Steinke 2016, in the limit of the order 1; Dong, Roth and Su 2022.

    >>> loss(0.5, 0.25, currency=Currency.PURE)
    0.6931471805599453
    >>> loss(0.25, 0.5, currency=Currency.ZCDP)
    0.0
    """
    if delta and Currency(currency) is not Currency.PURE:
        raise UsageError("only an epsilon is claimed with a delta; leave it out for rho and mu^2")
    if p - delta <= q:
        return 0.0
    if Currency(currency) is Currency.PURE:
        return math.log((p - delta) / q) if q > 0 else math.inf
    if q == 0 or p == 1:
        return math.inf if q == 0 or Currency(currency) is Currency.GDP else -math.log(q)
    if Currency(currency) is Currency.GDP:
        return (_NORMAL.inv_cdf(p) - _NORMAL.inv_cdf(q)) ** 2
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def at_least(here: Tally, there: Tally, *, currency: Currency, miss: float, delta: float = 0.0) -> float:
    """Return what an event shows that the mechanism has lost at least, in a currency; wrong with probability at most `miss`.

    >>> here, there = Tally(hits=7311, trials=10_000), Tally(hits=2689, trials=10_000)
    >>> round(at_least(here, there, currency=Currency.PURE, miss=1e-8), 2)
    0.87

    Args:
        here: How often the event was seen on the neighbour on which it is likelier.
        there: How often it was seen on the other.
        currency: What the mechanism's price is in.
        miss: With which probability the result may be too large. Half of it goes to each of the two probabilities.
        delta: The delta of a claim of (epsilon, delta); only an epsilon comes with one.
    """
    low, high = probability_bounds(here, miss=miss / 2)[0], probability_bounds(there, miss=miss / 2)[1]
    return loss(low, high, currency=currency, delta=delta)


def _check_miss(miss: float) -> None:
    if not 0 < miss < 0.5:
        raise UsageError("a bound fails with a probability above 0 and below 0.5; choose one such as 1e-8")


def _least(tally: Tally, miss: float) -> float:
    """Return the largest probability at which so many hits or more still have at most the probability `miss`."""
    if tally.hits == 0:
        return 0.0
    low, high = 0.0, tally.hits / tally.trials
    # log ((n - k) / (k + 1)) for k = hits, ...: with log odds added, the ratios of one binomial term to the one before
    hits = np.arange(tally.hits, min(tally.trials, tally.hits + _terms(tally)))
    log_ratios = np.log((tally.trials - hits) / (hits + 1.0))
    log_ways = math.lgamma(tally.trials + 1) - math.lgamma(tally.hits + 1) - math.lgamma(tally.trials - tally.hits + 1)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        log_odds = math.log(middle) - math.log1p(-middle)
        terms = np.exp(np.cumsum(log_ratios + log_odds))
        first = log_ways + tally.hits * math.log(middle) + (tally.trials - tally.hits) * math.log1p(-middle)
        likely = first + math.log1p(float(terms.sum())) > math.log(miss)
        low, high = (low, middle) if likely else (middle, high)
    return low


def _terms(tally: Tally) -> int:
    """Return how many terms of a tail that starts above the mean matter: 40 standard deviations, beyond which lies e^-800 of it."""
    return 400 + 20 * math.isqrt(tally.trials)
