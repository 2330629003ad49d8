"""Any real-valued answer that was declared on a grid: Laplace, or Gaussian, noise on real values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_sum import COARSER
from dpcore.mechanisms.currency_noise import Noise, NoiseKind, bought_noise, kind_in, one_number
from dpcore.mechanisms.descriptions import Description, number_in
from dpcore.mechanisms.grid import Step, ValueGrid, exact_step
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Sensitivity
from dpcore.universe import Attribute


@dataclass(frozen=True, kw_only=True)
class NoisyValue:
    """Answer a real-valued query, clipped and on a grid, with noise.

    For queries of which the movement is known by a proof of their own. Counts, sums and means derive theirs: prefer them.

    >>> from dpcore.universe import Number
    >>> share = NoisyValue.for_epsilon(1.0, delta=0, attribute=Number((0, 1)), step="0.001", moves_by="0.05")
    >>> share.sensitivity.l1, share.scale
    (50, 50.0)

    Guarantee:
        That of its noise on one whole number of steps, as long as the query moves as little as was declared: pure epsilon for
        discrete Laplace, rho for the Gaussian ones, mu^2 for the rounded one.

    Sensitivity:
        In whole steps: what the answer moves by, rounded up, and no more than the declared range. Clipping brings no two
        answers further apart; and exact fractions that are d steps apart are rounded, ties up, to whole numbers that are
        at most d apart, rounded up.

    Randomness:
        The operating system's, through `entropy`.

    Reference:
        Dwork, McSherry, Nissim and Smith 2006; Mironov 2012 for why it is on a grid.

    Attributes:
        grid: Which whole number the answer becomes.
        moves_by: How far one neighbour step moves the answer at most, its own float arithmetic included.
        noise: What is added, in steps.
        scale: Its scale, or its sigma, in steps.
    """

    name: ClassVar[str] = "noisy-value"

    grid: ValueGrid
    moves_by: Fraction
    noise: NoiseKind
    scale: float

    def __post_init__(self) -> None:
        """Refuse a noise that means nothing, before any draw."""
        object.__setattr__(self, "moves_by", _movement(self.moves_by))
        object.__setattr__(self, "noise", NoiseKind(self.noise))
        self._on_steps()
        object.__setattr__(self, "scale", float(self.scale))

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, attribute: Attribute, step: Step, moves_by: Step) -> Self:
        """Return the answer with the least noise that costs at most `amount`.

        Args:
            amount: The amount to spend.
            currency: Of the amount.
            attribute: The range of the answer, as a Number.
            step: How finely the answer matters.
            moves_by: How far one neighbour step moves the answer at most.
        """
        grid, exact = ValueGrid.of(attribute, step=step), _movement(moves_by)
        sensitivity = one_number(_distance(grid, exact))
        noise, scale = bought_noise(amount, currency=currency, sensitivity=sensitivity, otherwise=COARSER)
        return cls(grid=grid, moves_by=exact, noise=noise, scale=scale)

    @classmethod
    def for_epsilon(cls, epsilon: float, *, delta: float, attribute: Attribute, step: Step, moves_by: Step) -> Self:
        """Return the answer with the least noise that keeps a promise: pure epsilon at delta 0, through zCDP above."""
        currency, amount = budget_of(epsilon, delta=delta)
        return cls.for_amount(amount, currency=currency, attribute=attribute, step=step, moves_by=moves_by)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Return the mechanism that was described."""
        return cls(
            grid=ValueGrid.from_description(description),
            moves_by=_movement(str(description.get("moves_by"))),
            noise=kind_in(description),
            scale=number_in(description, "scale"),
        )

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one neighbour step can move the answer, in steps."""
        return one_number(_distance(self.grid, self.moves_by))

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, in the answer's own unit."""
        return self._on_steps().standard_deviation * float(self.grid.step)

    def price(self, currency: Currency) -> int:
        """Return the price of one draw, as an amount."""
        return self._on_steps().price(currency)

    def draw(self, value: float | Fraction) -> float:
        """Return a noisy answer; NaN is taken as the minimum, and what is outside the range as its nearest bound."""
        if isinstance(value, np.integer | np.floating):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, float | int | Fraction):
            raise UsageError("an answer must be a number; compute it from the table first")
        exact = np.array([self.grid.nearest(value)], dtype=np.int64)
        return self.grid.value(int(self._on_steps().draw(exact)[0]))

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can account again."""
        return {
            "name": self.name,
            "noise": self.noise.value,
            "scale": repr(self.scale),
            "moves_by": str(self.moves_by),
            **self.grid.describe(),
        }

    def _on_steps(self) -> Noise:
        return self.noise.at(self.scale, sensitivity=self.sensitivity)


def _movement(moves_by: Step) -> Fraction:
    try:
        return exact_step(moves_by)
    except UsageError:
        raise UsageError("how far an answer moves must be a number above 0; write a decimal one as text") from None


def _distance(grid: ValueGrid, moves_by: Fraction) -> int:
    return min(math.ceil(moves_by / grid.step), grid.width)
