"""What a cap promises as (epsilon, delta): the one place where an amount becomes a statement about privacy.

A privacy filter promises the epsilon of its cap, not of what was spent so far (`accounting.history` says why). There are two kinds:

- **A cap fixed before the first draw.** The reservation of a run is one, and so is the cap of an account that was never raised. It
  promises `epsilon_of(cap)` at delta.
- **A cap that was raised after the first draw.** The steward has seen answers by then, so the new cap is itself an answer, and its own
  epsilon at delta is promised by no theorem; a union bound over the m + 1 caps needs caps that were listed in advance. What holds
  whatever the steward decides is a bound of one fixed order a: with L the privacy loss and s what was spent, e^((a - 1)(L - a s)) is a
  supermartingale, so that at every moment the epsilon a s + penalty(a, delta) holds at delta. It is a straight line in s, the tangent
  to the epsilon of a filter where a is the best order.

So the orders are fixed in advance, by the first cap c: the best ones of c, 4 c, 16 c, ... The j-th is used while the cap is at most
2 * 4^j c, which keeps the epsilon within about 6 % of a filter's. One who counts on any of the first j + 1 statements needs the delta of
each of them, hence (j + 1) delta, however often the cap was raised. The best orders are those of zCDP; a GDP account counts as rho =
mu^2 / 2 once it was raised, and its first statement, which was by Gaussian differential privacy, needs one delta more.

Pure epsilon needs none of this: the loss of every single outcome is within the sum of its own prices, which is within the cap.

Proof, and what was considered: docs/decisions/0027-what-is-promised.md.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpcore.errors import UsageError
from dpcore.privacy.accounting.amounts import AMOUNT_OF_ONE, Currency, checked_amount
from dpcore.privacy.accounting.budgets import amount_of_group, epsilon_of
from dpcore.privacy.accounting.conversions import best_order, epsilon_at_order
from dpcore.privacy.accounting.rounding import float_up

GROWTH = 4
"""From one fixed order to the next, the cap that it is best for grows by this factor: the epsilon about doubles."""


@dataclass(frozen=True)
class Cap:
    """The cap of a filter, as an amount of its currency.

    Attributes:
        currency: What the amounts are of.
        amount: The cap as it is now.
        first: The cap when the first operation was charged, if it was raised since; None: it was not.
    """

    currency: Currency
    amount: int
    first: int | None = None

    def __post_init__(self) -> None:
        """Refuse amounts that cannot be caps."""
        object.__setattr__(self, "currency", Currency(self.currency))
        checked_amount(self.amount, what="a cap")
        if self.first is not None and checked_amount(self.first, what="a first cap") > self.amount:
            raise UsageError("a cap can only be raised; name the smaller one as the first")

    @property
    def raised(self) -> bool:
        """Whether it was raised after something had been charged."""
        return self.first is not None and self.first < self.amount


@dataclass(frozen=True)
class Promise:
    """An (epsilon, delta) that holds whatever is chosen within a cap. Both are rounded up."""

    epsilon: float
    delta: float


@lru_cache(maxsize=100_000)  # many runs and blocks have the same cap, and a conversion takes a while
def promise_of(cap: Cap, *, delta: Fraction | float, group: int = 1) -> Promise:
    """Return what a cap promises to one unit of protection, or to a group of so many together.

    >>> promise_of(Cap(Currency.PURE, 3 * AMOUNT_OF_ONE, first=AMOUNT_OF_ONE), delta=0.0, group=2)
    Promise(epsilon=6.0, delta=0.0)
    >>> fixed, raised = Cap(Currency.ZCDP, AMOUNT_OF_ONE), Cap(Currency.ZCDP, AMOUNT_OF_ONE, first=AMOUNT_OF_ONE // 4)
    >>> promise_of(fixed, delta=1e-9) == Promise(epsilon_of(AMOUNT_OF_ONE, currency=Currency.ZCDP, delta=1e-9), 1e-9)
    True
    >>> promise_of(raised, delta=1e-9) == Promise(promise_of(fixed, delta=1e-9).epsilon, 2e-9)
    True
    """
    amount = amount_of_group(cap.amount, currency=cap.currency, size=group)
    if cap.currency is Currency.PURE or cap.first is None or not cap.raised:
        return Promise(epsilon_of(amount, currency=cap.currency, delta=delta), float_up(Fraction(delta)))
    step = _step(cap.amount, first=cap.first)
    anchor = GROWTH**step * amount_of_group(cap.first, currency=cap.currency, size=group)
    order = best_order(_rho(anchor, cap.currency), delta=delta)
    deltas = step + 1 + (cap.currency is Currency.GDP)
    total = _times(delta, deltas)
    # At exactly its part of the total, which the decimal product of a delta may miss by the last digit of a float.
    return Promise(epsilon_at_order(_rho(amount, cap.currency), order=order, delta=Fraction(total) / deltas), total)


def _times(delta: Fraction | float, count: int) -> float:
    """Return a multiple of a delta as it is written in decimals: three times 1e-9 is 3e-9, and not the float above it.

    >>> _times(1e-9, 3), 3 * 1e-9
    (3e-09, 3.0000000000000004e-09)
    """
    written = delta if isinstance(delta, Fraction) else Fraction(repr(float(delta)))
    return min(float(count * written), 1.0)


def _step(amount: int, *, first: int) -> int:
    """Return which of the fixed orders a cap goes by: the j-th up to 2 * 4^j times the first cap."""
    step = 0
    while amount > 2 * GROWTH**step * first:
        step += 1
    return step


def _rho(amount: int, currency: Currency) -> Fraction:
    """Return the rho of an amount; what is mu-GDP is mu^2 / 2 - zCDP."""
    return Fraction(amount, 2 * AMOUNT_OF_ONE if currency is Currency.GDP else AMOUNT_OF_ONE)
