"""What a strategy may ask of a model."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.workload import Axes

Weights = NDArray[np.float64]
"""An array over cells, of counts, of a factor or of probabilities."""

RowCodes = NDArray[np.integer[Any]]
"""The codes of rows in one column, in any type that holds them."""


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

    def marginals(self, sets: Iterable[Axes]) -> dict[Axes, Weights]:
        """Return several marginals, in the order asked."""
        ...

    def assign(self, functions: Mapping[Axes, Weights]) -> None:
        """Make the distribution proportional to exp of a sum of functions, each of some columns; of none, uniform."""
        ...

    def rows(self, count: int, *, rng: np.random.Generator) -> tuple[RowCodes, ...]:
        """Return the codes of as many rows, one array for each column, as close to the model as whole rows can be."""
        ...

    def row_chunks(self, count: int, *, rng: np.random.Generator) -> Iterator[tuple[RowCodes, ...]]:
        """Return the same rows chunk by chunk, in memory that does not depend on their number."""
        ...
