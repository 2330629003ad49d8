"""Basic, advanced and parallel composition, and group privacy: what several mechanisms cost together, or several units.

Under basic and advanced composition the mechanisms may be chosen in the light of all earlier answers. They differ in the prices:
basic composition also allows adaptive prices, as long as the sums stay within caps that were fixed in advance (Rogers, Roth,
Ullman and Vadhan 2016); advanced composition needs every price, and their number, fixed in advance.

Parallel composition is for mechanisms on disjoint blocks of the data. Blocks are assigned by a public rule, so that all rows of a unit
lie in one block. Adding or removing a unit then touches one block. All other mechanisms see the same data as before, so the loss is at
most the largest price of a block. Replacing a unit removes it from one block and may add the new unit to another: two blocks are
touched, and their prices add. The rule is the same for every amount that adds: epsilon, rho, mu^2 (McSherry 2009 for epsilon; for the
others, the mechanisms on untouched blocks are post-processing of data that is the same on both sides). The mechanism that runs on a
block, and its price, may depend on the answers of other blocks only if every block has its own filter.

The bound on groups holds for any mechanism and any group of that size. It follows from a chain of neighbours, one unit at a
time. An amount that protects one unit protects a group by `accounting.amount_of_group`.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias

from dpcore.errors import UsageError
from dpcore.privacy.accounting.amounts import checked_size
from dpcore.privacy.accounting.rounding import as_real, below_one, float_up, positive, real, rounded_up
from dpcore.privacy.protection import Neighbours
from dpcore.scalars import is_whole

_Pair: TypeAlias = tuple[Fraction | float, Fraction | float]

Parts: TypeAlias = Iterable[_Pair] | Mapping[_Pair, int]
"""Prices as pairs (epsilon, delta), where delta may be 0; or a mapping from each price to its number of mechanisms."""


def basic_composition(parts: Parts) -> tuple[Fraction, Fraction]:
    """Return the (epsilon, delta) of several mechanisms together: both add.

    Assumptions:
        None about how the mechanisms are chosen. Prices may be chosen adaptively too, within caps fixed in advance.

    Reference:
        Dwork, Kenthapadi, McSherry, Mironov and Naor 2006; as a filter, Rogers, Roth, Ullman and Vadhan 2016.

    >>> basic_composition([(Fraction(1, 2), 0), (Fraction(1, 4), Fraction(1, 10**6))])
    (Fraction(3, 4), Fraction(1, 1000000))
    """
    epsilon, delta = Fraction(0), Fraction(0)
    for (part_epsilon, part_delta), count in counted_prices(parts).items():
        epsilon += count * part_epsilon
        delta += count * part_delta
    return epsilon, delta


def advanced_composition(parts: Parts, *, slack: Fraction | float) -> tuple[float, float]:
    """Return an (epsilon, delta) of several mechanisms together that grows with the root of their number, rounded up.

    With d' the slack, epsilon = sqrt(2 ln(1/d') sum e_i^2) + sum e_i (e^(e_i) - 1) and delta = d' + sum d_i. For k equal prices
    that is the usual form, e sqrt(2k ln(1/d')) + k e (e^e - 1). Different prices are covered because the privacy losses, each
    within e_i and of a mean of at most e_i (e^(e_i) - 1), satisfy the same bound by Azuma's inequality; Kairouz, Oh and Viswanath
    prove it with a smaller second term. For few or large prices it is worse than basic composition.

    Assumptions:
        The prices, their number and the slack are fixed in advance; the mechanisms may be chosen adaptively. This is not a
        filter: with adaptive prices this formula does not bound the loss (Rogers et al. 2016).

    Reference:
        Dwork, Rothblum and Vadhan 2010, as Thm. 3.20 of Dwork and Roth 2014; Kairouz, Oh and Viswanath 2015, for different prices.

    >>> epsilon, delta = advanced_composition([(0.1, 0)] * 100, slack=1e-6)
    >>> 6.3082309505134 < epsilon < 6.3082309505135, delta
    (True, 1e-06)
    >>> advanced_composition({(0.1, 0): 100}, slack=1e-6)[0] == epsilon
    True
    """
    spare = below_one(slack)
    counted = counted_prices(parts, largest=1e6)
    if not counted:
        raise UsageError("there is nothing to compose; name at least one price")
    squares, drift, total = Fraction(0), real.mpf(0), spare
    for (epsilon, delta), count in counted.items():
        squares += count * epsilon**2
        drift += count * as_real(epsilon) * real.expm1(as_real(epsilon))
        total += count * delta
    spread = real.sqrt(-2 * real.ln(as_real(spare)) * as_real(squares))
    return rounded_up(spread + drift), min(float_up(total), 1.0)


def parallel_composition(amounts: Iterable[Fraction | float], *, neighbours: Neighbours) -> Fraction:
    """Return what mechanisms on disjoint blocks cost together, in epsilon, rho or mu^2, from each block's amount.

    Assumptions:
        Each block's amount covers everything that its mechanisms reveal about one neighbour step within the block. Under
        replace-one a unit may be replaced, leave or arrive. A price that holds only for tables of a fixed size is not enough,
        because a block can grow or shrink. Amounts are fixed in advance, or enforced by a filter per block.

    Reference:
        McSherry 2009, on parallel composition, for blocks; the sum of two under replace-one is basic composition over the two blocks.

    >>> parallel_composition([1, 3, 2], neighbours=Neighbours.ADD_REMOVE)
    Fraction(3, 1)
    >>> parallel_composition([1, 3, 2], neighbours=Neighbours.REPLACE_ONE)
    Fraction(5, 1)
    """
    exact = [positive(amount, what="a block's amount") for amount in amounts]
    return _touched(exact, neighbours)


def group_approximate(epsilon: Fraction | float, *, delta: Fraction | float, size: int) -> tuple[Fraction, float]:
    """Return the (epsilon, delta) that protects a group of `size` units: (k e, d (e^(k e) - 1) / (e^e - 1)), rounded up.

    Each of the k steps adds a delta, and multiplies the earlier ones by e^epsilon. The delta is capped at 1, which guarantees nothing.

    Reference:
        Dwork and Roth 2014, Def. 2.4, applied k times; their Thm. 2.2 is the case of delta 0.

    >>> group_approximate(Fraction(1, 2), delta=0, size=3)
    (Fraction(3, 2), 0.0)
    """
    units, exact, lost = checked_size(size), positive(epsilon, what="epsilon", largest=1e6), checked_delta(delta)
    if lost == 0:
        return units * exact, 0.0
    growth = real.expm1(as_real(units * exact)) / real.expm1(as_real(exact))
    return units * exact, min(rounded_up(min(as_real(lost) * growth, real.mpf(2))), 1.0)


def counted_prices(parts: Parts, *, largest: float = math.inf) -> Counter[tuple[Fraction, Fraction]]:
    """Return the number of mechanisms of each price. Raise for an invalid price."""
    prices = parts.items() if isinstance(parts, Mapping) else ((part, 1) for part in parts)
    counted: Counter[tuple[Fraction, Fraction]] = Counter()
    for (epsilon, delta), count in prices:
        if not is_whole(count) or count < 1:
            raise UsageError("the number of mechanisms of a price must be a whole number of at least 1")
        counted[positive(epsilon, what="epsilon", largest=largest), checked_delta(delta)] += count
    return counted


def checked_delta(delta: Fraction | float) -> Fraction:
    """Return the exact value of a delta. Raise unless it is from 0 to 1."""
    if not isinstance(delta, bool) and isinstance(delta, int | float | Fraction) and delta == 0:
        return Fraction(0)
    return positive(delta, what="delta", largest=1.0)


def _touched(amounts: list[Fraction], neighbours: Neighbours) -> Fraction:
    if not isinstance(neighbours, Neighbours):
        raise UsageError("neighbours must be one of Neighbours; declare whether a unit is added or replaced")
    if not amounts:
        raise UsageError("there are no blocks to compose; give the amount of at least one")
    return sum(heapq.nlargest(1 if neighbours is Neighbours.ADD_REMOVE else 2, amounts), start=Fraction(0))
