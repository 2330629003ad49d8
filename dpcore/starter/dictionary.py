"""Describe a table by a data dictionary in JSON or CSV: for each column a description, a range or a list of codes."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpcore.errors import SpecError
from dpcore.scalars import is_whole
from dpcore.spec.document import LARGEST_BYTES, Document
from dpcore.starter.description import Column, Description, as_bound
from dpcore.starter.metadata import Node, read_bytes
from dpcore.starter.type_names import stored_as

NAME = (
    "name",
    "column",
    "variable",
    "field",
    "column_name",
    "variable_name",
    "field_name",
    "attribute",
    "feature",
    "id",
)
ABOUT = ("description", "label", "definition", "about", "title", "question", "details", "comment", "notes")
TYPE = ("type", "data_type", "datatype", "dtype", "format", "kind")
VALUES = (
    "values",
    "codes",
    "categories",
    "levels",
    "allowed_values",
    "permitted_values",
    "enum",
    "choices",
    "valid_values",
)
UNIT = ("unit", "units")
LOW, HIGH = ("min", "minimum", "lower", "low"), ("max", "maximum", "upper", "high")
NULLS = ("missing", "missing_values", "missing_codes", "na_values", "null_values")
CODE, LABEL = ("code", "value"), ("label", "meaning", "value_label", "code_label")
_FACTS = {*ABOUT, *TYPE, *VALUES, *LOW, *HIGH}
_COLUMNS = ("columns", "variables", "fields", "attributes", "features")
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:-|\u2013|to|\.\.)\s*(-?\d+(?:\.\d+)?)")


def looks_like_dictionary(root: Node) -> bool:
    """Return whether every entry of a JSON file describes a column."""
    data = (root.get(*_COLUMNS) or root).data
    if isinstance(data, list):
        return bool(data) and all(isinstance(entry, dict) and not entry.keys().isdisjoint(NAME) for entry in data)
    entries = list(data.values()) if isinstance(data, dict) else []
    if entries and all(_is_number_of_codes(entry) for entry in entries):
        return True
    return bool(entries) and all(isinstance(entry, dict) and not entry.keys().isdisjoint(_FACTS) for entry in entries)


def describe_dictionary(root: Node, _table: str | None) -> Description:
    """Describe the columns of a JSON dictionary: an object by column, or a list of objects with names."""
    listed = root.get(*_COLUMNS)
    node = listed if isinstance(listed.data, list | dict) else root
    if isinstance(node.data, list):
        return Description(tuple(_column(part.name(*NAME), part) for part in node.items("a list of columns")))
    return Description(tuple(_column(name, part) for name, part in node.fields("a data dictionary")))


def _is_number_of_codes(entry: object) -> bool:
    return is_whole(entry)


def _column(name: str, node: Node) -> Column:
    if _is_number_of_codes(node.data):  # which are counted from 0
        if node.data < 1:
            raise node.fail("the number of values must be at least 1")
        return Column(name, stored="integer", minimum=0, maximum=node.data - 1)
    if isinstance(node.data, str):
        return Column(name, about=node.data)
    node.block("a description, a number of values, or a block of keys such as {description: ..., values: ...}")
    unit, nulls = _text(node, UNIT), node.get(*NULLS)
    column = Column(
        name,
        stored=stored_as(_text(node, TYPE)),
        minimum=node.get(*LOW).bound(),
        maximum=node.get(*HIGH).bound(),
        step=node.get("step").number(),
        about=" ".join(filter(None, (_text(node, ABOUT), f"(in {unit})" if unit else ""))),
        nulls=tuple(map(str, nulls.values() or ())) if isinstance(nulls.data, list) else (),
    )
    return _with_values(column, node.get(*VALUES))


def _with_values(column: Column, node: Node) -> Column:
    """Add a list of values, or codes with their labels, among which `min` and `max` are a range."""
    if not node or isinstance(node.data, str):
        return _with_cell(column, node.data or "")
    if isinstance(node.data, list):
        items = node.items("a list of values")
        return replace(column, values=tuple((item.get(*CODE) or item).scalar() for item in items))
    labels = {code: part.data for code, part in node.fields("a list of values, or codes with their labels")}
    low, high = node.get("min").number(), node.get("max").number()
    if low is not None and high is not None:
        column = replace(column, minimum=low, maximum=high)
        labels = {code: label for code, label in labels.items() if code not in {"min", "max"}}
    words = {code: label for code, label in labels.items() if isinstance(label, str) and label}
    return replace(column, values=tuple(labels) or None, labels=words)


def _text(node: Node, keys: tuple[str, ...]) -> str:
    """Return the text at the first of these keys; empty if there is none, or something else."""
    return next(iter(node.texts(*keys)), "")


def describe_dictionary_csv(path: Path) -> Description:
    """Describe the columns of a CSV dictionary as if it were one in JSON: one row for each column, or for each code of a column."""
    columns: dict[str, dict[str, Any]] = {}
    document = Document(path, data=columns)
    for line, row in _rows(path):
        name = _popped(row, NAME)
        if not name and row:
            raise SpecError(f"{path}:{line}:1: the row names no column; fill that in, or remove the row")
        if not name:
            continue
        document.positions.setdefault((name,), (line, 1))
        column = columns.setdefault(name, {})
        if code := _popped(row, CODE):
            codes = column.get("values")
            column["values"] = {**(codes if isinstance(codes, dict) else {}), code: _popped(row, LABEL)}
        for key, cell in row.items():
            if not (code and key in VALUES):
                column.setdefault(key, _split(cell) if key in NULLS else cell)
    if not columns:
        raise SpecError(f"{path}:2:1: describes no column; write one row for each column of the table")
    root = Node(document, (), columns)
    return Description(tuple(_column(name, part) for name, part in root.fields("a data dictionary")))


def _popped(row: dict[str, str], keys: tuple[str, ...]) -> str:
    """Take the cell at the first of these keys out of a row; return the empty text if there is none."""
    return next((row.pop(key) for key in keys if key in row), "")


def _with_cell(column: Column, cell: str) -> Column:
    """Add what one cell says about the values: `0-99`, `F, M` or `1=yes; 2=no`."""
    if not cell:
        return column
    if span := _RANGE.fullmatch(cell.strip()):
        return replace(column, minimum=as_bound(span[1]), maximum=as_bound(span[2]))
    labels: dict[str, str] = {}
    for part in _split(cell):
        code, *label = re.split("[=:]", part, maxsplit=1)
        labels[code.strip()] = label[0].strip() if label else ""
    return replace(column, values=tuple(labels), labels={code: label for code, label in labels.items() if label})


def _split(cell: str) -> list[str]:
    separator = next((sign for sign in "\n;|," if sign in cell), ",")
    return [part.strip() for part in cell.split(separator) if part.strip()]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    content = read_bytes(path, limit=LARGEST_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    first = text.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [plain_key(name) for name in next(reader, [])]
        if not set(names) & set(NAME):
            raise SpecError(f"{path}:1:1: has no column with the names of the table's columns; call it {NAME[0]!r}")
        for row in reader:
            cells = zip(names, map(str.strip, row), strict=False)
            yield reader.line_num, {key: cell for key, cell in cells if cell}
    except csv.Error:
        raise SpecError(f"{path}:{reader.line_num}:1: not valid CSV; check the quotation marks of this row") from None


def plain_key(name: str) -> str:
    """Return a column's name as the lists above write it: `Variable Name` is `variable_name`."""
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


def header_of_dictionary(names: list[str]) -> bool:
    """Return whether the header of a CSV file names columns that a dictionary has, beside the names of columns."""
    keys = {plain_key(name) for name in names}
    return bool(keys & set(NAME)) and bool(keys & {*_FACTS, *CODE})
