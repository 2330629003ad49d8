"""What metadata say about a table. Every kind of source returns the same description; it holds nothing that was read from a row."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Stored = Literal["text", "integer", "number", "boolean", "date", "datetime"]
"""How a column is stored, or what a description calls its type."""

Value = str | int | float | bool
Bound = int | float | str
"""A limit of a range: a number, or a date or a datetime as ISO 8601 text."""


def as_bound(text: str) -> Bound | None:
    """Return the limit of a range from its text: a finite number, or the text of a date; None if there is no text.

    >>> as_bound("12"), as_bound("-0.5"), as_bound("2025-01-01"), as_bound("inf"), as_bound("")
    (12, -0.5, '2025-01-01', None, None)
    """
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return text.strip() or None


@dataclass(frozen=True)
class Column:
    """One column, as far as its metadata say.

    Attributes:
        name: The name.
        stored: Its type; None if unknown.
        values: The values that can occur; None if unknown.
        others: Whether other values can occur, too.
        labels: What values stand for, for people.
        minimum: The smallest value that can occur; None if unknown.
        maximum: The largest value that can occur; None if unknown.
        step: The smallest difference between two numbers; None if unknown.
        format: The `strptime` format of dates in text; None for ISO 8601.
        nullable: Whether it may have nulls; None if unknown.
        nulls: Texts that stand for a missing value.
        about: A description for people.
        refers_to: The column of another table that its values are in; empty if unknown.
        identifies: Why its type or its constraints make it an id, such as "it is the primary key"; empty if they do not.
        unusable: Why it cannot be released, such as "it holds lists"; empty if it can.
        declared: Its complete declaration, if an earlier release has one.
    """

    name: str
    stored: Stored | None = None
    values: tuple[Value, ...] | None = None
    others: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    minimum: Bound | None = None
    maximum: Bound | None = None
    step: float | None = None
    format: str | None = None
    nullable: bool | None = None
    nulls: tuple[str, ...] = ()
    about: str = ""
    refers_to: str = ""
    identifies: str = ""
    unusable: str = ""
    declared: Mapping[str, Any] | None = None

    def filled_by(self, other: "Column") -> "Column":
        """Return this column, with what it does not know taken from another description of it."""
        facts = {key: fact for key, fact in vars(self).items() if fact is not None and fact not in ("", (), {})}
        if self.stored == "text" and other.stored is not None:
            facts["stored"] = other.stored
        # A range and a list of values belong together: one of them alone would describe another column.
        ranged = self if self.has_cells else other
        cells = {key: getattr(ranged, key) for key in ("values", "others", "minimum", "maximum")}
        return replace(other, **{**facts, **cells})

    @property
    def has_cells(self) -> bool:
        """Whether a range or values are known."""
        return any(fact is not None for fact in (self.values, self.minimum, self.maximum))


@dataclass(frozen=True)
class Description:
    """A table, as far as its metadata say.

    Attributes:
        columns: The columns, in order.
        source: The keys of the spec's `source`; None if the metadata do not say where the table is.
        sections: Other sections of the spec that an earlier release declared, such as `privacy`.
        caution: What a person must know before trusting the values and ranges; empty if nothing.
        charged: What was charged for reading rows; empty if none was read.
    """

    columns: tuple[Column, ...]
    source: Mapping[str, Any] | None = None
    sections: Mapping[str, Any] = field(default_factory=dict)
    caution: str = ""
    charged: str = ""

    def filled_by(self, other: "Description") -> "Description":
        """Return this description with what it does not know taken from another. The columns stay those of this one.

        Names are compared exactly first, and then without regard to case.
        """
        exact = {column.name: column for column in other.columns}
        loose = {column.name.casefold(): column for column in reversed(other.columns)}

        def filled(column: Column) -> Column:
            more = exact.get(column.name) or loose.get(column.name.casefold())
            return column if more is None else column.filled_by(more)

        return Description(
            columns=tuple(map(filled, self.columns)),
            source=other.source if self.source is None else self.source,
            sections=self.sections or other.sections,
            caution=" ".join(filter(None, (self.caution, other.caution))),
            charged=self.charged or other.charged,
        )
