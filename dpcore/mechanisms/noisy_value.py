"""Laplace or Gaussian noise on any real-valued answer, rounded to a declared grid."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
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
    """Answer a real-valued query with noise, after clipping it and rounding it to a grid.

    For queries whose sensitivity the caller has proved. Counts, sums and means derive theirs, so prefer those mechanisms.

    >>> from dpcore.universe import Number
    >>> share = NoisyValue.for_epsilon(1.0, delta=0, attribute=Number((0, 1)), step="0.001", moves_by="0.05")
    >>> share.sensitivity.l1, share.scale
    (50, 50.0)

    Guarantee:
        That of its noise on one whole number of steps, provided that the query moves by no more than declared: pure epsilon
        for discrete Laplace noise, rho for the Gaussian ones, mu^2 for the rounded one.

    Sensitivity:
        In whole steps: the declared movement, rounded up, and at most the declared range. Clipping never moves two answers
        further apart. Exact fractions that are d steps apart are rounded, ties up, to whole numbers at most ceil(d) apart.

    Randomness:
        The operating system's, through `entropy`.

    Reference:
        Dwork, McSherry, Nissim and Smith 2006; Mironov 2012 for why it is on a grid.

    Attributes:
        grid: The grid that the answer is rounded to.
        moves_by: The most that one neighbour step moves the answer, including the rounding of its float arithmetic.
        noise: The kind of noise.
        scale: The scale, or sigma, of the noise, in steps.
    """

    name: ClassVar[str] = "noisy-value"

    grid: ValueGrid
    moves_by: Fraction
    noise: NoiseKind
    scale: float

    def __post_init__(self) -> None:
        """Validate the noise before any draw."""
        object.__setattr__(self, "moves_by", _movement(self.moves_by))
        object.__setattr__(self, "noise", NoiseKind(self.noise))
        self.noise.at(self.scale, sensitivity=self.sensitivity)
        object.__setattr__(self, "scale", float(self.scale))

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, attribute: Attribute, step: Step, moves_by: Step) -> Self:
        """Return the answer with the least noise that costs at most `amount`.

        Args:
            amount: The amount to spend.
            currency: The currency of the amount.
            attribute: The range of the answer, as a Number.
            step: The spacing of the grid that the answer is rounded to.
            moves_by: The most that one neighbour step moves the answer.
        """
        grid, exact = ValueGrid.of(attribute, step=step), _movement(moves_by)
        sensitivity = one_number(_distance(grid, exact))
        noise, scale = bought_noise(amount, currency=currency, sensitivity=sensitivity, otherwise=COARSER)
        return cls(grid=grid, moves_by=exact, noise=noise, scale=scale)

    @classmethod
    def for_epsilon(  # noqa: PLR0913  what is asked, and how it is paid
        cls,
        epsilon: float,
        *,
        delta: float,
        attribute: Attribute,
        step: Step,
        moves_by: Step,
        currency: Currency | None = None,
    ) -> Self:
        """Return the answer with the least noise that satisfies (epsilon, delta).

        Without the currency of the account that pays, it is pure epsilon at delta 0, and zCDP otherwise.
        """
        chosen, amount = budget_of(epsilon, delta=delta, currency=currency)
        return cls.for_amount(amount, currency=chosen, attribute=attribute, step=step, moves_by=moves_by)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from its description."""
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
        return self._on_steps.standard_deviation * float(self.grid.step)

    def price(self, currency: Currency) -> int:
        """Return the price of one draw, as an amount."""
        return self._on_steps.price(currency)

    def draw(self, value: float | Fraction) -> float:
        """Return a noisy answer. NaN counts as the minimum, and a value outside the range as its nearest bound."""
        if isinstance(value, np.integer | np.floating):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, float | int | Fraction):
            raise UsageError("an answer must be a number; compute it from the table first")
        exact = np.array([self.grid.nearest(value)], dtype=np.int64)
        return self.grid.value(int(self._on_steps.draw(exact)[0]))

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return {
            "name": self.name,
            "noise": self.noise.value,
            "scale": repr(self.scale),
            "moves_by": str(self.moves_by),
            **self.grid.describe(),
        }

    @cached_property
    def _on_steps(self) -> Noise:
        return self.noise.at(self.scale, sensitivity=self.sensitivity)


def _movement(moves_by: Step) -> Fraction:
    try:
        return exact_step(moves_by)
    except UsageError:
        raise UsageError('moves_by must be a number above 0; write a decimal as text, such as "0.05"') from None


def _distance(grid: ValueGrid, moves_by: Fraction) -> int:
    return min(math.ceil(moves_by / grid.step), grid.width)
