"""The sparse vector technique: find which of many values reach a threshold, and pay for the positive answers only."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self, TypeAlias

from dpcore.errors import UsageError
from dpcore.mechanisms.descriptions import Description
from dpcore.mechanisms.exponential import LARGEST_EPSILON, SMALLEST_EPSILON, epsilon_for, price
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.mechanisms.sampling.noise import LARGEST_SCALE, SMALLEST_SCALE
from dpcore.mechanisms.sessions import Session
from dpcore.privacy.accounting import Currency, spend_amount
from dpcore.privacy.accounting.rounding import float_down, float_up, real
from dpcore.scalars import is_number, is_whole

Widths: TypeAlias = tuple[Fraction, Fraction]


@dataclass(frozen=True, kw_only=True)
class SparseVector(Mechanism):
    """Report for each value, one after another, whether it reaches a threshold, and stop after `positives` positive answers.

    The threshold gets noise of scale s1 once, and each value gets its own noise of scale s2. Both are discrete Laplace. An
    answer is positive if value + noise >= threshold + its noise. Negative answers, however many, cost nothing.

    Guarantee:
        Pure epsilon = e1 + e2, for a whole session with adaptively chosen values, where e1 = D / s1, e2 = 2 c D / s2
        (c D / s2 if the values are monotone), D is the sensitivity and c the number of positives. It is split as
        e1 : e2 = 1 : (2 c)^(2/3) (1 : c^(2/3)), which minimises the noise of a comparison. Scales are rounded up. In zCDP
        and GDP, the price of any mechanism with that pure price. Up to the sampler's distance of 2^-109 per noise.

        Proof. Take any answers, values q and their neighbours q'. Where the threshold's noise is z on q, let it be z + D
        on q'. Noise on whole numbers can move by whole steps only, and D is whole, so this costs a factor e^(D / s1).
        A negative answer means q + n < t + z, which implies q' + n < t + z + D: it costs nothing. A positive one means
        q + n >= t + z; then n + 2 D, also a whole step, has q' + n + 2 D >= t + z + D, and costs e^(2 D / s2). A tie is
        a positive answer on both sides. If all values rise together, a step of D is enough instead of 2 D. If they all
        fall, z stays, negative answers stay, and n moves by D.

    Sensitivity:
        The most that one neighbour step can move any one value: a whole number, which holds in machine arithmetic because
        values are whole. Monotone means that a step moves all values in the same direction, if any. Counts are monotone
        under add-remove, but not under replace-one, which takes from one count and gives to another.

    Randomness:
        The operating system's, through `entropy`. How much is drawn depends on the answers only.

    Reference:
        Lyu, Su and Li 2017, Understanding the sparse vector technique for differential privacy.
    """

    name: ClassVar[str] = "sparse-vector"

    epsilon: float
    sensitivity: int
    positives: int
    monotone: bool

    def __post_init__(self) -> None:
        """Validate the parameters before any draw."""
        least, most = self._limits(self._widths)
        if not (is_number(self.epsilon) and least <= self.epsilon <= most):  # a NaN fails this too
            raise UsageError(
                f"this sparse vector's epsilon must be from {least:g} to {most:g}; spend an amount in that range, or allow "
                "another number of positives"
            )
        self._normalise(epsilon=float(self.epsilon))

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: int, positives: int, monotone: bool) -> Self:
        """Return the mechanism with the least noise that costs at most `amount`."""
        limits = cls._limits(cls._widths_of(sensitivity, positives, monotone=monotone))
        epsilon = epsilon_for(amount, currency=currency, bounded_range=False, between=limits)
        return cls(epsilon=epsilon, sensitivity=sensitivity, positives=positives, monotone=monotone)

    @cached_property
    def scales(self) -> tuple[float, float]:
        """The scale of the threshold's noise, and the scale of each value's noise, rounded up so that they never cost more than epsilon."""
        threshold, query = (float_up(width / Fraction(self.epsilon)) for width in self._widths)
        return threshold, query

    def price(self, currency: Currency) -> int:
        """Return the price of one session, as an amount."""
        return spend_amount(price(self.epsilon, currency=currency, bounded_range=False))

    def begin(self, threshold: int) -> Session:
        """Draw the threshold's noise and return a session. One charge pays for one session.

        >>> mechanism = SparseVector(epsilon=1.0, sensitivity=1, positives=2, monotone=True)
        >>> session = mechanism.begin(1000)
        >>> session.ask(-(10**6)), session.ask(10**6), session.positives_left
        (False, True, 1)
        """
        return Session(threshold, scales=self.scales, positives=self.positives)

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        threshold, query = self.scales
        return super().describe() | {"threshold_scale": repr(threshold), "query_scale": repr(query)}

    @staticmethod
    def _share(steps: int) -> Fraction:
        """Return how much of epsilon the values get for each part of the threshold, so that a comparison has the least variance."""
        return Fraction(float(real.cbrt(steps * steps)))

    @property
    def _widths(self) -> Widths:
        return self._widths_of(self.sensitivity, self.positives, monotone=self.monotone)

    @classmethod
    def _widths_of(cls, sensitivity: int, positives: int, *, monotone: bool) -> Widths:
        """Return the widths of both noises, of the threshold and of values: the scale of a noise is its width / epsilon."""
        for number, what in ((sensitivity, "sensitivity"), (positives, "number of positives")):
            if not is_whole(number) or not 1 <= number < 2**31:
                raise UsageError(f"a sparse vector's {what} must be a whole number from 1 to 2,147,483,647")
        if not isinstance(monotone, bool):
            raise UsageError(
                "pass monotone=True if a neighbour step moves all values the same way, else monotone=False"
            )
        steps = positives if monotone else 2 * positives
        share = cls._share(steps)
        return sensitivity * (1 + share), sensitivity * steps * (1 + 1 / share)

    @staticmethod
    def _limits(widths: Widths) -> tuple[float, float]:
        """Return the smallest and the largest epsilon for which both noises can be drawn."""
        least = max(SMALLEST_EPSILON, float_up(max(widths) / Fraction(LARGEST_SCALE)))
        most = min(LARGEST_EPSILON, float_down(min(widths) / Fraction(SMALLEST_SCALE)))
        if least > most:
            raise UsageError(
                "both noises of this sparse vector can be drawn for no epsilon; allow fewer positives, or count in larger steps"
            )
        return least, most
