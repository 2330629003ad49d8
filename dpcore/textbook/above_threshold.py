"""AboveThreshold: find the first of many values that reaches a threshold."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from dpcore.mechanisms.descriptions import Description
from dpcore.mechanisms.division import Division, even
from dpcore.mechanisms.exponential import price
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.mechanisms.sessions import Session
from dpcore.privacy.accounting import Currency, spend_amount


@dataclass(frozen=True, kw_only=True)
class AboveThreshold(Mechanism):
    """Report for each value, one after another, whether it reaches a threshold, and stop at the first that does.

    This is the textbook form. Half of epsilon goes to the threshold's noise, of scale 2 D / epsilon, and half to the
    values' noise, of scale 4 D / epsilon. `SparseVector` with one positive costs the same and splits epsilon better.

    Guarantee:
        Pure epsilon, for a whole session with adaptively chosen values, by the proof in `SparseVector` with one positive
        and equal shares. If the values are monotone, noise of scale 2 D / epsilon is enough for them too. Scales are
        rounded up. In zCDP and GDP, the price of any mechanism with that pure price. Up to the sampler's distance of
        2^-109 per noise.

    Sensitivity:
        D, a whole number: the most that one neighbour step can move any one value. The values are monotone if a step
        moves all of them in the same direction, as counts do under add-remove but not under replace-one.

    Randomness:
        The operating system's, through `entropy`. How much is drawn depends on the answers only.

    Reference:
        Dwork and Roth 2014, The algorithmic foundations of differential privacy, Alg. 1.
    """

    name: ClassVar[str] = "above-threshold"

    epsilon: float
    sensitivity: int
    monotone: bool

    def __post_init__(self) -> None:
        """Validate the parameters before any draw."""
        self._normalise(epsilon=self._division.checked(self.epsilon))

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: int, monotone: bool) -> Self:
        """Return the mechanism with the least noise that costs at most `amount`."""
        division = even(sensitivity=sensitivity, positives=1, monotone=monotone)
        epsilon = division.affordable(amount, currency=currency)
        return cls(epsilon=epsilon, sensitivity=sensitivity, monotone=monotone)

    @cached_property
    def scales(self) -> tuple[float, float]:
        """The scale of the threshold's noise, and the scale of each value's noise."""
        return self._division.scales(self.epsilon)

    @property
    def _division(self) -> Division:
        return even(sensitivity=self.sensitivity, positives=1, monotone=self.monotone)

    def price(self, currency: Currency) -> int:
        """Return the price of one session, as an amount."""
        return spend_amount(price(self.epsilon, currency=currency, bounded_range=False))

    def begin(self, threshold: int) -> Session:
        """Draw the threshold's noise and return a session. One charge pays for one session.

        >>> session = AboveThreshold(epsilon=1.0, sensitivity=1, monotone=True).begin(1000)
        >>> session.ask(10**6)
        True
        >>> session.ask(10**6)
        Traceback (most recent call last):
        dpcore.errors.UsageError: this session has given its last positive answer; begin a new one, which is charged again
        """
        return Session(threshold, scales=self.scales, positives=1)

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return super().describe() | self._division.described_scales(self.epsilon)
