"""Ask a person at the terminal for what the metadata do not say. An empty answer leaves the mark in the spec."""

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic import ValidationError

from dpcore.spec.marks import MARK, advice_for
from dpcore.spec.sentences import KINDS, sentence
from dpcore.starter.description import Column, Stored, as_bound
from dpcore.starter.draft import Draft, Entry, known_of, with_unit

Ask = Callable[[str], str | None]
"""Show a prompt and return the answer; None at the end of the input."""

LEAVE_OUT = "-"
_RANGES = {
    "integer": "smallest and largest value, such as 0 99",
    "number": "smallest and largest value, such as 0 9.5",
    "date": "first and last day, such as 2025-01-01 2026-12-31",
    "datetime": "first and last moment, such as 2025-01-01T00:00:00 2026-12-31T23:00:00",
}
HELP = f"Enter leaves a question open: its line stays marked. {LEAVE_OUT} leaves a column out."


class _InputEnded(Exception):  # noqa: N818  never leaves this module
    pass


def fill(draft: Draft, ask: Ask) -> Draft:
    """Return the draft with the marks filled in by the answers. At the end of the input, the other marks stay."""

    def answer(prompt: str) -> str:
        line = ask(prompt)
        if line is None:
            raise _InputEnded
        return line.strip()

    try:
        draft = _with_unit(draft, answer)
        draft = replace(draft, source=_with_source(draft.source, answer))
        for index, entry in enumerate(draft.entries):
            if not entry.left_out and entry.marked:
                draft = _with_entry(draft, index, answer)
    except _InputEnded:
        pass
    return draft


def _with_unit(draft: Draft, answer: Callable[[str], str]) -> Draft:
    if draft.privacy.get("unit") != MARK:
        return draft
    shown = f", perhaps {' or '.join(draft.candidates)}" if draft.candidates else ""
    names = {entry.name for entry in draft.entries}
    prompt = f"whom to protect: row, or the column that identifies a person{shown}: "
    while (unit := answer(prompt)) not in {"", "row"} and unit not in names:
        prompt = "there is no such column; row, or the name of a column: "
    if not unit:
        return draft
    draft = with_unit(draft, unit)
    if unit == "row":
        return draft
    limit = answer("how many rows of each to keep, such as 2, or auto: ")
    while limit not in {"", "auto"} and not re.fullmatch(r"[1-9]\d{0,5}", limit):
        limit = answer("a whole number, or auto: ")
    number = int(limit) if limit.isdigit() else limit or MARK
    return replace(draft, privacy={**draft.privacy, "max_rows_per_unit": number})


def _with_source(source: Mapping[str, Any], answer: Callable[[str], str]) -> Mapping[str, Any]:
    return {key: (answer(f"{advice_for(key)}: ") or MARK) if part == MARK else part for key, part in source.items()}


def _with_entry(draft: Draft, index: int, answer: Callable[[str], str]) -> Draft:
    """Ask for one column until its declaration is valid, left open or left out."""
    entry = draft.entries[index]
    about = f" ({entry.about[0]})" if entry.about else ""
    why = ""
    while True:
        filled = _asked(entry, f"{why}{entry.name}{about}", answer)
        if filled is None or filled.left_out:
            break
        try:
            KINDS[str(filled.kind)].model_validate(filled.declaration)
            break
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            why = f"{sentence(('universe', entry.name, *detail['loc']), detail)}\n"
    entries = list(draft.entries)
    entries[index] = entry if filled is None else filled
    return replace(draft, entries=tuple(entries))


def _asked(entry: Entry, title: str, answer: Callable[[str], str]) -> Entry | None:
    """Ask once for what is marked; None if it is left open."""
    if not entry.declaration:
        prompt = f"{title}: type ({', '.join(KINDS)}): "
        while (kind := answer(prompt)) not in {"", LEAVE_OUT, *KINDS}:
            prompt = f"one of {', '.join(KINDS)}: "
        if kind in {"", LEAVE_OUT}:
            return replace(entry, left_out="nobody declared it") if kind else None
        stored = cast("Stored", "text" if kind == "categorical" else kind)
        entry, title = replace(entry, declaration=known_of(Column(entry.name, stored=stored))), entry.name
    answers: dict[str, Any] = {}
    kind, marked = str(entry.kind), entry.marked
    if {"min", "max"} <= set(marked):
        span = answer(f"{title}: {_RANGES[kind]}: ")
        low, _, high = re.sub(r"[\s,]+", " ", span).partition(" ")
        answers |= {"min": low, "max": high}
        marked = tuple(key for key in marked if key not in answers)
    for key in marked:
        if LEAVE_OUT not in answers.values():
            answers[key] = answer(f"{title}: {_question(key, kind)}: ")
    if LEAVE_OUT in answers.values():
        return replace(entry, left_out="nobody declared it")
    if "" in answers.values():
        return None
    values = {key: _value(key, kind, text) for key, text in answers.items()}
    return replace(entry, declaration={**entry.declaration, **values})


def _question(key: str, kind: str) -> str:
    return (
        "the values that can occur, with commas between, such as F, M"
        if key == "values"
        else advice_for(key, kind=kind)
    )


def _value(key: str, kind: str, text: str) -> Any:
    """Read an answer as the type that its key needs. What has another form stays text, which the check then reports."""
    if key == "values":
        parts = [part.strip() for part in next(csv.reader([text], skipinitialspace=True), []) if part.strip()]
        return (
            [int(part) for part in parts]
            if all(re.fullmatch(r"-?(0|[1-9]\d{0,14})", part) for part in parts)
            else parts
        )
    bound = as_bound(text) if key in {"min", "max", "step"} and kind in {"integer", "number"} else None
    return text if bound is None else bound
