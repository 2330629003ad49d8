"""What a strategy may ask of a model, and the one step that moves a model towards what was measured."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.queries import Axes

Weights = NDArray[np.float64]
"""An array over cells, of counts, of a factor or of probabilities."""


class Model(Protocol):
    """A public distribution over the cells of a universe, scaled to a number of rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of cells of every column."""
        ...

    @property
    def total(self) -> float:
        """Return the number of rows that all marginals add up to."""
        ...

    def rescale(self, total: float) -> None:
        """Set the number of rows; the distribution stays as it is."""
        ...

    def marginal(self, axes: Axes) -> Weights:
        """Return the counts that the model expects in every cell of these columns."""
        ...

    def multiply(self, axes: Axes, factor: Weights) -> None:
        """Multiply the distribution by a function of these columns, and normalise it again."""
        ...


def update_towards(model: Model, measured: Iterable[tuple[Axes, Weights | NDArray[np.int64]]], *, rate: float) -> None:
    """Move a model towards measured marginals: one multiplicative-weights step for each, in the order given.

    A step multiplies every cell by exp(rate * (measured - expected) / total) of its marginal's cell; the rate is 1/2 in MWEM (Hardt,
    Ligett and McSherry 2012). A marginal and a multiplication are all that it takes: two passes over a dense model.

    Args:
        model: the model to move, in place.
        measured: axes and noisy counts; counts may be negative.
        rate: the length of the step.
    """
    for axes, counts in measured:
        exponent = (counts - model.marginal(axes)) * (rate / model.total)
        # A constant cancels in the normalisation; this one keeps the exponential finite whatever the noise was.
        model.multiply(axes, np.exp(exponent - exponent.max()))
