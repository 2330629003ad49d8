"""Basic and advanced composition: what several mechanisms cost together.

Under both theorems the mechanisms may be chosen one after the other in the light of all earlier answers. They differ in the prices:
basic composition also allows adaptive prices, as long as the sums stay within caps that were fixed in advance (Rogers, Roth,
Ullman and Vadhan 2016); advanced composition needs every price, and their number, fixed in advance.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import as_real, below_one, float_up, positive, real, rounded_up

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


def counted_prices(parts: Parts, *, largest: float = math.inf) -> Counter[tuple[Fraction, Fraction]]:
    """Return the number of mechanisms of each price. Raise for an invalid price."""
    given = parts.items() if isinstance(parts, Mapping) else ((part, 1) for part in parts)
    counted: Counter[tuple[Fraction, Fraction]] = Counter()
    for (epsilon, delta), count in given:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError("the number of mechanisms of a price must be a whole number of at least 1")
        counted[positive(epsilon, what="epsilon", largest=largest), checked_delta(delta)] += count
    return counted


def checked_delta(delta: Fraction | float) -> Fraction:
    """Return the exact value of a delta. Raise unless it is from 0 to 1."""
    if not isinstance(delta, bool) and isinstance(delta, int | float | Fraction) and delta == 0:
        return Fraction(0)
    return positive(delta, what="delta", largest=1.0)
