"""Privacy filters: a cap that is fixed in advance, and charges that may be chosen adaptively.

Choosing the next mechanism or its price in the light of earlier answers needs more than a composition theorem. A filter answers
one question, whether the next charge is still within the cap, and guarantees that all charges it lets through cost no more than the cap:

- pure epsilon: the sum of epsilons (Rogers, Roth, Ullman and Vadhan 2016, Thm. 3.6)
- zCDP: the sum of rhos (Feldman and Zrnic 2021; Whitehouse, Ramdas, Rogers and Wu 2023)
- Gaussian DP: the sum of mu^2 (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023)

The guarantee is about the cap, not about the sum so far, which itself depends on the answers. And it is about one filter: no theorem
covers letting a charge pass if either of two filters would, and that loses more than either filter guarantees.
"""

import os
from fractions import Fraction
from threading import Lock
from typing import NoReturn, SupportsIndex

from dpcore.errors import BudgetRefused, UsageError
from dpcore.privacy.accounting.amounts import Currency, checked_amount
from dpcore.privacy.accounting.promises import Cap, promise_of


class PrivacyFilter:
    """A cap in one currency, and the amount spent of it. Use the ledger for a budget that must outlive the program.

    A copy would let the same cap be spent twice. So a filter cannot be copied, pickled or used in a forked process, and its cap and
    currency cannot change.

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
        """The total amount that may be spent."""
        return self._cap

    @property
    def currency(self) -> Currency:
        """The currency of the amounts."""
        return self._currency

    @property
    def spent(self) -> int:
        """The amount spent so far."""
        return self._spent

    @property
    def remaining(self) -> int:
        """The amount that may still be spent."""
        return self._cap - self._spent

    def spend(self, charge: int) -> None:
        """Spend a charge before the mechanism draws. Raise, and change nothing, if it exceeds what remains."""
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
        """Return the epsilon at `delta` that the whole cap guarantees for adaptive charges, rounded up."""
        if (self._currency is Currency.PURE) != (delta == 0):
            needed = "0" if self._currency is Currency.PURE else "above 0"
            raise UsageError(f"a filter in {self._currency} has an epsilon at a delta {needed} only; pass such a delta")
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
