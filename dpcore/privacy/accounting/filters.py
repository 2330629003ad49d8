"""Adaptive filters: a cap that is fixed in advance, and charges that may be chosen on the way.

Whoever chooses a next mechanism or its price in the light of earlier answers needs more than a composition theorem. A filter answers
one question, whether the next charge is still within the cap, and promises that whatever it let through costs no more than the cap:

- pure epsilon: the sum of epsilons (Rogers, Roth, Ullman and Vadhan 2016, Thm. 3.6)
- zCDP: the sum of rhos (Feldman and Zrnic 2021; Whitehouse, Ramdas, Rogers and Wu 2023)
- Gaussian DP: the sum of mu^2 (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023)

The promise is about the cap, not about the sum so far, which is itself an answer. And it is about one filter: to let a charge pass if
either of two filters would is covered by no theorem, and loses more than either promises.
"""

import os
from fractions import Fraction
from threading import Lock
from typing import NoReturn, SupportsIndex

from dpcore.errors import BudgetRefused, UsageError
from dpcore.privacy.accounting.amounts import Currency, checked_amount
from dpcore.privacy.accounting.promises import Cap, promise_of


class PrivacyFilter:
    """A cap in one currency, and what was spent of it. For money that must outlive the program, there is the ledger.

    A copy would let the same cap be spent twice. So a filter cannot be copied, pickled or used in a forked process, and its cap and
    currency stay what they were.

    >>> spending = PrivacyFilter(cap=1000, currency=Currency.ZCDP)
    >>> spending.spend(900)
    >>> spending.spend(101)
    Traceback (most recent call last):
    dpcore.errors.BudgetRefused: this charge of 101 is 1 more than the 100 that are left; ask for less
    >>> spending.spend(100)
    >>> spending.remaining
    0
    """

    __slots__ = ("__weakref__", "_cap", "_currency", "_lock", "_owner", "_spent")

    def __init__(self, *, cap: int, currency: Currency) -> None:
        self._cap = checked_amount(cap, what="a cap")
        self._currency = Currency(currency)
        self._spent = 0
        self._lock = Lock()
        self._owner = os.getpid()

    def __repr__(self) -> str:
        return f"PrivacyFilter(cap={self._cap}, currency={self._currency.value}, spent={self._spent})"

    @property
    def cap(self) -> int:
        """The amount that can be let through in all."""
        return self._cap

    @property
    def currency(self) -> Currency:
        """What the amounts are of."""
        return self._currency

    @property
    def spent(self) -> int:
        """The amount that was let through."""
        return self._spent

    @property
    def remaining(self) -> int:
        """The amount that can still be let through."""
        return self._cap - self._spent

    def spend(self, charge: int) -> None:
        """Take a charge before the mechanism draws; or refuse it, and leave everything as it was."""
        amount = checked_amount(charge, what="a charge")
        if os.getpid() != self._owner:  # before waiting for a lock that no thread of a forked process will release
            raise UsageError("this filter began in another process; spend there, or keep the cap in a ledger")
        with self._lock:
            left = self._cap - self._spent
            if amount > left:
                message = (
                    f"this charge of {amount:,} is {amount - left:,} more than the {left:,} that are left; ask for less"
                )
                raise BudgetRefused(message, requested=amount, remaining=left)
            self._spent += amount

    def epsilon(self, *, delta: Fraction | float) -> float:
        """Return the epsilon at `delta` that the whole cap promises, whatever was chosen on the way, rounded up."""
        if (self._currency is Currency.PURE) != (delta == 0):
            needed = "0" if self._currency is Currency.PURE else "above 0"
            raise UsageError(f"a filter in {self._currency} promises an epsilon at a delta {needed}; ask for that")
        return promise_of(Cap(self._currency, self._cap), delta=delta).epsilon

    def __reduce__(self) -> NoReturn:
        self._refuse("copied or pickled")

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        self._refuse("copied or pickled")

    def __replace__(self, **changes: object) -> NoReturn:
        self._refuse("replaced")

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(
            f"a filter cannot be {what}: its cap may be spent once; share this one, or keep the cap in a ledger"
        )
