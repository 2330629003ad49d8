"""The (epsilon, delta) that a cap promises: the one place where an amount becomes a statement about privacy.

A privacy filter promises the epsilon of its cap, not of the amount spent so far (`textbook.theorems.history` explains why). There are two kinds:

- **A cap fixed before the first draw.** The reservation of a run is one, and so is the cap of an account that was never raised. It
  promises `epsilon_of(cap)` at delta.
- **A cap that was raised after the first draw.** The steward has seen answers by then, so the new cap depends on the answers, and no
  theorem promises its own epsilon at delta; a union bound over the m + 1 caps needs caps that were listed in advance. A bound of one
  fixed order a holds whatever the steward decides: with L the privacy loss and s the amount spent, e^((a - 1)(L - a s)) is a
  supermartingale, so at every moment the epsilon a s + penalty(a, delta) holds at delta. It is a straight line in s, the tangent to the
  epsilon of a filter where a is the best order.

So the orders are fixed in advance, by the first cap c: the best ones of c, 4 c, 16 c, ... The j-th is used while the cap is at most
2 * 4^j c, which keeps the epsilon within about 6 % of a filter's. Relying on any of the first j + 1 statements takes the delta of each of
them, hence (j + 1) delta, however often the cap was raised. The best orders are those of zCDP. A GDP account counts as rho = mu^2 / 2
once it was raised, and its first statement, which was by Gaussian differential privacy, takes one more delta.

Pure epsilon needs none of this: the loss of every single outcome is within the sum of its own prices, which is within the cap.

Proof and alternatives: docs/decisions/0027-what-is-promised.md.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpcore.errors import UsageError
from dpcore.privacy.accounting.amounts import AMOUNT_OF_ONE, Currency, amount_of_group, checked_amount, epsilon_of
from dpcore.privacy.accounting.conversions import best_order, epsilon_at_order
from dpcore.privacy.accounting.rounding import float_up

GROWTH = 4
"""The factor between the caps that successive fixed orders are best for. The epsilon about doubles with each."""


@dataclass(frozen=True)
class Cap:
    """The cap of a filter, as an amount of its currency.

    Attributes:
        currency: The currency of the amounts.
        amount: The current cap.
        first: The cap when the first operation was charged, if it was raised since; None if it was not.
    """

    currency: Currency
    amount: int
    first: int | None = None

    def __post_init__(self) -> None:
        """Validate the amounts."""
        object.__setattr__(self, "currency", Currency(self.currency))
        checked_amount(self.amount, what="a cap")
        if self.first is not None and checked_amount(self.first, what="a first cap") > self.amount:
            raise UsageError("a cap can only be raised; the first cap must not exceed the current one")

    @property
    def raised(self) -> bool:
        """Whether the cap was raised after the first charge."""
        return self.first is not None and self.first < self.amount


@dataclass(frozen=True)
class Promise:
    """An (epsilon, delta) that holds for any adaptive choice within a cap. Both are rounded up."""

    epsilon: float
    delta: float


@lru_cache(maxsize=100_000)  # many runs and blocks share a cap, and a conversion is slow
def promise_of(cap: Cap, *, delta: Fraction | float, group: int = 1) -> Promise:
    """Return the promise of a cap to one unit of protection, or to a group of `group` units together.

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
    anchor = GROWTH ** _step(cap.amount, first=cap.first) * amount_of_group(
        cap.first, currency=cap.currency, size=group
    )
    order = best_order(_rho(anchor, cap.currency), delta=delta)
    deltas = deltas_of(cap)
    total = _times(delta, deltas)
    # At exactly one part of the total: the decimal product of a delta may differ from it in the last digit of a float.
    return Promise(epsilon_at_order(_rho(amount, cap.currency), order=order, delta=Fraction(total) / deltas), total)


def deltas_of(cap: Cap) -> int:
    """Return how many times its delta the promise of a cap takes: once, or more if it was raised.

    >>> deltas_of(Cap(Currency.ZCDP, AMOUNT_OF_ONE)), deltas_of(Cap(Currency.ZCDP, AMOUNT_OF_ONE, first=AMOUNT_OF_ONE // 4))
    (1, 2)
    """
    if cap.currency is Currency.PURE or cap.first is None or not cap.raised:
        return 1
    return _step(cap.amount, first=cap.first) + 1 + (cap.currency is Currency.GDP)


def _times(delta: Fraction | float, count: int) -> float:
    """Return a multiple of a delta in decimal arithmetic: three times 1e-9 is 3e-9, not the next larger float.

    >>> _times(1e-9, 3), 3 * 1e-9
    (3e-09, 3.0000000000000004e-09)
    """
    written = delta if isinstance(delta, Fraction) else Fraction(repr(float(delta)))
    return min(float(count * written), 1.0)


def _step(amount: int, *, first: int) -> int:
    """Return the index of the fixed order that a cap uses: the j-th up to 2 * 4^j times the first cap."""
    step = 0
    while amount > 2 * GROWTH**step * first:
        step += 1
    return step


def _rho(amount: int, currency: Currency) -> Fraction:
    """Return the rho of an amount. A mu-GDP mechanism satisfies (mu^2 / 2)-zCDP."""
    return Fraction(amount, 2 * AMOUNT_OF_ONE if currency is Currency.GDP else AMOUNT_OF_ONE)
