"""Laplace or Gaussian noise on any real-valued answer, rounded to a declared grid."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from dpcore.errors import UsageError
from dpcore.mechanisms.grid import Step, ValueGrid, exact_step
from dpcore.mechanisms.noise import one_number
from dpcore.mechanisms.query import COARSER, NoisyNumbers
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity
from dpcore.universe import Attribute


@dataclass(frozen=True, kw_only=True)
class NoisyValue(NoisyNumbers):
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
        noise: The kind of noise.
        scale: The scale, or sigma, of the noise, in steps.
        moves_by: The most that one neighbour step moves the answer, including the rounding of its float arithmetic.
        grid: The grid that the answer is rounded to.
    """

    name: ClassVar[str] = "noisy-value"
    otherwise: ClassVar[str] = COARSER

    moves_by: Fraction
    grid: ValueGrid

    def __post_init__(self) -> None:
        """Validate the movement and the noise before any draw."""
        try:
            self._normalise(moves_by=exact_step(self.moves_by))
        except UsageError:
            raise UsageError('moves_by must be a number above 0; write a decimal as text, such as "0.05"') from None
        super().__post_init__()

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
        return cls._bought(amount, currency=currency, grid=ValueGrid.of(attribute, step=step), moves_by=moves_by)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one neighbour step can move the answer, in steps."""
        return one_number(min(math.ceil(self.moves_by / self.grid.step), self.grid.width))

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, in the answer's own unit."""
        return super().standard_deviation * float(self.grid.step)

    def draw(self, value: float | Fraction) -> float:
        """Return a noisy answer. NaN counts as the minimum, and a value outside the range as its nearest bound."""
        if isinstance(value, np.integer | np.floating):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, float | int | Fraction):
            raise UsageError("an answer must be a number; compute it from the table first")
        exact = np.array([self.grid.nearest(value)], dtype=np.int64)
        return self.grid.value(int(self.on_numbers.draw(exact)[0]))
