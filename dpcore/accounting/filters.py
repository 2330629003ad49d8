"""Adaptive filters: a cap that is fixed in advance, and charges that may be chosen on the way.

Whoever chooses a next mechanism or its price in the light of earlier answers needs more than a composition theorem. A filter answers
one question, whether the next charge is still within the cap, and promises that whatever it let through costs no more than the cap:

- pure epsilon: the sum of epsilons (Rogers, Roth, Ullman and Vadhan 2016, Thm. 3.6)
- zCDP: the sum of rhos (Feldman and Zrnic 2021; Whitehouse, Ramdas, Rogers and Wu 2023)
- Gaussian DP: the sum of mu^2 (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023)

The promise is about the cap, not about the sum so far, which is itself an answer. And it is about one filter: to let a charge pass if
either of two filters would is covered by no theorem, and loses more than either promises.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from threading import Lock

from dpcore.accounting.amounts import LARGEST, UNIT, Currency
from dpcore.accounting.budgets import epsilon_of
from dpcore.errors import BudgetRefused, UsageError


@dataclass(kw_only=True)
class PrivacyFilter:
    """A cap in units of one currency, and what was spent of it. For money that must outlive the program, there is the ledger.

    >>> spending = PrivacyFilter(cap=1000, currency=Currency.ZCDP)
    >>> spending.spend(900)
    >>> spending.spend(101)
    Traceback (most recent call last):
    dpcore.errors.BudgetRefused: this charge of 101 units is 1 more than the 100 that are left; ask for less
    >>> spending.spend(100)
    >>> spending.remaining
    0
    """

    cap: int
    currency: Currency
    _spent: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a cap that is no amount."""
        self.cap = _units(self.cap, what="a cap")
        self.currency = Currency(self.currency)

    @property
    def spent(self) -> int:
        """Units that were let through."""
        return self._spent

    @property
    def remaining(self) -> int:
        """Units that can still be let through."""
        return self.cap - self._spent

    def spend(self, charge: int) -> None:
        """Take a charge, in units, before the mechanism draws; or refuse it, and leave everything as it was."""
        units = _units(charge, what="a charge")
        with self._lock:
            left = self.cap - self._spent
            if units > left:
                message = f"this charge of {units:,} units is {units - left:,} more than the {left:,} that are left; ask for less"
                raise BudgetRefused(message, requested=units, remaining=left)
            self._spent += units

    def epsilon(self, *, delta: Fraction | float) -> float:
        """Return the epsilon at `delta` that the whole cap promises, whatever was chosen on the way."""
        if (self.currency is Currency.PURE) != (delta == 0):
            needed = "0" if self.currency is Currency.PURE else "above 0"
            raise UsageError(f"a filter in {self.currency} promises an epsilon at a delta {needed}; ask for that")
        return epsilon_of(self.cap, currency=self.currency, delta=float(delta))


def _units(units: int, *, what: str) -> int:
    if isinstance(units, bool) or not isinstance(units, int):
        raise UsageError(f"{what} must be a whole number of units; make it with spend_units or cap_units")
    if not 1 <= units <= LARGEST * UNIT:
        raise UsageError(f"{what} must be from 1 to {LARGEST * UNIT:,} units")
    return units
