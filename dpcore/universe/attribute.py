"""What every column of a universe is: declared cells, and a declared answer to whatever else is in the data."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError, UsageError
from dpcore.universe import reading
from dpcore.universe.codes import SignedCodes, signed_type
from dpcore.universe.column import place_column
from dpcore.universe.nulls import checked_nulls, named_nulls
from dpcore.universe.places import NULL, Places

Codes = npt.NDArray[np.int64]

MAX_CELLS = 10_000_000
DROPPED = -1


class Outside(StrEnum):
    """What becomes of a value that is in no declared cell."""

    CLIP = "clip"
    OTHER = "other"
    DROP = "drop"


@dataclass(frozen=True, kw_only=True)
class Attribute(ABC):
    """One column of the universe, declared before any data is seen.

    Its codes are 0 .. cells - 1 for the declared cells, then one for `other` if `outside` says so, then one for
    `missing` if nulls are declared. `encode` is total, and each row's code depends on that row alone:

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
        """Refuse a policy that does not exist, and texts that could not be told from values."""
        object.__setattr__(self, "nulls", checked_nulls(self.nulls))
        if not isinstance(self.outside, Outside):
            raise SpecError("outside must be one of Outside.CLIP, Outside.OTHER, Outside.DROP")

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of declared cells, without those for other and missing."""

    @property
    @abstractmethod
    def ordered(self) -> bool:
        """Whether the declared cells follow one another, so that ranges of them make sense."""

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """Type of the column in a release."""

    @abstractmethod
    def _reads(self, kind: pa.DataType) -> bool:
        """Tell whether some value of a flat type could be in a declared cell."""

    @abstractmethod
    def _cell_labels(self) -> tuple[str, ...]:
        """One public text for each declared cell."""

    @abstractmethod
    def _place(self, array: pa.Array) -> Places:
        """Place the values of a flat array, each by itself; see `place_column`."""

    @abstractmethod
    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Draw a value uniformly from each of the declared cells given."""

    @property
    def other_cell(self) -> int | None:
        """Code of whatever is not declared, if it has one."""
        return self.cells if self.outside is Outside.OTHER else None

    @property
    def missing_cell(self) -> int | None:
        """Code of null, if it is declared."""
        return self.size - 1 if self.missing else None

    @property
    def size(self) -> int:
        """Number of codes, with those for other and missing."""
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
        """Tell whether a column of this Arrow type can hold values of this attribute at all.

        A column of another type would be encoded as well, by the policy for what is not readable; but every row alike, which nobody
        wants to pay for.
        """
        flat = reading.flat(kind)
        return bool(pa.types.is_null(flat)) or self._reads(flat)

    def encode(self, column: pa.Array | pa.ChunkedArray) -> SignedCodes:
        """Give each row of a private column its code, or -1 for a row to drop; never raises, never tells."""
        codes = place_column(column, self._place_or_null).astype(signed_type(self.size), copy=False)
        # A cell is its own code. The other places are replaced one by one, null first: what is dropped becomes -1, as a null was before.
        for place in range(NULL, int(codes.min(initial=0)) - 1, -1):
            np.putmask(codes, codes == place, self._policy()[place])
        return codes

    def _place_or_null(self, array: pa.Array) -> Places:
        places = self._place(array).astype(signed_type(self.size), copy=False)
        if self.nulls:
            places[named_nulls(array, self.nulls)] = NULL
        return places

    def decode(self, codes: npt.NDArray[np.integer[Any]], rng: np.random.Generator) -> pa.Array:
        """Draw a value from each code's cell, uniformly; missing, and an `other` that has no text, become null."""
        checked = self._checked(codes)
        inside = checked < self.cells
        values = self._draw(np.where(inside, checked, 0), rng)
        return pa.array(values, type=self.arrow_type, mask=~inside)

    def _checked(self, codes: npt.NDArray[np.integer[Any]]) -> Codes:
        checked = np.asarray(codes, dtype=np.int64)
        if checked.size and (checked.min() < 0 or checked.max() >= self.size):
            raise UsageError(
                f"codes of this attribute go from 0 to {self.size - 1}; decode only what encode kept or a model drew"
            )
        return checked

    def _policy(self) -> Codes:
        """Codes of the four places without a cell: ALIEN, ABOVE, BELOW, NULL."""
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
    """Refuse an attribute so fine that no model could hold even its own marginal."""
    if cells > MAX_CELLS:
        raise SpecError(f"one attribute may have at most {MAX_CELLS} cells, this has {cells}: declare wider bins")
