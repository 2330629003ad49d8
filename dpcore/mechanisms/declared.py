"""Guarantees that a caller states for code of their own: prices without draws.

`dpcore.Budget` charges them for tasks that use any library. What such a task really does is its author's promise, and nothing here checks it.
The price is what a theorem gives: a guarantee that implies nothing in the currency of an account is refused there.

A float counts as the decimal that Python prints for it: 0.1 is one tenth.
"""

from abc import abstractmethod
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import ClassVar, TypeAlias

from dpcore.errors import UsageError
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.privacy.accounting import Currency, gaussian_gdp, gaussian_zcdp, pure_gdp, pure_zcdp, spend_amount
from dpcore.privacy.accounting.rounding import below_one, positive
from dpcore.privacy.protection import Neighbours
from dpcore.scalars import is_whole

Number: TypeAlias = Fraction | float | str
"""A number that a caller may state; `exactly` reads it."""

_INSTEAD = {
    Currency.PURE: "epsilon; state an epsilon, describe Laplace noise, or pay from an account with a delta",
    Currency.ZCDP: "rho; state rho, mu or an epsilon with delta 0, or describe the noise",
    Currency.GDP: "mu; state mu or an epsilon with delta 0, or describe the noise",
}


def exactly(number: Number, *, what: str) -> Fraction:
    """Return a number as it is written. Raise unless it is finite and above 0.

    >>> exactly(0.1, what="epsilon"), exactly("1/3", what="epsilon")
    (Fraction(1, 10), Fraction(1, 3))
    """
    if isinstance(number, bool):
        raise UsageError(f"{what} must be a finite number above 0")
    try:
        read = Fraction(repr(float(number)) if isinstance(number, float) else number)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        raise UsageError(f"{what} must be a finite number above 0") from None
    return positive(read, what=what, smallest=Fraction(1, 10**12), largest=10**12)


class Declared(Mechanism):
    """A guarantee that a caller states. Its randomness is the caller's, and so is its sensitivity unless a class says more."""

    def __post_init__(self) -> None:
        """Read the numbers as they are written."""
        numbers = (field.name for field in fields(self) if field.type == Number)
        self._normalise(
            **{name: exactly(getattr(self, name), what=f"the {name.replace('_', ' ')}") for name in numbers}
        )

    def price(self, currency: Currency) -> int:
        """Return the price as an amount, rounded up.

        Raises:
            UsageError: If the guarantee implies nothing in this currency.
        """
        price = self._price(Currency(currency))
        if price is None:
            raise UsageError(f"{self._what} implies no {_INSTEAD[Currency(currency)]}")
        return spend_amount(price)

    @property
    @abstractmethod
    def _what(self) -> str:
        """What is stated, for a sentence."""

    @abstractmethod
    def _price(self, currency: Currency) -> Fraction | float | None:
        """Return the exact price, or a float that is not below it; None if no theorem gives one."""


@dataclass(frozen=True, kw_only=True)
class StatedEpsilon(Declared):
    """Any (epsilon, delta)-DP mechanism.

    >>> StatedEpsilon(epsilon=0.1).price(Currency.PURE)
    100000000000
    >>> StatedEpsilon(epsilon=0.1, delta=1e-9).price(Currency.ZCDP)
    Traceback (most recent call last):
    dpcore.errors.UsageError: an epsilon with a delta implies no rho; state rho, mu or an epsilon with delta 0, or describe the noise

    Guarantee:
        Epsilon in pure currency. In zCDP and GDP the least amount that covers every epsilon-DP mechanism (`accounting.pure_zcdp` and
        `pure_gdp`). With a delta above 0 there is no price: it bounds neither rho nor mu, and an account's delta is fixed.

    Reference:
        Kairouz, Oh and Viswanath 2015.
    """

    name: ClassVar[str] = "stated-epsilon"

    epsilon: Number
    delta: Number | None = None

    def __post_init__(self) -> None:
        """Read the numbers as they are written."""
        super().__post_init__()
        delta = None if self.delta in {None, 0, "0"} else below_one(exactly(self.delta or 0, what="delta"))
        self._normalise(delta=delta)

    @property
    def _what(self) -> str:
        return "an epsilon with a delta"

    def _price(self, currency: Currency) -> Fraction | float | None:
        return None if self.delta else _of_pure(Fraction(self.epsilon), currency)


@dataclass(frozen=True, kw_only=True)
class StatedRho(Declared):
    """Any rho-zCDP mechanism.

    Guarantee:
        Rho in zCDP. No pure epsilon. In GDP there is no price: zCDP bounds the moments of the privacy loss, and no mu follows from them.

    Reference:
        Bun and Steinke 2016.
    """

    name: ClassVar[str] = "stated-rho"

    rho: Number

    @property
    def _what(self) -> str:
        return "a rho"

    def _price(self, currency: Currency) -> Fraction | float | None:
        return Fraction(self.rho) if currency is Currency.ZCDP else None


@dataclass(frozen=True, kw_only=True)
class StatedMu(Declared):
    """Any mu-GDP mechanism.

    Guarantee:
        mu^2 in GDP and mu^2 / 2 in zCDP. No pure epsilon.

    Reference:
        Dong, Roth and Su 2022.
    """

    name: ClassVar[str] = "stated-mu"

    mu: Number

    @property
    def _what(self) -> str:
        return "a mu"

    def _price(self, currency: Currency) -> Fraction | float | None:
        return _of_gaussian(Fraction(self.mu) ** 2, currency)


@dataclass(frozen=True, kw_only=True)
class Laplace(Declared):
    """Laplace noise, continuous or on a grid, that the caller adds.

    Guarantee:
        Epsilon = sensitivity / scale in pure currency. In zCDP and GDP the price of any mechanism with that epsilon.

    Sensitivity:
        The L1 norm of the most that one neighbour step moves the numbers, under the account's neighbours. Stated by the caller.

    Reference:
        Dwork, McSherry, Nissim and Smith 2006.
    """

    name: ClassVar[str] = "stated-laplace"

    scale: Number
    sensitivity: Number

    @property
    def _what(self) -> str:
        return "Laplace noise"

    def _price(self, currency: Currency) -> Fraction | float | None:
        return _of_pure(Fraction(self.sensitivity) / Fraction(self.scale), currency)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Declared):
    """Gaussian noise that the caller adds.

    Guarantee:
        In zCDP l2^2 / (2 sigma^2), continuous or discrete. In GDP l2^2 / sigma^2 for continuous noise, which may be rounded afterwards. Discrete
        noise has no price there. No pure epsilon.

    Sensitivity:
        The L2 norm of the most that one neighbour step moves the numbers, under the account's neighbours. Stated by the caller.

    Reference:
        Dong, Roth and Su 2022; Canonne, Kamath and Steinke 2020 for discrete noise.

    Attributes:
        scale: Sigma.
        sensitivity: The L2 sensitivity.
        continuous: Whether the noise is a normal number, possibly rounded after it was added. OpenDP's noise on whole numbers is not.
    """

    name: ClassVar[str] = "stated-gaussian"

    scale: Number
    sensitivity: Number
    continuous: bool

    def __post_init__(self) -> None:
        """Read the numbers as they are written."""
        super().__post_init__()
        if not isinstance(self.continuous, bool):
            raise UsageError("continuous must be True or False: discrete Gaussian noise has no mu")

    @property
    def _what(self) -> str:
        return f"{'' if self.continuous else 'discrete '}Gaussian noise"

    def _price(self, currency: Currency) -> Fraction | float | None:
        if currency is Currency.GDP and not self.continuous:
            return None
        return _of_gaussian((Fraction(self.sensitivity) / Fraction(self.scale)) ** 2, currency)


@dataclass(frozen=True, kw_only=True)
class DpSgd(Declared):
    """Stochastic gradient descent with clipped gradients and continuous Gaussian noise, on Poisson samples.

    Guarantee:
        That of its steps without sampling: steps s^2 / noise_multiplier^2 in GDP, half of that in zCDP. Sampling is recorded and does not lower
        the price: the loss of a sampled step has the tail of the whole noise, so no smaller mu, and no smaller rho at all orders, covers it. A
        curve of dp_accounting, which says less at a given delta, cannot be added to other charges of an account. No pure epsilon.

    Sensitivity:
        s clip norms: 1 if a neighbour adds or removes a unit, and 2 if it replaces one. Each unit must be one example.

    Reference:
        Abadi et al. 2016; Dong, Roth and Su 2022; joint convexity of the divergences in the secret sample.

    Attributes:
        noise_multiplier: Sigma of the noise on the sum of the gradients, in clip norms.
        steps: The number of steps.
        sampling_rate: The probability with which a step takes an example.
        neighbours: How two neighbouring tables differ. It must be that of the account.
    """

    name: ClassVar[str] = "stated-dp-sgd"

    noise_multiplier: Number
    steps: int
    sampling_rate: Number
    neighbours: Neighbours

    def __post_init__(self) -> None:
        """Read the numbers as they are written."""
        super().__post_init__()
        if not is_whole(self.steps) or not 1 <= self.steps <= 10**9 or Fraction(self.sampling_rate) > 1:
            raise UsageError("steps must be a whole number of at least 1, and a sampling rate at most 1")
        try:
            self._normalise(neighbours=Neighbours(self.neighbours))
        except ValueError:
            raise UsageError(f"neighbours must be one of: {', '.join(Neighbours)}") from None

    @property
    def _what(self) -> str:
        return "Gaussian noise on gradients"

    def _price(self, currency: Currency) -> Fraction | float | None:
        moved = 2 if self.neighbours is Neighbours.REPLACE_ONE else 1
        return _of_gaussian(self.steps * (moved / Fraction(self.noise_multiplier)) ** 2, currency)


DECLARED: tuple[type[Declared], ...] = (StatedEpsilon, StatedRho, StatedMu, Laplace, Gaussian, DpSgd)
"""All guarantees that a ledger row may state for a caller's own code."""


def _of_pure(epsilon: Fraction, currency: Currency) -> Fraction | float:
    if currency is Currency.PURE:
        return epsilon
    return pure_gdp(epsilon) if currency is Currency.GDP else pure_zcdp(epsilon)


def _of_gaussian(mu_squared: Fraction, currency: Currency) -> Fraction | None:
    """Return the price of continuous Gaussian noise with mu^2 = l2^2 / sigma^2."""
    if currency is Currency.PURE:
        return None
    price = gaussian_gdp if currency is Currency.GDP else gaussian_zcdp
    return price(l2_squared=mu_squared, sigma=1)
