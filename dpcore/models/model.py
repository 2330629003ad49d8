"""The base class of models."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import Possible, Zeros
from dpcore.models.exchange import Codes, Pairs, exchange, sets_worth

Weights = NDArray[np.float64]
"""An array over cells: counts, a factor, or probabilities."""

Matrix: TypeAlias = Weights | None
"""What the cells of a column are multiplied by: a row for each cell, and a column for each result. None keeps the cells."""

RowCodes = NDArray[np.integer[Any]]
"""The codes of rows in one column, in any integer dtype."""

Rows = tuple[RowCodes, ...]
"""The codes of rows, one array per column."""


class Fittable(Protocol):
    """What a fit needs of a model."""

    @abstractmethod
    def marginals(self, sets: Iterable[Axes]) -> dict[Axes, Weights]:
        """Return several marginals, in the given order."""
        ...

    @abstractmethod
    def assign(self, functions: Mapping[Axes, Weights]) -> None:
        """Make the distribution proportional to the model's start times exp of a sum of functions, each of some columns.

        The start is uniform, unless the model was made with another one. What constraints exclude has no weight, whatever the functions are.
        """
        ...

    @abstractmethod
    def possible(self, axes: Axes) -> Possible | None:
        """Return which cells of a marginal the constraints allow; None if all of them are possible."""
        ...


class Model(ABC, Fittable):
    """A public distribution over the cells of a universe, scaled to a number of rows.

    Attributes:
        resolutions: What the axes stand for.
    """

    PER_CELL: ClassVar[float]
    """Parameters that a fit may use for each measured cell that stands out of its noise."""

    def __init__(self, resolutions: Resolutions, *, total: float, zeros: Zeros) -> None:
        self.resolutions = resolutions
        self._zeros = zeros
        self._possible: dict[Axes, Possible | None] = {}
        self.rescale(total)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of every axis."""
        return self.resolutions.shape

    @property
    def total(self) -> float:
        """The number of rows that all marginals add up to."""
        return self._total

    def rescale(self, total: float) -> None:
        """Set the number of rows. The distribution does not change. Raise unless the number is finite and positive."""
        if not (math.isfinite(total) and total > 0):
            raise UsageError(
                "A model's total must be a positive number of rows: use at least 1, even if the noisy count is below it."
            )
        self._total = float(total)

    def possible(self, axes: Axes) -> Possible | None:
        """Return which cells of a marginal the constraints allow; None if all of them are possible."""
        if axes not in self._possible:
            self._possible[axes] = self._zeros.support(axes, self.resolutions)
        return self._possible[axes]

    def make_room(self, sets: Iterable[Axes]) -> None:
        """Prepare the model for functions of these axes. The distribution is undefined until it is assigned again."""

    def make_room_in_turn(self, sets: Iterable[Axes]) -> None:
        """Prepare the model for one function after the other, as in rounds: their order decides the tree of a factored model."""
        for axes in sets:
            self.make_room([axes])

    @abstractmethod
    def marginal(self, axes: Axes) -> Weights:
        """Return the counts that the model expects in every cell of these axes."""

    def rows(self, count: int, *, rng: np.random.Generator) -> Rows:
        """Return the codes of `count` rows, as close to the model as whole rows can be."""
        no_rows = tuple(
            np.empty(0, dtype=np.min_scalar_type(size - 1)) for size in self.shape[: self.resolutions.columns]
        )
        return tuple(map(np.concatenate, zip(no_rows, *self.row_chunks(count, rng=rng), strict=True)))

    def row_chunks(self, count: int, *, rng: np.random.Generator, near: Sequence[Axes] = ()) -> Iterator[Rows]:
        """Return an iterator over the same rows in chunks, in memory that does not grow with their number.

        Unless there are many, they exchange values so that the marginals of `near` come closer to those of the model.
        """
        chunks = self._drawn(count, rng=rng)
        sets = sets_worth(near, self.resolutions.cells, self._is_worth_exchanging, count=count)
        return (self._exchanged(chunk, sets, rng=rng) for chunk in chunks) if sets else chunks

    def _exchanged(self, rows: Rows, sets: Sequence[Axes], *, rng: np.random.Generator) -> Rows:
        codes = [column.astype(np.int64) for column in rows]
        scale = len(codes[0]) / self._total
        expected = {axes: scale * counts for axes, counts in self.marginals(sets).items()}
        exchange(codes, expected, lambda column: self._pairs(codes, column, rng=rng), rng=rng)
        return tuple(column.astype(before.dtype) for column, before in zip(codes, rows, strict=True))

    @abstractmethod
    def _drawn(self, count: int, *, rng: np.random.Generator) -> Iterator[Rows]:
        """Return an iterator over chunks of rows, which are drawn from the distribution."""

    @abstractmethod
    def _is_worth_exchanging(self, axes: Axes) -> bool:
        """Return whether an exchange can change a marginal, and the marginal takes little memory."""

    @abstractmethod
    def _pairs(self, codes: Sequence[Codes], column: int, *, rng: np.random.Generator) -> Pairs:
        """Return pairs of rows that may exchange their values of a column: both rows stay about as likely as they were."""

    def _counts(self, sums: Weights, *, mass: float = 1.0) -> Weights:
        """Return sums of weights as counts, in a new array."""
        return np.multiply(sums, self._total / mass, out=np.empty(sums.shape))
