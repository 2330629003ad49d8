"""One step of a history: the known prices of a mechanism, and the prices that follow from them."""

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from dpcore.errors import UsageError
from dpcore.privacy.accounting.amounts import Currency
from dpcore.privacy.accounting.prices import pure_gdp, pure_zcdp
from dpcore.privacy.accounting.rounding import positive
from dpcore.scalars import is_whole
from dpcore.textbook.theorems.composition import checked_delta
from dpcore.textbook.theorems.numeric import Losses

Price: TypeAlias = tuple[Fraction, Fraction]
"""An epsilon and its delta."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The known prices of one mechanism, or of `count` mechanisms with the same prices. At least one must be given.

    Attributes:
        epsilon: Its epsilon at `delta`.
        delta: Its delta, which may be 0.
        rho: Its zCDP. If it is not given, it follows from a pure epsilon or from mu^2.
        mu_squared: Its Gaussian DP. If it is not given, it follows from a pure epsilon.
        losses: Privacy losses that dominate it in both directions.
        count: How many mechanisms there are.
    """

    epsilon: Fraction | float | None = None
    delta: Fraction | float | None = None
    rho: Fraction | float | None = None
    mu_squared: Fraction | float | None = None
    losses: Losses | None = None
    count: int = 1

    def __post_init__(self) -> None:
        """Check that at least one price is given and that all prices are valid."""
        if (self.epsilon is None) != (self.delta is None):
            raise UsageError("an epsilon needs its delta, which may be 0; give both or neither")
        if not is_whole(self.count) or self.count < 1:
            raise UsageError("the count of a step must be a whole number of at least 1")
        amounts = {"epsilon": self.epsilon, "rho": self.rho, "mu squared": self.mu_squared}
        if self.losses is None and all(amount is None for amount in amounts.values()):
            raise UsageError("a step has no price; give its epsilon and delta, rho, mu squared or losses")
        for what, amount in amounts.items():
            if amount is not None:
                positive(amount, what=what, largest=1e6)
        if self.delta is not None:
            checked_delta(self.delta)

    @property
    def pure(self) -> Fraction | None:
        """Its epsilon, if its delta is 0."""
        return None if self.epsilon is None or self.delta != 0 else Fraction(self.epsilon)

    @property
    def pair(self) -> Price | None:
        """Its (epsilon, delta), if known."""
        return None if self.epsilon is None or self.delta is None else (Fraction(self.epsilon), Fraction(self.delta))

    def amount_in(self, currency: Currency) -> Fraction | None:
        """Return the smallest known epsilon, rho or mu^2 that covers it. A mu-GDP mechanism is post-processing of Gaussian noise of rho = mu^2 / 2."""
        if currency is Currency.PURE:
            return self.pure
        if currency is Currency.GDP:
            amounts = [self.mu_squared, None if self.pure is None else pure_gdp(self.pure)]
        else:
            halved = None if self.mu_squared is None else Fraction(self.mu_squared) / 2
            amounts = [self.rho, halved, None if self.pure is None else pure_zcdp(self.pure)]
        return min((Fraction(amount) for amount in amounts if amount is not None), default=None)
