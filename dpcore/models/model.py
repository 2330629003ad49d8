"""The interface of a model."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes

Weights = NDArray[np.float64]
"""An array over cells: counts, a factor, or probabilities."""

RowCodes = NDArray[np.integer[Any]]
"""The codes of rows in one column, in any integer dtype."""


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
        """Set the number of rows. The distribution does not change."""
        ...

    def marginal(self, axes: Axes) -> Weights:
        """Return the counts that the model expects in every cell of these columns."""
        ...

    def marginals(self, sets: Iterable[Axes]) -> dict[Axes, Weights]:
        """Return several marginals, in the given order."""
        ...

    def assign(self, functions: Mapping[Axes, Weights]) -> None:
        """Make the distribution proportional to the model's start times exp of a sum of functions, each of some columns.

        The start is uniform, unless the model was made with another one. What constraints exclude has no weight, whatever the functions are.
        """
        ...

    def possible(self, axes: Axes) -> NDArray[np.bool_] | None:
        """Return which cells of a marginal the constraints allow; None if all of them are possible."""
        ...

    def rows(self, count: int, *, rng: np.random.Generator) -> tuple[RowCodes, ...]:
        """Return the codes of `count` rows, one array per column, as close to the model as whole rows can be."""
        ...

    def row_chunks(
        self, count: int, *, rng: np.random.Generator, near: Sequence[Axes] = ()
    ) -> Iterator[tuple[RowCodes, ...]]:
        """Yield the same rows chunk by chunk, in memory that does not grow with their number.

        Unless there are many, they exchange values so that the marginals of `near` come closer to those of the model.
        """
        ...


def checked_total(total: float) -> float:
    """Return a model's number of rows. Raise unless it is finite and positive."""
    if not (math.isfinite(total) and total > 0):
        raise UsageError(
            "A model's total must be a positive number of rows: use at least 1, even if the noisy count is below it."
        )
    return float(total)
