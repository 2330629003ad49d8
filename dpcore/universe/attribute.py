"""The base class of all columns of a universe: declared cells, and a declared policy for all other values."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError, UsageError

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CompactCodes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Codes of rows that are kept."""

MAX_CELLS = 10_000_000
MOST_NULL_LETTERS = 100_000  # of all texts that count as null, which are looked for by one pattern
DROPPED = -1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = EPOCH.toordinal()
DAY = 86_400
"""Seconds in a day."""


class Outside(StrEnum):
    """The policy for a value that lies in no declared cell."""

    CLIP = "clip"
    OTHER = "other"
    DROP = "drop"


@dataclass(frozen=True, kw_only=True)
class Attribute(ABC):
    """One column of the universe, declared before any data is seen.

    The codes are 0 .. cells - 1 for the declared cells, then one for `other` if `outside` is OTHER, then one for `missing` if nulls are
    declared. Each row's code depends on that row alone:

    | value | clip | other | drop |
    |---|---|---|---|
    | null (None, NaN, empty text, one of `nulls`), `missing` declared | missing | missing | missing |
    | below or above the bounds | first or last cell | other | dropped |
    | not readable as this type, or null without `missing` | missing if declared, else dropped | other | dropped |
    """

    missing: bool = False
    outside: Outside = Outside.DROP
    nulls: tuple[str, ...] = ()

    @property
    def policy(self) -> dict[str, Any]:
        """What is declared for all values without a cell, by the names of these fields."""
        return {"missing": self.missing, "outside": self.outside, "nulls": self.nulls}

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
    def ordered(self) -> bool:
        """Whether the declared cells are ordered, so that ranges of them make sense."""
        return isinstance(self, Ordered)

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """Type of the column in a release."""

    def _cell_labels(self) -> tuple[str, ...]:
        """Return one public text for each declared cell."""
        raise UsageError("the cells of this column are counted, not released, so they have no names; report this")

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return a value of each of the given declared cells: drawn from it, or its first moment in bins of the calendar."""
        del cells, rng
        raise UsageError("the cells of this column are counted, not released; draw from the column itself")

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

    @property
    def outside_codes(self) -> tuple[int, int, int, int]:
        """The codes of a value that is unreadable, above the bounds, below them, and null: by the marks of `dpcore.tables.reading.places`."""
        missing = DROPPED if self.missing_cell is None else self.missing_cell
        if self.other_cell is not None:
            below = above = alien = self.other_cell
        elif self.outside is Outside.CLIP:
            below, above, alien = 0, self.cells - 1, missing
        else:
            below = above = alien = DROPPED
        return alien, above, below, missing if self.missing else alien

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
                f"codes of this attribute go from 0 to {self.size - 1}; decode only codes of kept rows, or that a model drew"
            )
        return checked


@dataclass(frozen=True, kw_only=True)
class Ordered(Attribute):
    """A column of numbers, days or moments, in ascending cells."""

    outside: Outside = field(default=Outside.CLIP)

    @property
    @abstractmethod
    def bin_bounds(self) -> Floats:
        """Cell i holds the numbers from bound i to before the next one. Days and moments are seconds since 1970."""

    @property
    def cells(self) -> int:
        """Number of bins."""
        return len(self.bin_bounds) - 1


def refuse_too_many_cells(cells: int) -> None:
    """Reject an attribute with too many cells for a model to hold even its own marginal."""
    if cells > MAX_CELLS:
        raise SpecError(f"one attribute may have at most {MAX_CELLS} cells, this has {cells}: declare wider bins")


def checked_nulls(texts: Sequence[str]) -> tuple[str, ...]:
    """Return texts that count as null. Raise if they are not distinct, or cannot occur in a table."""
    if isinstance(texts, str) or any(not isinstance(text, str) for text in texts):
        raise SpecError("the texts that count as null must be a list of texts: put quotes around numbers")
    plain = [text.strip() for text in texts]
    if sum(map(len, plain)) > MOST_NULL_LETTERS:
        raise SpecError(
            "the texts that count as null are too many or too long; declare those that occur, or make them null before"
        )
    if "" in plain:
        raise SpecError("an empty text is a null anyway: remove it from the texts that count as null")
    if len(set(plain)) < len(plain):
        raise SpecError("the texts that count as null must differ: remove duplicates")
    if not all(map(is_unicode, plain)):
        raise SpecError("a text that counts as null is not valid Unicode: write it as UTF-8")
    return tuple(texts)


def is_unicode(text: str) -> bool:
    """Return whether a text can be written as UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def code_type(size: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type for the codes of an attribute with `size` codes.

    >>> code_type(256), code_type(257)
    (<class 'numpy.uint8'>, <class 'numpy.uint16'>)
    """
    kind: type[np.unsignedinteger[Any]] = np.min_scalar_type(max(size, 1) - 1).type
    return kind
