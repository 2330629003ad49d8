"""Optimal composition: the least epsilon of several (epsilon, delta) mechanisms of equal prices together.

Every (e, d)-DP mechanism is post-processing of one experiment: with probability d it reveals everything, and otherwise it answers
truthfully with odds e^e : 1. So k mechanisms are at worst k such experiments. With l wrong answers among k, the privacy loss is
(k - 2l) e, and

    delta = 1 - (1 - d)^k (1 - D(E)),    D(E) = sum over l with (k - 2l) e > E of C(k, l) (e^((k-l) e) - e^(E + l e)) / (1 + e^e)^k.

No smaller delta holds for all mechanisms of those prices (Kairouz, Oh and Viswanath 2015, Thm. 3.3 of arXiv:1311.0776). The sums are
taken once, term by term, at 400 bits. To find an epsilon they start where fewer wrong answers are too improbable to matter, so a
million mechanisms take a second.

For different prices the least epsilon is hard to compute (#P-complete: Murtagh and Vadhan 2016); `numeric` estimates it.

Assumptions: prices and their number are fixed in advance; the mechanisms may be chosen in the light of earlier answers. This is not a
filter.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import as_real, below_one, positive, real, rounded_up
from dpcore.scalars import is_whole
from dpcore.textbook.theorems.composition import checked_delta

SMALLEST_EPSILON, _LARGEST = Fraction(1e-12), 50.0
"""The range of epsilon for which 400 bits leave enough digits after every subtraction. The float 1e-12 is a little below 10^-12."""

_MOST = 10**6
"""The most mechanisms. The sums would take minutes for more."""

_DUST = real.mpf(2) ** -330
"""More than the rounding error of a probability and the part that `_first` omits. Subtracted from allowed deltas, added to results."""

_UNLIKELY = 332 * math.log(2)
"""A sum may omit answers of probability at most e to the minus this, a quarter of the dust."""


def optimal_composition(
    epsilon: Fraction | float, *, delta: Fraction | float, count: int, total_delta: Fraction | float
) -> float:
    """Return the least epsilon at `total_delta` of `count` mechanisms that are (epsilon, delta)-DP each, rounded up.

    Between two neighbouring losses, D(E) is A - e^E B with sums A and B of probabilities on either side, so the root is found
    where the partial sums first reach the allowed delta. The terms omitted at the start have been subtracted from it.

    >>> 0.99937 < optimal_composition(0.1, delta=0, count=10, total_delta=1e-6) < 0.99938
    True
    """
    price, lost, number = _checked(epsilon, delta, count)
    exact = as_real(price)
    allowed = _allowed(lost, number, below_one(total_delta))
    here = there = real.mpf(0)
    first = _first(price, number) if allowed > 0 else 0
    reached, factor = real.exp((number - 2 * first) * exact), real.exp(-2 * exact)
    for p, q in _probabilities(exact, number, first=first):
        here, there, reached = here + p, there + q, reached * factor
        if reached < 1 or here - reached * there >= allowed:
            break
    return max(rounded_up(real.ln((here - allowed) / there)), 0.0) if here > allowed else 0.0


def optimal_composition_delta(
    epsilon: Fraction | float, *, delta: Fraction | float, count: int, total_epsilon: Fraction | float
) -> float:
    """Return the least delta at `total_epsilon` of `count` mechanisms that are (epsilon, delta)-DP each, rounded up."""
    price, lost, number = _checked(epsilon, delta, count)
    promised = Fraction(0) if total_epsilon == 0 else positive(total_epsilon, what="the total epsilon")
    exact, factor = as_real(price), real.exp(as_real(promised))
    # The number of l with (k - 2l) e > E, or one more, which adds 0.
    exceeding = max(0, -((promised - number * price) // (2 * price)))
    terms = islice(_probabilities(exact, number), int(exceeding))
    excess = sum((max(p - factor * q, real.mpf(0)) + p * _DUST for p, q in terms), start=real.mpf(0))
    # 1 - (1 - d)^k through logarithms: subtracting from 1 would lose all digits of a delta below 2^-400
    told_all = -real.expm1(number * real.log1p(-as_real(lost)))
    total = told_all + (1 - told_all) * excess
    return min(rounded_up(total), 1.0) if total > 0 else 0.0


def _checked(epsilon: Fraction | float, delta: Fraction | float, count: int) -> tuple[Fraction, Fraction, int]:
    if not is_whole(count) or not 1 <= count <= _MOST:
        raise UsageError(f"the number of mechanisms must be a whole number from 1 to {_MOST:,}")
    lost = checked_delta(delta)
    if lost == 1:
        raise UsageError("a mechanism with delta 1 promises nothing; leave it out, or give it a smaller delta")
    return positive(epsilon, what="epsilon", smallest=SMALLEST_EPSILON, largest=_LARGEST), lost, count


def _allowed(lost: Fraction, count: int, total: Fraction) -> Any:
    """Return the largest D(E) that is allowed, rounded down. Raise if the deltas add up to more than the total."""
    allowed = 1 - (1 - as_real(total)) / (1 - as_real(lost)) ** count - _DUST
    if allowed >= 0:
        return allowed
    # too close to decide at 400 bits: a few mechanisms are compared as exact fractions, so that one may use up its own delta
    if lost == 0 or (count <= 64 and 1 - (1 - lost) ** count <= total):
        return real.mpf(0)
    raise UsageError("the deltas of these mechanisms alone exceed the total delta; allow more, or ask for less")


def _first(epsilon: Fraction, count: int) -> int:
    """Return a number of wrong answers that `count` answers reach with probability 1 - 2^-332, by Hoeffding's e^(-2 t^2 / count).

    Two are subtracted, which is more than the rounding error of floats.
    """
    mean = count / (1 + math.exp(epsilon))
    return max(0, math.floor(mean - math.sqrt(count * _UNLIKELY / 2)) - 2)


def _probabilities(epsilon: Any, count: int, *, first: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield the probabilities, on either side, of `first`, `first` + 1, ... wrong answers among `count`."""
    odds, inverse = real.exp(-epsilon), real.exp(epsilon)
    weight = real.binomial(count, first) / (1 + odds) ** count
    p, q = weight * odds**first, weight * odds ** (count - first)
    yield p, q
    for wrong in range(first, count):
        p = p * odds * (count - wrong) / (wrong + 1)
        q = q * inverse * (count - wrong) / (wrong + 1)
        yield p, q
