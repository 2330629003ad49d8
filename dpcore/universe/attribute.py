"""The base class of all columns of a universe: declared cells, and a declared policy for all other values."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError, UsageError
from dpcore.universe import reading
from dpcore.universe.column import place_column
from dpcore.universe.nulls import checked_nulls, named_nulls
from dpcore.universe.places import NULL, Places, SignedCodes, signed_type

Codes = npt.NDArray[np.int64]

MAX_CELLS = 10_000_000
DROPPED = -1


class Outside(StrEnum):
    """The policy for a value that lies in no declared cell."""

    CLIP = "clip"
    OTHER = "other"
    DROP = "drop"


@dataclass(frozen=True, kw_only=True)
class Attribute(ABC):
    """One column of the universe, declared before any data is seen.

    The codes are 0 .. cells - 1 for the declared cells, then one for `other` if `outside` is OTHER, then one for `missing` if nulls are
    declared. `encode` is total, and each row's code depends on that row alone:

    | value | clip | other | drop |
    |---|---|---|---|
    | null (None, NaN, empty text, one of `nulls`), `missing` declared | missing | missing | missing |
    | below or above the bounds | first or last cell | other | dropped |
    | not readable as this type, or null without `missing` | missing if declared, else dropped | other | dropped |
    """

    missing: bool = False
    outside: Outside = Outside.DROP
    nulls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject an unknown policy, and texts for null that are ambiguous."""
        object.__setattr__(self, "nulls", checked_nulls(self.nulls))
        if not isinstance(self.outside, Outside):
            raise SpecError("outside must be one of Outside.CLIP, Outside.OTHER, Outside.DROP")

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of declared cells, without those for `other` and `missing`."""

    @property
    @abstractmethod
    def ordered(self) -> bool:
        """Whether the declared cells are ordered, so that ranges of them make sense."""

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """Type of the column in a release."""

    @abstractmethod
    def _reads(self, kind: pa.DataType) -> bool:
        """Return whether some value of a flat type could lie in a declared cell."""

    @abstractmethod
    def _cell_labels(self) -> tuple[str, ...]:
        """Return one public text for each declared cell."""

    @abstractmethod
    def _place(self, array: pa.Array) -> Places:
        """Return the place of each value of a flat array, independently of the others; see `place_column`."""

    @abstractmethod
    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return a value of each of the given declared cells: drawn from it, or its first moment in bins of the calendar."""

    @property
    def other_cell(self) -> int | None:
        """Code of undeclared values, if they have one."""
        return self.cells if self.outside is Outside.OTHER else None

    @property
    def missing_cell(self) -> int | None:
        """Code of nulls, if they are declared."""
        return self.size - 1 if self.missing else None

    @property
    def size(self) -> int:
        """Number of codes, including those for `other` and `missing`."""
        return self.cells + (self.other_cell == self.cells) + self.missing

    @property
    def labels(self) -> tuple[str, ...]:
        """One public text for each code, all different."""
        labels = self._cell_labels()
        if self.other_cell == self.cells:
            labels += ("other",)
        if self.missing:
            label = "missing"
            while label in labels:
                label = f"({label})"
            labels += (label,)
        return labels

    def reads(self, kind: pa.DataType) -> bool:
        """Return whether a column of this Arrow type can hold values of this attribute.

        `encode` accepts any other type too, but treats every row as unreadable. A release of such a column would waste its budget.
        """
        flat = reading.flat(kind)
        return bool(pa.types.is_null(flat)) or self._reads(flat)

    def encode(self, column: pa.Array | pa.ChunkedArray) -> SignedCodes:
        """Return the code of each row of a private column, or -1 for a row to drop. Never raises or logs."""
        codes = place_column(column, self._place_or_null).astype(signed_type(self.size), copy=False)
        # A cell's place is its code. The other places are replaced one by one. NULL comes first, because a dropped row gets -1 too.
        for place in range(NULL, int(codes.min(initial=0)) - 1, -1):
            np.putmask(codes, codes == place, self._policy()[place])
        return codes

    def _place_or_null(self, array: pa.Array) -> Places:
        places = self._place(array).astype(signed_type(self.size), copy=False)
        if self.nulls:
            places[named_nulls(array, self.nulls)] = NULL
        return places

    def decode(self, codes: npt.NDArray[np.integer[Any]], rng: np.random.Generator) -> pa.Array:
        """Draw a value from each code's cell. `missing`, and an `other` that has no text, become null."""
        checked = self._checked(codes)
        inside = checked < self.cells
        values = self._draw(np.where(inside, checked, 0), rng)
        return pa.array(values, type=self.arrow_type, mask=~inside)

    def _checked(self, codes: npt.NDArray[np.integer[Any]]) -> Codes:
        checked = np.asarray(codes, dtype=np.int64)
        if checked.size and (checked.min() < 0 or checked.max() >= self.size):
            raise UsageError(
                f"codes of this attribute go from 0 to {self.size - 1}; decode only codes that encode kept or a model drew"
            )
        return checked

    def _policy(self) -> Codes:
        """Return the codes of the four places outside all cells: ALIEN, ABOVE, BELOW, NULL."""
        missing = DROPPED if self.missing_cell is None else self.missing_cell
        if self.other_cell is not None:
            below = above = alien = self.other_cell
        elif self.outside is Outside.CLIP:
            below, above, alien = 0, self.cells - 1, missing
        else:
            below = above = alien = DROPPED
        null = missing if self.missing else alien
        return np.array([alien, above, below, null], dtype=np.int64)


def refuse_too_many_cells(cells: int) -> None:
    """Reject an attribute with too many cells for a model to hold even its own marginal."""
    if cells > MAX_CELLS:
        raise SpecError(f"one attribute may have at most {MAX_CELLS} cells, this has {cells}: declare wider bins")
