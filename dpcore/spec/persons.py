"""The part of a spec that keeps the rows of one synthetic person together."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import Field, field_validator

from dpcore.spec.document import Document
from dpcore.spec.marks import MARK
from dpcore.spec.parts import Share, SpecPart

MOST_ROWS_OF_ONE = 256
"""The highest limit on the rows of a person whose rows are kept together."""


class PersonsSpec(SpecPart):
    """A synthetic id for each row, so that the rows of one synthetic person stay together."""

    rows_of: Annotated[str, Field(min_length=1)] = Field(
        description="the column that identifies a person, which must be the `unit`; it is released with synthetic ids"
    )
    constant: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (),
        description="the columns that have one value for each person, such as [sex, birth_year]; if kept rows of a person differ in one, "
        "the value of one of them, chosen at random, counts for all",
    )
    share: Share = Field(
        0.1,
        description="the share of the budget for learning how many rows persons have; less is enough if there are many persons",
    )

    @field_validator("constant")
    @classmethod
    def _different(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        for column in columns:
            if columns.count(column) > 1:
                raise ValueError(f"names `{column}` twice; name each column once")
        return columns


def check_persons(document: Document, columns: Collection[str]) -> None:
    """Report persons that do not fit the rest of the spec, on the raw document, so that all mistakes are reported together."""
    persons, privacy = document.section("persons"), document.section("privacy")
    if not persons or not privacy:
        return
    _check_unit(document, persons.get("rows_of"), privacy)
    if privacy.get("weight") is not None:
        document.mistake(
            ("persons",),
            "rows with a `weight` count several times and cannot be kept together by person; remove `persons`, or the weight",
        )
    constant = persons.get("constant")
    for place, name in enumerate(constant if isinstance(constant, list) else ()):
        if isinstance(name, str) and name not in columns:
            close = get_close_matches(name, columns, n=1)
            hint = f"did you mean `{close[0]}`?" if close else "declare it there, or remove it from `constant`"
            document.mistake(("persons", "constant", place), f"`{name}` is not in the universe; {hint}")


def _check_unit(document: Document, rows_of: Any, privacy: dict[str, Any]) -> None:
    """Report a person who is not the protected unit: the price of the learned sizes would be too low."""
    unit, place = privacy.get("unit"), ("persons", "rows_of")
    if not isinstance(rows_of, str) or not isinstance(unit, str) or MARK in {rows_of, unit}:
        return
    if unit == "row":
        document.mistake(
            place,
            f"`rows_of` needs persons as the unit; write `unit: {rows_of}` and `max_rows_per_unit` in `privacy`",
        )
    elif rows_of != unit:
        document.mistake(place, f"`rows_of` must name the unit, which is `{unit}`; write the same column in both")
    elif isinstance(privacy.get("max_rows_per_unit"), int) and privacy["max_rows_per_unit"] > MOST_ROWS_OF_ONE:
        document.mistake(
            ("privacy", "max_rows_per_unit"),
            f"`persons` can keep at most {MOST_ROWS_OF_ONE} rows of a person together; write a smaller `max_rows_per_unit`, which also lowers all noise",
        )
    elif privacy.get("max_rows_per_unit") == 1:
        document.mistake(
            ("privacy", "max_rows_per_unit"),
            "`max_rows_per_unit: 1` leaves each person one row, so there is nothing to keep together; keep more rows, or remove `persons`",
        )
