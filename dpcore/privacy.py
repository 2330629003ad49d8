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
    """Whom a release protects: the unit, how many rows of it are kept, and what a neighbour is.

    >>> Protection(unit="patient_id", rows_per_unit=2, neighbours=Neighbours.REPLACE_ONE).sensitivity
    Sensitivity(l1=4, l2_squared=8, linf=2)
    """

    unit: str
    rows_per_unit: int
    neighbours: Neighbours

    def __post_init__(self) -> None:
        """Refuse a bound that no table could keep."""
        if self.rows_per_unit < 1:
            raise SpecError("max_rows_per_unit must be at least 1")
        if self.unit == "row" and self.rows_per_unit != 1:
            raise SpecError("a unit of one row has max_rows_per_unit 1; name the person's column as unit to keep more")

    @property
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of a histogram, or of any one marginal of it, under one neighbour step.

        Add or remove one unit: its k rows may all lie in one cell, so L1 = L2 = Linf = k. Replace one: k rows leave and k
        rows come, at worst from one cell to another, so L1 = 2k, L2 = sqrt(2) k, Linf = k.
        """
        k = self.rows_per_unit
        if self.neighbours is Neighbours.REPLACE_ONE:
            return Sensitivity(l1=2 * k, l2_squared=2 * k * k, linf=k)
        return Sensitivity(l1=k, l2_squared=k * k, linf=k)
