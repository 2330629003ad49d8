"""The sparse vector technique: which of many values lie above a threshold, paid for by the positive answers alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from dpcore.mechanisms.descriptions import Description, flag_in, number_in, said, whole_in
from dpcore.mechanisms.division import Division, least_noise
from dpcore.mechanisms.exponential import price
from dpcore.mechanisms.sessions import Session
from dpcore.privacy.accounting import Currency, spend_amount


@dataclass(frozen=True, kw_only=True)
class SparseVector:
    """Say of each value, one after another, whether it reaches a threshold, and stop after so many positive answers.

    The threshold gets noise of scale s1 once, each value its own of scale s2; both are discrete Laplace. An answer is
    positive if value + noise >= threshold + its noise. The negative answers, however many, cost nothing.

    Guarantee:
        Pure epsilon = e1 + e2, for a whole session and values chosen one by one, with e1 = D / s1 and e2 = 2 c D / s2
        (c D / s2 if the values are monotone), D the sensitivity and c the positives. It is divided as e1 : e2 =
        1 : (2 c)^(2/3) (1 : c^(2/3)), which keeps the noise of a comparison least. Scales are rounded up. In zCDP and
        GDP, the price of any mechanism of that pure price. Up to the sampler's distance of 2^-109 per noise.

        To see it, take any answers, values q and their neighbours q'. Where the threshold's noise is z on q, let it be
        z + D on q'. Noise on whole numbers can move by whole steps only, and this is one: it costs a factor e^(D / s1).
        A negative answer means q + n < t + z, which implies q' + n < t + z + D: it costs nothing. A positive one means
        q + n >= t + z; then n + 2 D, also a whole step, has q' + n + 2 D >= t + z + D, and costs e^(2 D / s2). A tie is
        a positive answer on both sides. If all values rise together, D is enough of a step in place of 2 D. If they
        all fall, z stays, negative answers stay, and n moves by D.

    Sensitivity:
        How far one neighbour step can move any one value: a whole number, true in machine arithmetic because values are
        whole. Monotone says that a step moves all values in the same direction, if any: so for counts under add-remove;
        not under replace-one, which takes from one count and gives to another.

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
        """Refuse parameters that mean nothing, before any draw."""
        object.__setattr__(self, "epsilon", self._division.checked(self.epsilon))

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: int, positives: int, monotone: bool) -> Self:
        """Return the mechanism with the least noise that costs at most `amount`."""
        division = least_noise(sensitivity=sensitivity, positives=positives, monotone=monotone)
        epsilon = division.affordable(amount, currency=currency)
        return cls(epsilon=epsilon, sensitivity=sensitivity, positives=positives, monotone=monotone)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Return the mechanism that was described."""
        return cls(
            epsilon=number_in(description, "epsilon"),
            sensitivity=whole_in(description, "sensitivity"),
            positives=whole_in(description, "positives"),
            monotone=flag_in(description, "monotone"),
        )

    @cached_property
    def scales(self) -> tuple[float, float]:
        """The scale of the threshold's noise, and that of each value's."""
        return self._division.scales(self.epsilon)

    @property
    def _division(self) -> Division:
        return least_noise(sensitivity=self.sensitivity, positives=self.positives, monotone=self.monotone)

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
        """Return the public parameters, from which anyone can account again."""
        return {
            "name": self.name,
            "epsilon": repr(self.epsilon),
            "sensitivity": self.sensitivity,
            "positives": self.positives,
            "monotone": said(self.monotone),
            **self._division.described_scales(self.epsilon),
        }
