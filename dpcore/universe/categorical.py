"""Attributes without an order: declared categories, and booleans."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from functools import cached_property
from math import inf, isfinite, isnan
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute, Codes, Outside, is_unicode

Category = str | int | float | bool


def canonical(value: object) -> str | None:  # noqa: PLR0911  a table, one line for each type
    """Return the canonical text by which categories are compared; empty for a null, None if the value has no such text.

    >>> canonical(True), canonical(7), canonical(7.0), canonical(0.5), canonical("7.0")
    ('true', '7', '7', '0.5', '7.0')
    """
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case float():
            return _canonical_float(float(value))
        case Decimal():
            return _canonical_decimal(value)
        case date() | time():
            return value.isoformat()
        case _:
            return None


def _canonical_float(value: float) -> str:
    if isnan(value):
        return ""
    return str(int(value)) if isfinite(value) and value.is_integer() else repr(value)


def _canonical_decimal(value: Decimal) -> str | None:
    if abs(value.adjusted()) > 400:
        return None  # no such number can be declared, and its digits could exhaust memory
    if value == value.to_integral_value():
        return str(int(value))
    nearest = float(value)
    if Decimal(repr(nearest)) == value:
        return _canonical_float(nearest)
    return f"{value:f}".rstrip("0")


class _Unordered(Attribute):
    """The base of attributes without an order, which cannot be clipped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outside is Outside.CLIP:
            raise SpecError("categories have no order to clip to: declare outside as other or drop")


@dataclass(frozen=True)
class Categorical(_Unordered):
    """A declared list of categories.

    Declared values and data are compared by their canonical text: a declared 1 matches the whole number 1, the float 1.0 and the text "1".
    A declared number also matches any other text that spells it, such as "1.0". Blanks at the ends of a text do not matter, unless two declared
    values differ in them alone, or the values are `exact`.

    With `prefixes`, an undeclared value belongs to its longest declared prefix.

    If all declared values have one Python type, the release keeps it. Text and mixed types are released as dictionary-encoded text.

    >>> Categorical(("F", "M", 1.0), missing=True).labels
    ('F', 'M', '1', 'missing')
    """

    values: tuple[Category, ...]
    prefixes: bool = field(default=False, kw_only=True)
    exact: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Reject an empty list, duplicates, and values that equal a null."""
        super().__post_init__()
        if isinstance(self.values, str):
            raise SpecError("the values of a categorical attribute must be a list of categories, not one text")
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise SpecError("a categorical attribute needs at least one value")
        for value in self.values:
            _refuse_unusable(value)
        if len(set(self._texts)) < len(self._texts):
            raise SpecError(
                "the values of a categorical attribute must differ, also when written as text: remove duplicates"
            )
        self._refuse_null_values()

    def _refuse_null_values(self) -> None:
        for text in self.nulls:
            if text.strip() in self.cells_by_text:
                raise SpecError(f"{text!r} is declared both as a value and as a null: remove one of the two")

    @property
    def cells(self) -> int:
        """Number of declared categories."""
        return len(self.values)

    @property
    def other_cell(self) -> int | None:
        """Code of undeclared values. If the text `other` is declared, its cell is used."""
        if self.outside is Outside.OTHER and "other" in self._texts:
            return self._texts.index("other")
        return super().other_cell

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column in a release: that of the values if they share one type, else dictionary-encoded text."""
        types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
        return types.get(self._kinds[0], _TEXT_TYPE) if len(set(self._kinds)) == 1 else _TEXT_TYPE

    @cached_property
    def _kinds(self) -> tuple[type, ...]:
        """The plain type of each value. bool is tried first, because a boolean is also an int."""
        return tuple(next(kind for kind in (bool, int, float, str) if isinstance(value, kind)) for value in self.values)

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(canonical(value) or "" for value in self.values)

    @cached_property
    def cells_by_text(self) -> dict[str | None, int]:
        """The cell of each declared text, and of those without blanks around them that only one declared text has."""
        declared: dict[str | None, int] = {text: cell for cell, text in enumerate(self._texts)}
        if self.exact:
            return declared
        trimmed = Counter(text.strip() for text in self._texts)
        alone: dict[str | None, int] = {
            text.strip(): cell for cell, text in enumerate(self._texts) if text.strip() and trimmed[text.strip()] == 1
        }
        return alone | declared

    @cached_property
    def cells_by_number(self) -> dict[str | None, int]:
        """The cell of each declared number, by its canonical text."""
        declared = zip(self._texts, self._kinds, strict=True)
        return {text: self.cells_by_text[text] for text, kind in declared if kind in (int, float)}

    @cached_property
    def prefix_lengths(self) -> tuple[int, ...]:
        """The lengths of declared prefixes, longest first, that an undeclared text is cut to; empty without `prefixes`."""
        return tuple(sorted({len(text) for text in self._texts}, reverse=True)) if self.prefixes else ()

    @property
    def longest(self) -> float:
        """The length up to which a text may have a declared prefix."""
        return inf

    def _cell_labels(self) -> tuple[str, ...]:
        return self._texts

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:  # noqa: ARG002  nothing to draw: one value a cell
        return np.array(self.values)[cells]

    def decode(self, codes: npt.NDArray[np.integer[Any]], rng: np.random.Generator) -> pa.Array:
        """Return each code's category. `other` becomes the text "other" in a text column and null elsewhere; `missing` becomes null."""
        if self.arrow_type != _TEXT_TYPE:
            return super().decode(codes, rng)
        checked = self._checked(codes)
        named = self.size - self.missing
        indices = pa.array(checked, type=pa.int32(), mask=checked >= named)
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.labels[:named], type=pa.string()))


@dataclass(frozen=True, kw_only=True)
class Stems(Categorical):
    """Prefixes of texts as categories, which one level of a descent through the prefix tree counts.

    Declared texts have up to `depth` characters. Those of exactly `depth` characters also match every longer text that begins with them.
    A shorter text matches only itself. Texts longer than `length` are undeclared, so at `depth` equal to `length` every declared text
    matches only itself.
    """

    depth: int
    length: int

    def __post_init__(self) -> None:
        """Reject stems longer than `depth`, and a `depth` beyond `length`."""
        super().__post_init__()
        if not 1 <= self.depth <= self.length or any(len(text) > self.depth for text in self._texts):
            raise SpecError(
                "`depth` must be from 1 to `length`, and no stem may have more than `depth` characters: raise `depth`, or shorten the stems"
            )

    def _refuse_null_values(self) -> None:
        """Allow a stem that equals a text for null, since it also matches longer texts that begin with it."""

    @property
    def prefix_lengths(self) -> tuple[int, ...]:
        """The depth, to which a longer text is cut."""
        return (self.depth,)

    @property
    def longest(self) -> float:
        """The length up to which a text may continue a stem."""
        return self.length


@dataclass(frozen=True)
class Boolean(_Unordered):
    """True or false. Text may say true, t, yes, y, 1 or false, f, no, n, 0, in any case."""

    @property
    def cells(self) -> int:
        """Two: false, then true."""
        return 2

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column in a release."""
        return pa.bool_()

    def _cell_labels(self) -> tuple[str, ...]:
        return ("false", "true")

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:  # noqa: ARG002  nothing to draw: one value a cell
        return np.array([False, True])[cells]


_TEXT_TYPE = pa.dictionary(pa.int32(), pa.string())


def _refuse_unusable(value: object) -> None:
    if not isinstance(value, str | int | float):
        raise SpecError(
            "categories are text, numbers or booleans: write anything else, such as a date, as text in quotes"
        )
    if value == "":
        raise SpecError("an empty text is a null: declare missing: true instead of an empty category")
    if isinstance(value, str) and not is_unicode(value):
        raise SpecError("a category is not valid Unicode text: write it as UTF-8")
    if isinstance(value, float) and not isfinite(value):
        raise SpecError("a category must be a finite number: declare missing: true for NaN, and infinity as text")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise SpecError("a whole number as category must fit in 64 bits: write a longer one as text in quotes")
