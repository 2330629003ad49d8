"""The neighbouring relation, the unit, and the sensitivities that follow from them."""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from dpcore.errors import SpecError
from dpcore.scalars import is_whole


class Neighbours(StrEnum):
    """How two neighbouring tables differ. It must be declared and has no default."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


@dataclass(frozen=True)
class Sensitivity:
    """The most that one neighbour step can move a vector of counts over disjoint cells.

    The L2 sensitivity is stored as its square, a whole number, so that no price is computed from a rounded root.
    """

    l1: int
    l2_squared: int
    linf: int


@dataclass(frozen=True)
class Protection:
    """Whom a release protects: the unit, the bound on its rows, the bound on a row's weight, and the neighbouring relation.

    >>> Protection(unit="patient_id", rows_per_unit=2, neighbours=Neighbours.REPLACE_ONE).sensitivity
    Sensitivity(l1=4, l2_squared=8, linf=2)
    >>> Protection(unit="patient_id", rows_per_unit=2, neighbours="replace-one").sensitivity
    Sensitivity(l1=4, l2_squared=8, linf=2)

    Attributes:
        unit: The column that identifies persons, or `row`.
        rows_per_unit: The most rows that are kept of a unit.
        neighbours: How two neighbouring tables differ.
        weight: The column that holds how often each row counts; None if each counts once.
        row_weight: The most that a row may count.
    """

    unit: str
    rows_per_unit: int
    neighbours: Neighbours
    weight: str | None = None
    row_weight: int = 1

    def __post_init__(self) -> None:
        """Validate the bounds and the neighbouring relation."""
        try:
            object.__setattr__(self, "neighbours", Neighbours(self.neighbours))
        except ValueError:
            raise SpecError(f"neighbours must be one of: {', '.join(Neighbours)}") from None
        for bound in (self.rows_per_unit, self.row_weight):
            if not is_whole(bound):
                raise SpecError("rows_per_unit and row_weight must be whole numbers")
        if not isinstance(self.unit, str) or not self.unit:
            raise SpecError("unit must name the column that identifies persons, or be row")
        if self.rows_per_unit < 1:
            raise SpecError("max_rows_per_unit must be at least 1")
        if self.unit == "row" and self.rows_per_unit != 1:
            raise SpecError(
                "with unit row, max_rows_per_unit must be 1; to keep more rows of a person, set unit to the id column"
            )
        if self.row_weight < 1:
            raise SpecError("the largest weight of a row must be at least 1; raise `max` of the weight")
        if self.weight == self.unit:
            raise SpecError("the weight column and the unit must be two different columns; name another weight")

    @property
    def of_one_answer(self) -> "Protection":
        """The protection of counts to which each unit adds one, whatever the number and weight of its rows.

        >>> Protection(unit="patient_id", rows_per_unit=64, neighbours=Neighbours.REPLACE_ONE).of_one_answer.sensitivity
        Sensitivity(l1=2, l2_squared=2, linf=1)
        """
        return replace(self, rows_per_unit=1, weight=None, row_weight=1)

    @property
    def most(self) -> int:
        """The most that a unit counts, with all its rows."""
        return self.rows_per_unit * self.row_weight

    @property
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of a histogram, or of any one of its marginals, under one neighbour step.

        Let m = k w, for k rows that count up to w each. Add or remove one unit: its rows may all lie in one cell, so
        L1 = L2 = Linf = m. Replace one: m leaves one cell and, at worst, m enters another, so L1 = 2m, L2 = sqrt(2) m,
        Linf = m.
        """
        return self.sensitivity_of(np.ones((1, 1), dtype=np.int64))

    @property
    def norm_sensitivity(self) -> Sensitivity:
        """Sensitivity of a marginal in which as many rows of a unit count as keep the norm of its counts h within k: sum h^2 <= k^2.

        Counts are whole, so sum h <= sum h^2 <= k^2, and no count exceeds k. Add or remove one unit: L1 = k^2, L2 = Linf = k. Replace one: the
        counts before and after are not negative, so the squared norm of their difference is at most the sum of their squared norms.

        >>> Protection(unit="patient_id", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE).norm_sensitivity
        Sensitivity(l1=18, l2_squared=18, linf=3)
        """
        k, units = self.most, 2 if self.neighbours is Neighbours.REPLACE_ONE else 1
        return Sensitivity(l1=units * k * k, l2_squared=units * k * k, linf=k)

    def sensitivity_of(self, weights: npt.NDArray[np.int64]) -> Sensitivity:
        """Sensitivity of sums of whole weights over disjoint groups of rows: a row of value v adds weights[v] to the numbers of its group.

        A histogram has one value of weight 1. What a unit adds is m times an average of weights[v], each in its group, and of 0. Norms are
        convex, so the worst unit has all its rows in one group, with one value. Add or remove one unit: m times the largest norm of
        weights[v]. Replace one: the rows before and after are in two groups, where squares add up to twice the largest, or in one. Then
        each number moves by at most m times the range of its weights and 0, and the norm at most doubles.
        """
        m, sizes = self.most, np.abs(weights)
        l1, squares, linf = int(sizes.sum(axis=1).max()), int((sizes**2).sum(axis=1).max()), int(sizes.max())
        if self.neighbours is Neighbours.REPLACE_ONE:
            ranges = np.maximum(weights.max(axis=0), 0) - np.minimum(weights.min(axis=0), 0)
            l1, linf = 2 * l1, int(ranges.max())
            squares = max(2 * squares, min(4 * squares, int((ranges**2).sum())))
        return Sensitivity(l1=m * l1, l2_squared=m * m * squares, linf=m * linf)

    @property
    def count_sensitivity(self) -> Sensitivity:
        """Sensitivity of one count, such as the total. It moves by at most what a unit counts, under either relation."""
        m = self.most
        return Sensitivity(l1=m, l2_squared=m * m, linf=m)
