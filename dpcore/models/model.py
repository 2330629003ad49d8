"""What a strategy may ask of a model."""

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
