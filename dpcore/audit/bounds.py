"""Lower bounds of the privacy loss, in each currency, from the counts of one event on two neighbours.

An event is any yes-or-no property of an output. If it is much likelier on one of two neighbours than on the other, privacy was lost; a
guarantee limits how much likelier it may be. Counts determine the event's probabilities only up to an error. The exact bounds of Clopper
and Pearson turn them into statements that fail with at most a chosen probability.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Tally:
    """How often an event was seen."""

    hits: int
    trials: int

    def __post_init__(self) -> None:
        """Reject impossible counts."""
        if not 0 <= self.hits <= self.trials or self.trials < 1:
            raise UsageError("a tally needs at least one trial, and from 0 to as many hits as trials; count again")

    @property
    def rest(self) -> "Tally":
        """The tally of the complement: how often the event was not seen."""
        return Tally(hits=self.trials - self.hits, trials=self.trials)


def probability_bounds(tally: Tally, *, miss: float) -> tuple[float, float]:
    """Return a lower and an upper bound of an event's probability. Each is wrong with probability at most `miss`.

    Reference: Clopper and Pearson 1934.

    >>> low, high = probability_bounds(Tally(hits=0, trials=100), miss=0.01)
    >>> low, round(high, 4)
    (0.0, 0.045)
    """
    _check_miss(miss)
    return _least(tally, miss), 1.0 - _least(tally.rest, miss)


def loss(p: float, q: float, *, currency: Currency, delta: float = 0.0) -> float:
    """Return the smallest amount of a currency that allows an event probability p on one neighbour and q on the other.

    In epsilon: p <= e^epsilon q + delta. In rho: the Kullback-Leibler divergence between two coins with these probabilities, since
    reporting whether the event occurred is post-processing. In mu^2: the squared distance between the means of two unit normal
    distributions that have an event with these probabilities. Each rises with p and falls with q where p > q.

    Reference: Dwork and Roth 2014, Def. 2.4; Bun and Steinke 2016, in the limit of the order 1; Dong, Roth and Su 2022.

    >>> loss(0.5, 0.25, currency=Currency.PURE)
    0.6931471805599453
    >>> loss(0.25, 0.5, currency=Currency.ZCDP)
    0.0
    """
    if delta and Currency(currency) is not Currency.PURE:
        raise UsageError("only a claim in epsilon has a delta; omit it for rho and mu^2")
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
    """Return a lower bound of a mechanism's privacy loss from one event. It is too large with probability at most `miss`.

    >>> here, there = Tally(hits=7311, trials=10_000), Tally(hits=2689, trials=10_000)
    >>> round(at_least(here, there, currency=Currency.PURE, miss=1e-8), 2)
    0.87

    Args:
        here: The event's tally on the neighbour where it is likelier.
        there: Its tally on the other neighbour.
        currency: The currency of the mechanism's price.
        miss: The probability with which the result may be too large. Each of the two probability bounds gets half of it.
        delta: The delta of an (epsilon, delta) claim. Other currencies have none.
    """
    low, high = probability_bounds(here, miss=miss / 2)[0], probability_bounds(there, miss=miss / 2)[1]
    return loss(low, high, currency=currency, delta=delta)


def _check_miss(miss: float) -> None:
    if not 0 < miss < 0.5:
        raise UsageError("the probability that a bound fails must be above 0 and below 0.5; choose one such as 1e-8")


def _least(tally: Tally, miss: float) -> float:
    """Return the largest event probability for which this many hits or more have probability at most `miss`."""
    if tally.hits == 0:
        return 0.0
    low, high = 0.0, tally.hits / tally.trials
    # log((n - k) / (k + 1)) for k = hits, ...: adding the log odds gives the log ratio of consecutive binomial terms
    hits = np.arange(tally.hits, min(tally.trials, tally.hits + _terms(tally)))
    log_ratios = np.log((tally.trials - hits) / (hits + 1.0))
    log_ways = math.lgamma(tally.trials + 1) - math.lgamma(tally.hits + 1) - math.lgamma(tally.trials - tally.hits + 1)
    for _ in range(80):  # bisection, to the last bit of a float
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
    """Return how many terms of a tail above the mean to sum: 40 standard deviations. The rest is below e^-800 of it."""
    return 400 + 20 * math.isqrt(tally.trials)
