"""The mark that `dpflow init --from` leaves where a person must fill something in. A spec with a mark is not valid."""

from collections.abc import Iterator
from typing import Any

from dpcore.spec.document import Document, Place

MARK = "FILL_IN"

COLUMN_ADVICE = (
    "what the column holds, such as {type: integer, min: 0, max: 99}, {type: categorical, values: [F, M]}, {type: boolean}, "
    "{type: number, min: 0, max: 10, step: 0.1} or {type: date, min: 2025-01-01, max: 2026-12-31}; or remove the line"
)
_BY_KEY = {
    "values": "the values that can occur, such as [F, M], from a form or a code list; or write `values_from: codes.txt` instead, "
    "or `discover: {most: 100, length: 12, share: 0.1}` to find the frequent ones for a tenth of the budget",
    "min": "the smallest value that can occur, such as 0, known without looking at the data",
    "max": "the largest value that can occur, such as 99, known without looking at the data",
    "step": "the smallest difference between two values, such as 0.01",
    "format": 'the format of the texts, such as "%m/%d/%Y"',
    "unit": "whom to protect: row, or the column that identifies a person",
    "max_rows_per_unit": "1 if the unit is row; else how many rows of a person to keep, such as 2, or auto",
    "path": "where the table is, such as visits.csv",
    "url_env": "the environment variable that holds the database's address, such as CLINIC_DB",
    "universe": "the columns to release, such as {sex: {type: categorical, values: [F, M]}}",
}
_DAYS = {
    ("date", "min"): "the first day that can occur, such as 2025-01-01",
    ("date", "max"): "the last day that can occur, such as 2026-12-31",
    ("datetime", "min"): "the first date and time that can occur, such as 2025-01-01T00:00:00",
    ("datetime", "max"): "the last date and time that can occur, such as 2026-12-31T23:00:00",
}


def advice_for(key: str, *, kind: str | None = None) -> str:
    """Return what to write instead of the mark at a key. `kind` is the type of the column, if the key is part of one."""
    return _DAYS.get((kind or "", key)) or _BY_KEY.get(key, "a value")


def report_marks(document: Document) -> frozenset[Place]:
    """Report every mark as a mistake with what to write instead, and return their places."""
    places = frozenset(_marks(document.data, ()))
    for place in places:
        key, column = str(place[-1]), place[0] == "universe" and len(place) == 2
        part = document.data["universe"][place[1]] if place[0] == "universe" and len(place) > 2 else None
        kind = str(part.get("type")) if isinstance(part, dict) else None
        document.mistake(
            place, f"`{key}` is not filled in; write {COLUMN_ADVICE if column else advice_for(key, kind=kind)}"
        )
    return places


def _marks(data: Any, place: Place) -> Iterator[Place]:
    """Yield the places of marks. An item of a list is never a mark: a table may hold this text as a value."""
    for key, part in data.items() if isinstance(data, dict) else ():
        if part == MARK:
            yield (*place, key)
        yield from _marks(part, (*place, key))


def is_reported(place: Place, marks: frozenset[Place]) -> bool:
    """Return whether a mistake at a place follows from a mark there, around it or below it."""
    return any(place[: len(mark)] == mark or mark[: len(place)] == place for mark in marks)
