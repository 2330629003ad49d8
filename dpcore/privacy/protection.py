"""What is protected: the neighbouring relation, the unit, and the sensitivities that follow from them."""

from dataclasses import dataclass
from enum import StrEnum

from dpcore.errors import SpecError


class Neighbours(StrEnum):
    """How two neighbouring tables differ. It is declared, and has no default."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


@dataclass(frozen=True)
class Sensitivity:
    """How far one neighbour step can move a vector of counts over disjoint cells.

    The L2 sensitivity is kept as its square, which is a whole number, so that no price is ever computed from a rounded root.
    """

    l1: int
    l2_squared: int
    linf: int


@dataclass(frozen=True)
class Protection:
    """Whom a release protects: the unit, how many rows of it are kept, how much one row counts at most, and what a neighbour is.

    >>> Protection(unit="patient_id", rows_per_unit=2, neighbours=Neighbours.REPLACE_ONE).sensitivity
    Sensitivity(l1=4, l2_squared=8, linf=2)
    >>> Protection(unit="patient_id", rows_per_unit=2, neighbours="replace-one").sensitivity
    Sensitivity(l1=4, l2_squared=8, linf=2)

    Attributes:
        unit: The column that tells persons apart, or `row`.
        rows_per_unit: How many rows of a unit are kept.
        neighbours: How two neighbouring tables differ.
        weight: The column that says how often each row counts; None if each counts once.
        row_weight: How often a row counts at most.
    """

    unit: str
    rows_per_unit: int
    neighbours: Neighbours
    weight: str | None = None
    row_weight: int = 1

    def __post_init__(self) -> None:
        """Refuse a bound that no table could keep, and a relation that there is not."""
        try:
            object.__setattr__(self, "neighbours", Neighbours(self.neighbours))
        except ValueError:
            raise SpecError(f"neighbours must be one of: {', '.join(Neighbours)}") from None
        for bound in (self.rows_per_unit, self.row_weight):
            if isinstance(bound, bool) or not isinstance(bound, int):
                raise SpecError("how many rows a unit keeps, and how much one counts at most, are whole numbers")
        if not isinstance(self.unit, str) or not self.unit:
            raise SpecError("unit must name the column that tells persons apart, or be row")
        if self.rows_per_unit < 1:
            raise SpecError("max_rows_per_unit must be at least 1")
        if self.unit == "row" and self.rows_per_unit != 1:
            raise SpecError("a unit of one row has max_rows_per_unit 1; name the person's column as unit to keep more")
        if self.row_weight < 1:
            raise SpecError("the most that a row may count must be at least 1")
        if self.weight == self.unit:
            raise SpecError("the column that weighs a row can't be the one that tells whose it is; name two columns")

    @property
    def most(self) -> int:
        """How much a unit counts at most, with all its rows."""
        return self.rows_per_unit * self.row_weight

    @property
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of a histogram, or of any one marginal of it, under one neighbour step.

        With m = k w, for k rows that count up to w each. Add or remove one unit: its rows may all lie in one cell, so
        L1 = L2 = Linf = m. Replace one: as much leaves and as much comes, at worst from one cell to another, so L1 = 2m,
        L2 = sqrt(2) m, Linf = m.
        """
        m = self.most
        if self.neighbours is Neighbours.REPLACE_ONE:
            return Sensitivity(l1=2 * m, l2_squared=2 * m * m, linf=m)
        return Sensitivity(l1=m, l2_squared=m * m, linf=m)

    @property
    def count_sensitivity(self) -> Sensitivity:
        """Sensitivity of one count, such as the total: it moves by at most what a unit counts, under either relation."""
        m = self.most
        return Sensitivity(l1=m, l2_squared=m * m, linf=m)
