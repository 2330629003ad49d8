"""Turn a description into the draft of a spec: declare what is known, mark what is not, leave out what identifies people."""

import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpcore.errors import SpecError
from dpcore.spec.advice import FEW_CELLS, looks_like_id, names_unit
from dpcore.spec.marks import MARK
from dpcore.spec.numbers import LARGEST_WHOLE
from dpcore.spec.parts import LONGEST_PROSE
from dpcore.spec.sentences import KINDS
from dpcore.spec.source import SourceSpec
from dpcore.starter.description import Bound, Column, Description, Value
from dpcore.universe.attribute import checked_nulls
from dpcore.universe.formats import checked_format

LEAST_STEPS, MOST_STEPS = 10**4, 10**6
"""Of the range of a number whose metadata give no step."""

MOST_COLUMNS = 5000
MOST_VALUES = 1000
"""Longer lists belong in a file of their own."""

LOOKS_LIKE_ID = "it looks like an id"
_LAST_WORD_OF_IDS = re.compile(
    r"(?:^|[^A-Za-z])(?i:nbr|nr|key|pk|ref|hash|number)$|[a-z](?:Nbr|Nr|Key|Ref|Hash|Number)$"
)
_WHOLE = re.compile(r"-?\d{1,15}")


@dataclass(frozen=True)
class Entry:
    """One column of the draft.

    Attributes:
        name: The column.
        declaration: Its keys, some of which may be marked; none if nothing is known.
        about: Sentences about it, for people.
        described: Whether the first of them can be its `description`, which a release repeats. The others are only comments.
        left_out: Why it is not declared; empty if it is.
    """

    name: str
    declaration: Mapping[str, Any]
    about: tuple[str, ...] = ()
    described: bool = False
    left_out: str = ""

    @property
    def marked(self) -> tuple[str, ...]:
        """The keys that must be filled in; the empty key stands for the whole declaration."""
        return tuple(key for key, part in self.declaration.items() if part == MARK) if self.declaration else ("",)

    @property
    def kind(self) -> str | None:
        """The type of the column; None if it is unknown."""
        return self.declaration.get("type")


@dataclass(frozen=True)
class Draft:
    """A spec in the making: sections as plain keys, and the columns as entries.

    Attributes:
        dataset: The dataset's name.
        origin: The names of the metadata.
        description: What they say.
        source: The keys of `source`.
        privacy: The keys of `privacy`.
        entries: The columns.
    """

    dataset: str
    origin: str
    description: Description
    source: Mapping[str, Any]
    privacy: Mapping[str, Any]
    entries: tuple[Entry, ...]

    @property
    def declared(self) -> tuple[Entry, ...]:
        """The columns that are not left out."""
        return tuple(entry for entry in self.entries if not entry.left_out)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The columns that may be the protected unit: ids by their names, which nothing else that is known of them contradicts."""
        ids = (entry.name for entry in self.entries if entry.left_out.startswith(LOOKS_LIKE_ID))
        return tuple(filter(names_unit, ids))


def with_unit(draft: Draft, unit: str) -> Draft:
    """Return the draft with the protected unit: `row`, or a column, which is left out of the release."""
    rest = {key: part for key, part in draft.privacy.items() if key not in {"unit", "max_rows_per_unit"}}
    limit = {} if unit == "row" else {"max_rows_per_unit": MARK}
    entries = tuple(
        replace(entry, left_out="it identifies the unit") if entry.name == unit else entry for entry in draft.entries
    )
    return replace(draft, privacy={"unit": unit, **limit, **rest}, entries=entries)


def draft_of(description: Description, *, dataset: str, origin: str, unit: str | None = None) -> Draft:
    """Return the draft of a spec.

    Args:
        description: What is known of the table.
        dataset: The dataset's name.
        origin: The names of the metadata, for the comment at the top.
        unit: The protected unit, if it is known: `row`, or a column.
    """
    if len(description.columns) > MOST_COLUMNS:
        raise SpecError(
            f"{origin}: describes {len(description.columns):,} columns, more than {MOST_COLUMNS:,}; describe only those to release"
        )
    names = Counter(column.name for column in description.columns)
    entries = tuple(_entry(column, twice=names[column.name] > 1) for column in description.columns)
    draft = Draft(dataset, origin, description, _source(description), {}, entries)
    draft = replace(draft, privacy=_privacy(description, draft))
    return draft if unit is None else with_unit(draft, unit)


def _privacy(description: Description, draft: Draft) -> Mapping[str, Any]:
    privacy: Mapping[str, Any] | None = description.sections.get("privacy")
    if privacy is not None:
        return privacy if privacy["unit"] == "row" else {"unit": privacy["unit"], "max_rows_per_unit": MARK, **privacy}
    limit = {"max_rows_per_unit": MARK} if draft.candidates else {}
    return {"unit": MARK, **limit, "neighbours": "add-remove", "epsilon": 1.0, "delta": 1e-9}


def _source(description: Description) -> Mapping[str, Any]:
    source = description.source
    if source is None:
        return {"path": MARK}
    source = {key: MARK if part is None else part for key, part in source.items()}
    try:
        SourceSpec.model_validate({key: "UNSET" if part == MARK else part for key, part in source.items()})
    except ValidationError:
        return {"path": MARK}
    return source


def _entry(column: Column, *, twice: bool) -> Entry:
    declaration, problem = _declaration(column)
    about = [column.about] if column.about else []
    if column.refers_to:
        about.append(f"(refers to {column.refers_to})")
    if column.labels and declaration:
        about.append("; ".join(f"{code} {label}" for code, label in column.labels.items()))
    if column.values is not None and len(column.values) > MOST_VALUES:
        about.append(
            f"Its metadata list {len(column.values):,} values; put them into a file for `values_from`, one on each line."
        )
    if problem:
        about.append(problem)
    left_out = _why_left_out(column, declaration, twice=twice)
    return Entry(column.name, declaration, tuple(about), _is_description(column), left_out)


def _is_description(column: Column) -> bool:
    """Return whether a spec can hold what the metadata say about a column as its `description`, and has none yet."""
    text = plain(column.about)
    return bool(text) and text != MARK and len(text) <= LONGEST_PROSE and column.declared is None


def plain(text: str) -> str:
    """Return a text in one line, without characters that cannot be printed."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _why_left_out(column: Column, declaration: Mapping[str, Any], *, twice: bool) -> str:
    if not column.name or twice:
        return "its name occurs twice; give every column its own name" if column.name else "it has no name"
    if column.unusable:
        return f"{column.unusable}, which cannot be released; to release it, store it as text, a number or a date"
    if column.declared is not None:
        return ""
    if column.identifies:
        return f"{LOOKS_LIKE_ID}: {column.identifies}"
    if _has_few_cells(declaration) or column.stored in {"date", "datetime", "boolean"}:
        return ""
    is_id = names_unit(column.name) or _LAST_WORD_OF_IDS.search(column.name)
    named = "it may identify people, by its name" if looks_like_id(column.name) else ""
    return f"{LOOKS_LIKE_ID}: it has the name of one" if is_id else named


def _has_few_cells(declaration: Mapping[str, Any]) -> bool:
    """Return whether a column is known to have so few values that it cannot identify people, whatever its name."""
    if not declaration or MARK in declaration.values():
        return False
    values = declaration.get("values")
    if values is not None:
        return len(values) < FEW_CELLS
    return declaration["type"] == "integer" and bool(declaration["max"] - declaration["min"] < FEW_CELLS)


def _declaration(column: Column) -> tuple[Mapping[str, Any], str]:
    """Return a column's declaration, and why what the metadata say was not used, if so."""
    if column.declared is not None:
        return column.declared, ""
    declaration = known_of(column)
    try:
        if declaration and MARK not in declaration.values():
            KINDS[str(declaration["type"])].model_validate(declaration).attribute(Path())  # type: ignore[attr-defined]
    except (ValidationError, SpecError):
        bare = replace(column, values=None, minimum=None, maximum=None, step=None, format=None, labels={})
        return known_of(bare), "What its metadata say about values cannot be used; check it there."
    return declaration, ""


def known_of(column: Column) -> dict[str, Any]:
    """Return what is known of a declaration, with marks for the rest; no key if nothing is."""
    if any(_limit(column, bound) is not None for bound in (column.minimum, column.maximum)):
        return _ranged(column)
    if column.values is not None or column.stored == "text":
        if column.values is None or len(column.values) > MOST_VALUES:
            return {"type": "categorical", "values": MARK, **_missing(column)}
        values = [value for value in _typed(column) if str(value) not in {"", *column.nulls}]
        outside = {"outside": "other"} if column.others else {}
        return {"type": "categorical", "values": values, **outside, **_missing(column)}
    if column.stored == "boolean":
        return {"type": "boolean", **_missing(column)}
    return _ranged(column) if column.stored else {}


def _ranged(column: Column) -> dict[str, Any]:
    """Declare an ordered column. Codes beside the range extend it if they are whole numbers; others stand for missing values."""
    low, high = _limit(column, column.minimum), _limit(column, column.maximum)
    if column.stored in {"date", "datetime"} or isinstance(low, str) or isinstance(high, str):
        return _dates(column, low, high)
    codes = [str(value) for value in column.values or ()]
    whole = [int(code) for code in codes if _WHOLE.fullmatch(code)]
    words = (code for code in codes if not _WHOLE.fullmatch(code))
    missing = _missing(replace(column, nulls=(*column.nulls, *words)))
    low = low if low is None else min([low, *whole])
    high = high if high is None else max([high, *whole])
    limits = [bound for bound in (low, high) if bound is not None]
    span = {"min": MARK if low is None else low, "max": MARK if high is None else high}
    if column.stored != "number" and all(float(bound).is_integer() for bound in limits):
        span = {key: part if part == MARK else int(part) for key, part in span.items()}
        return {"type": "integer", **span, **missing}
    cells = {"step": column.step} if column.step is not None else _usual_cells(low, high)
    return {"type": "number", **span, **cells, **missing}


def _usual_cells(low: float | None, high: float | None) -> dict[str, Any]:
    """Return a decimal step with which a range has neither too few nor too many steps, or bins if it does not divide the range.

    >>> _usual_cells(0, 10_000), _usual_cells(0.5, 2.5), _usual_cells(0, 10**9), _usual_cells(0, 1 / 3)
    ({'step': 0.01}, {'step': 0.0001}, {'step': 1000}, {'bins': 20})
    """
    step = Decimal("0.01")
    if low is None or high is None or low >= high:
        return {"step": float(step)}
    span = Decimal(repr(high)) - Decimal(repr(low))
    if span > MOST_STEPS * step:
        step = Decimal(10) ** math.ceil((span / MOST_STEPS).log10())
    elif span < LEAST_STEPS * step:
        step = Decimal(10) ** math.floor((span / LEAST_STEPS).log10())
    return {"bins": 20} if span % step else {"step": float(step) if step < 1 else int(step)}


def _dates(column: Column, low: Bound | None, high: Bound | None) -> dict[str, Any]:
    limits = [bound for bound in (low, high) if isinstance(bound, str)]
    kind = column.stored if column.stored in {"date", "datetime"} else None
    kind = kind or ("datetime" if any("T" in bound for bound in limits) else "date")
    low, high = (bound if isinstance(bound, str) else MARK for bound in (low, high))
    declaration: dict[str, Any] = {"type": kind, "min": low, "max": high}
    if kind == "datetime":
        whole = not any(dt.datetime.fromisoformat(bound).second for bound in limits)
        declaration["step"] = "minute" if whole else "second"
    if column.format is not None:
        form = _checked(checked_format, column.format)
        # months need other bins than a draft has
        declaration["format"] = MARK if form is None or form.is_month else column.format
    return declaration | _missing(column)


def _limit(column: Column, bound: Bound | None) -> Bound | None:
    """Return a limit of a range, if it has the form that the column's type needs."""
    if isinstance(bound, str):
        if column.stored in {"integer", "number", "boolean"}:
            return None
        try:
            moment = dt.datetime.fromisoformat(bound)
        except ValueError:
            return None
        if column.stored == "date":
            return moment.date().isoformat()
        return bound if moment.tzinfo is None else None
    if bound is None or column.stored in {"date", "datetime", "boolean"}:
        return None
    return bound if abs(bound) <= LARGEST_WHOLE else None


def _missing(column: Column) -> dict[str, Any]:
    """Keep nulls unless the metadata exclude them: a null in a column without them would drop its row."""
    words = tuple(dict.fromkeys(text.strip() for text in column.nulls if text.strip()))
    if words and _checked(checked_nulls, words) is not None:
        return {"missing": list(words)}
    return {} if column.nullable is False else {"missing": True}


def _checked(check: Callable[[Any], Any], part: Any) -> Any:
    """Return what a check makes of a part of a spec; None if it refuses it."""
    try:
        return check(part)
    except SpecError:
        return None


def _typed(column: Column) -> list[Value]:
    """Return the values, whole numbers as such if the column stores them, so that the release keeps the type."""
    values = list(column.values or ())
    if column.stored == "integer" and all(isinstance(value, int) or _WHOLE.fullmatch(str(value)) for value in values):
        return [int(value) for value in values]
    return values
