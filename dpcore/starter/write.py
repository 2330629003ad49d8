"""Write the draft of a spec as commented YAML."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from dpcore.spec.marks import MARK, advice_for
from dpcore.starter.draft import Draft, Entry, plain

WIDTH = 130
_PLAIN = re.compile(r"[A-Za-z_](?:[\w./ -]*[\w.])?|\d{4}-\d\d-\d\d", re.ASCII)
_NOT_TEXT = {"null", "true", "false", "nan", "inf"}
_SHORT = {
    "categorical": "list the values that can occur, or write values_from or discover instead",
    "integer": "the smallest and the largest whole number that can occur",
    "number": "the smallest and the largest number that can occur, and the step between values",
    "date": "the first and the last day that can occur",
    "datetime": "the first and the last date and time that can occur",
}
_HOW = f"""\
# Only these columns are read and released. Complete every line with {MARK} from what you know about the table (a form, a code list,
# a calendar), not by looking at the data: a value copied from the data into this file would be published without a charge.
#   {{type: integer, min: 0, max: 99}}                          every value; width: 10 for bins of ten; values outside are clipped
#   {{type: number, min: 0, max: 500, step: 0.01}}              every multiple of the step; bins: 20 instead of step for bins
#   {{type: date, min: 2025-01-01, max: 2026-12-31, format: "%m/%d/%Y"}}   format only if text dates are not as 2025-01-31
#   {{type: datetime, min: 2025-01-01T00:00:00, max: 2026-12-31T23:59:00, step: minute}}   every: day instead of step for days
#   {{type: categorical, values: [F, M], outside: other}}       undeclared values count as other; without outside their rows are dropped
#   {{type: categorical, discover: {{most: 100, length: 12, share: 0.1}}}}   finds the frequent values, for a tenth of the budget
# missing: true keeps nulls as nulls; missing: ["?", "NA"] also reads these texts as nulls. Remove it where every row has a value.
"""

_EXPECT_ROWS = (
    "  # expect_rows: [20000, 200000]   # measure the number of rows first, for 2 % of the budget, and stop if it lies outside this range, "
    "for example because most values are not declared"
)
_LOSE = "  # lose: 20 %   # measure which columns drop rows, for 1 % of the budget, and stop if more than this is dropped; this is the default"


def spec_text(draft: Draft) -> str:
    """Return the text of the spec."""
    declared = draft.description.sections
    return "\n".join(
        (
            *_heading(draft),
            _source(draft),
            "",
            *_privacy(draft),
            *([f"blocks: {flow(declared['blocks'])}", ""] if "blocks" in declared else []),
            *_universe(draft),
            "",
            _workload(draft),
            "output: {path: releases, rows: noisy}",
            "",
        )
    )


def _workload(draft: Draft) -> str:
    usual = {"marginals": max(1, min(2, len(draft.declared)))}
    about = "the statistics to preserve: all 2-way marginals, or a list such as [[sex, age], [age, cost]]"
    workload = draft.description.sections.get("workload")
    return f"workload: {flow(workload)}" if workload else f"workload: {flow(usual)}   # {about}"


def _heading(draft: Draft) -> Iterator[str]:
    path = f"{draft.dataset}.yaml"
    yield f"# A release spec, written by `dpflow init` from {comment(draft.origin)}. {draft.description.charged or 'No row was read.'} Check it with: dpflow check {path}"
    if draft.description.caution:
        yield f"# CAUTION: {comment(draft.description.caution)}"
    unit = draft.privacy.get("unit")
    shown = "UNIT" if not isinstance(unit, str) or unit == MARK else unit
    yield f"dataset: {scalar(draft.dataset)}   # the ledger account that pays; open it once with:"
    yield f"#   dpflow ledger open {draft.dataset} --epsilon 10 --delta 1e-9 --unit {comment(shown)} --neighbours add-remove"
    yield ""


def _source(draft: Draft) -> str:
    marked = [f"{MARK}: {advice_for(key)}" for key, part in draft.source.items() if part == MARK]
    return f"source: {flow(draft.source)}" + ("   # " + "; ".join(marked) if marked else "")


def _privacy(draft: Draft) -> Iterator[str]:
    comments = {
        "unit": "the protected unit: row, or the column that identifies a person",
        "max_rows_per_unit": "1 if the unit is row; otherwise how many rows of a person to keep, or auto",
        "neighbours": "or replace-one, if the number of units is public",
        "epsilon": "the budget of this release",
        "delta": "far below one over the number of people; 0 for pure differential privacy",
    }
    if draft.candidates:
        comments["unit"] += f", perhaps {comment(' or '.join(draft.candidates))}"
    yield "privacy:"
    for key, part in draft.privacy.items():
        yield f"  {key}: {flow(part)}" + (f"   # {comments[key]}" if key in comments else "")
    if "expect_rows" not in draft.privacy:
        yield _EXPECT_ROWS
    if "lose" not in draft.privacy:
        yield _LOSE
    yield ""


def _universe(draft: Draft) -> Iterator[str]:
    yield from _HOW.rstrip().split("\n")
    if any(_has_cells(entry) for entry in draft.declared):
        yield "# Values and ranges below come from what is named above: make sure that nobody took them from the data without a charge."
    if any(entry.described and entry.declaration for entry in draft.declared):
        yield "# Every description was copied from the metadata, and is published with the release: remove what is private."
    yield (
        "universe:"
        if draft.declared
        else f"universe: {MARK}   # every column looks like an id; declare one of those below"
    )
    for entry in draft.declared:
        yield from _entry(entry)
    left_out = [entry for entry in draft.entries if entry.left_out]
    if left_out:
        yield "  # Left out. To release such a column after all, remove the # before its name, and declare it so that it identifies nobody."
    for entry in left_out:
        declaration = flow(entry.declaration or MARK)
        yield f"  # {comment(f'{scalar(entry.name)}: {declaration}', limit=WIDTH)}   # {comment(entry.left_out)}"


def _has_cells(entry: Entry) -> bool:
    """Return whether some values or a limit of a column are known."""
    return any(entry.declaration.get(key, MARK) != MARK for key in ("values", "min", "max"))


def _entry(entry: Entry) -> Iterator[str]:
    declaration = entry.declaration
    is_key = entry.described and declaration
    for sentence in entry.about[1:] if is_key else entry.about:
        yield f"  # {comment(sentence)}"
    if not declaration:
        yield f"  {scalar(entry.name)}: {MARK}   # declare what it holds, as above, or remove the line"
        return
    hint = f"   # {_SHORT.get(str(entry.kind), '')}" if entry.marked else ""
    if is_key:
        declaration = {**declaration, "description": plain(entry.about[0])}
    line = f"  {scalar(entry.name)}: {flow(declaration)}"
    if len(line) > WIDTH:
        yield from _wrapped(entry.name, declaration, hint=hint)
        return
    yield line + hint


def _wrapped(name: str, declaration: Mapping[str, Any], *, hint: str) -> Iterator[str]:
    """Write a long declaration in several lines: each key in its own, and long lists broken."""
    yield f"  {scalar(name)}:{hint}"
    for key, part in declaration.items():
        line = f"    {key}: {flow(part)}"
        if len(line) <= WIDTH or not isinstance(part, list):
            yield line
            continue
        line = f"    {key}: ["
        for index, item in enumerate(part):
            piece = flow(item) + ("]" if index + 1 == len(part) else ", ")
            if len(line) + len(piece) > WIDTH:
                yield line.rstrip()
                line = " " * 6
            line += piece
        yield line


def flow(part: Any) -> str:
    """Return a value in YAML's flow style."""
    if isinstance(part, Mapping):
        return "{" + ", ".join(f"{scalar(str(key))}: {flow(inner)}" for key, inner in part.items()) + "}"
    if isinstance(part, list | tuple):
        return "[" + ", ".join(map(flow, part)) + "]"
    if isinstance(part, bool):
        return "true" if part else "false"
    if isinstance(part, int | float):
        return repr(part)
    return scalar(str(part))


def scalar(text: str) -> str:
    """Return a text as YAML, in quotes where it would mean something else without.

    >>> scalar("full time"), scalar("no"), scalar("1"), scalar("a: b")
    ('full time', 'no', '"1"', '"a: b"')
    """
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    quoted: str = yaml.dump(text, default_style='"', width=float("inf"), allow_unicode=True)
    return quoted.rstrip("\n")


def comment(text: str, *, limit: int = 200) -> str:
    """Return a text as part of one comment line: without line breaks and characters that YAML does not allow, and not too long."""
    line = plain(text)
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
