"""Structural zeros: combinations of cells that no row can have, because a constraint of the universe excludes them.

A model has no weight there. A measured count there would be noise alone. So it is left out of the evidence, and out of the number of noisy
counts by which a fit decides when to stop: a fit that counted it as a known zero would stop too early (docs/decisions/0056).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import SpecError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes

Possible = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float64]

IMPOSSIBLE = -1e6
"""The logarithm of a weight of zero: far below every sum of fitted functions."""

MOST_JOINED = 50
"""The most columns that constraints may connect. `einsum` has 52 labels."""


@dataclass(frozen=True, eq=False)
class Zeros:
    """Which combinations of cells are possible, for the columns of each constraint.

    Attributes:
        possible: By the columns' axes, ascending.

    >>> zeros = Zeros({(0, 1): np.array([[True, False], [True, True]])})
    >>> zeros.support((1,), Resolutions((2, 2))) is None
    True
    >>> zeros.support((0, 1), Resolutions((2, 2))).tolist()
    [[True, False], [True, True]]
    """

    possible: Mapping[Axes, Possible]

    @property
    def functions(self) -> dict[Axes, Weights]:
        """The constraints as logarithms of weights."""
        return {axes: np.where(table, 0.0, IMPOSSIBLE) for axes, table in self.possible.items()}

    def added(self, functions: Mapping[Axes, Weights]) -> dict[Axes, Weights]:
        """Return functions with those of the constraints added."""
        return added(functions, self.functions)

    def support(self, axes: Axes, resolutions: Resolutions) -> Possible | None:
        """Return which cells of a marginal some possible row has; None if all of them are possible.

        All constraints that decide about these axes, directly or through others, are joined, and all other columns are summed out.

        Args:
            axes: Columns, or coarser versions of them.
            resolutions: What the axes stand for.

        Raises:
            SpecError: If the constraints connect too many columns.
        """
        columns = [resolutions.column(axis) for axis in axes]
        tables = connected(self.possible, columns)
        if not tables:
            return None
        factors: list[tuple[Weights, Axes]] = [(self.possible[table].astype(np.float64), table) for table in tables]
        for axis, column in zip(axes, columns, strict=True):
            if axis == column:
                factors.append(
                    (np.ones(resolutions.shape[column]), (column,))
                )  # gives a column without constraints its shape
            else:
                factors.append((resolutions.membership(column, axis), (column, axis)))
        possible: Possible = _product(factors, axes) > 0
        return None if possible.all() else possible


def _product(factors: Sequence[tuple[Weights, Axes]], result: Axes) -> Weights:
    """Multiply arrays over labelled axes, and sum out all labels but those of the result."""
    labels = {label: place for place, label in enumerate(sorted({label for _, axes in factors for label in axes}))}
    if len(labels) > MOST_JOINED:
        raise SpecError(
            f"constraints connect {len(labels)} columns, and at most {MOST_JOINED} are possible; remove some"
        )
    operands: list[Any] = []
    for array, axes in factors:
        operands += [array, [labels[axis] for axis in axes]]
    return np.asarray(np.einsum(*operands, [labels[axis] for axis in result], optimize="greedy"))


def added(functions: Mapping[Axes, Weights], more: Mapping[Axes, Weights]) -> dict[Axes, Weights]:
    """Return the sum of two sums of functions, each of some axes."""
    both = dict(functions)
    for axes, function in more.items():
        both[axes] = both[axes] + function if axes in both else function
    return both


def connected(tables: Iterable[Axes], columns: Iterable[int]) -> list[Axes]:
    """Return the sets of columns that are connected with some columns, directly or through others.

    >>> connected([(0, 1), (1, 2), (4, 5)], [2])
    [(0, 1), (1, 2)]
    """
    reached, sets = set(columns), list(tables)
    while more := [table for table in sets if reached.intersection(table) and not reached.issuperset(table)]:
        reached.update(*more)
    return [table for table in sets if reached.intersection(table)]


NO_ZEROS = Zeros({})
