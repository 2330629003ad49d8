"""The least rho and the least mu^2 that cover a pair of finite distributions, in both directions.

An oracle for the prices of mechanisms.
"""

import heapq
import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

from dpcore.privacy.accounting.normal import upper_quantile
from dpcore.privacy.accounting.rounding import as_real, real, rounded_up
from dpcore.textbook.theorems.divergences import Pair

_CLOSE = real.mpf(10) ** -5
"""How far above the true value a rho may be, relatively."""

_LOOKS = 2000
"""The most orders that are evaluated. The result is an upper bound at any time."""

_FIRST = real.mpf(2) ** -30


def pair_zcdp(pair: Pair) -> float:
    """Return a rho that covers the pair: the largest Renyi divergence per order over all orders above 1, rounded up.

    (a - 1) D_a is convex in the order a, and D_a rises. So between two orders (a - 1) D_a lies below its chord, which divided by
    a (a - 1) bounds D_a / a there. Up to the first order, D_a / a is at most D at that order; beyond the last one, it is at most the
    max-divergence over that order. The interval with the largest bound is split until the bound is within 1e-5 of an attained value.

    Reference:
        Bun and Steinke 2016, the definition of zCDP.
    """
    return max(_one_way_zcdp(pair), _one_way_zcdp(pair.reversed))


def pair_gdp(pair: Pair) -> float:
    """Return the least mu^2 that covers the pair, rounded up.

    The errors of the best tests of here against there lie on a convex, piecewise linear curve, whose corners come from rejecting the
    outcomes with the largest ratios. The errors of N(0, 1) against N(mu, 1) lie on a convex curve, which is nowhere above the first one
    if it is not above the corners. A corner (a, b) requires mu = z(a) + z(b), with z the upper quantile of the normal distribution. This
    covers the reversed pair as well, whose curve is the mirror image.

    Reference:
        Dong, Roth and Su 2022, the definition of mu-GDP.
    """
    by_ratio: dict[Fraction | float, tuple[Fraction, Fraction]] = {}
    for here, there in pair.outcomes:
        if here == there == 0:
            continue
        ratio = math.inf if there == 0 else here / there
        p, q = by_ratio.get(ratio, (Fraction(0), Fraction(0)))
        by_ratio[ratio] = (p + here, q + there)
    if 0 in by_ratio or math.inf in by_ratio:
        return math.inf
    largest, alarms, misses = real.mpf(0), Fraction(0), Fraction(1)
    for ratio in sorted(by_ratio, reverse=True)[:-1]:
        here, there = by_ratio[ratio]
        alarms, misses = alarms + there, misses - here
        largest = max(largest, upper_quantile(as_real(alarms)) + upper_quantile(as_real(misses)))
    return rounded_up(largest**2)


def _one_way_zcdp(pair: Pair) -> float:
    if pair.infinite > 0:
        return math.inf
    if all(here == there for here, there in pair.outcomes):
        return 0.0

    def curve(order: Any) -> Any:
        return (order - 1) * pair.renyi_real(order)

    most = real.mpf(pair.max_divergence())
    first = 1 + _FIRST / (1 + most)
    at_first, at_two = curve(first), curve(real.mpf(2))
    last = max(real.mpf(4), 4 * most / at_two)
    known = [(first, at_first), (real.mpf(2), at_two), (last, curve(last))]
    attained = max(value / (order * (order - 1)) for order, value in known)
    ends = max(at_first / (first - 1), most / last)
    heap = [(-_bound(left, right), left, right) for left, right in pairwise(known)]
    heapq.heapify(heap)
    for _ in range(_LOOKS):
        if -heap[0][0] <= max(attained * (1 + _CLOSE), ends):
            break
        _, left, right = heapq.heappop(heap)
        order = 1 + real.sqrt((left[0] - 1) * (right[0] - 1))
        middle = (order, curve(order))
        attained = max(attained, middle[1] / (order * (order - 1)))
        for low, high in ((left, middle), (middle, right)):
            heapq.heappush(heap, (-_bound(low, high), low, high))
    return rounded_up(max(-heap[0][0], ends))


def _bound(left: tuple[Any, Any], right: tuple[Any, Any]) -> Any:
    """Return the maximum, between two orders, of the chord divided by a (a - 1)."""
    (low, at_low), (high, at_high) = left, right
    slope = (at_high - at_low) / (high - low)
    start = at_low - slope * low
    candidates = [low, high]
    inside = start * start + slope * start
    if inside >= 0 and slope > 0:
        root = real.sqrt(inside)
        candidates += [order for order in ((root - start) / slope, (-root - start) / slope) if low < order < high]
    return max((slope * order + start) / (order * (order - 1)) for order in candidates)
