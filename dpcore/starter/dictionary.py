"""Describe a table by a data dictionary in JSON or CSV: for each column a description, a range or a list of codes."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from dpcore.errors import SpecError
from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node, as_bound, read_bytes
from dpcore.starter.type_names import stored_as

LARGEST_CSV = 1 << 20
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
    return isinstance(entry, int) and not isinstance(entry, bool)


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
        return replace(column, values=tuple(((item.get(*CODE) or item).scalar()) for item in items))
    labels = {code: part.data for code, part in node.fields("a list of values, or codes with their labels")}
    low, high = node.get("min").number(), node.get("max").number()
    if low is not None and high is not None:
        column = replace(column, minimum=low, maximum=high)
        labels = {code: label for code, label in labels.items() if code not in {"min", "max"}}
    words = {code: label for code, label in labels.items() if isinstance(label, str)}
    return replace(column, values=tuple(labels) or None, labels=words)


def _text(node: Node, keys: tuple[str, ...]) -> str:
    """Return the text at the first of these keys; empty if there is none, or something else."""
    return next(iter(node.texts(*keys)), "")


def describe_dictionary_csv(path: Path) -> Description:
    """Describe the columns of a CSV dictionary: one row for each column, or one row for each code of a column."""
    columns: dict[str, Column] = {}
    codes: dict[str, dict[str, str]] = {}
    for line, row in _rows(path):
        name = _cell(row, NAME)
        if not name:
            if any(row.values()):
                raise SpecError(f"{path}:{line}:1: the row names no column; fill that in, or remove the row")
            continue
        columns[name] = _with_row(columns.get(name, Column(name)), row)
        if code := _cell(row, CODE):
            codes.setdefault(name, {})[code] = _cell(row, LABEL)
    if not columns:
        raise SpecError(f"{path}:2:1: describes no column; write one row for each column of the table")
    return Description(tuple(_with_codes(column, codes.get(name)) for name, column in columns.items()))


def _with_row(column: Column, row: Mapping[str, str]) -> Column:
    column = replace(
        column,
        stored=column.stored or stored_as(_cell(row, TYPE)),
        about=column.about or _cell(row, ABOUT),
        nulls=column.nulls or tuple(_split(_cell(row, NULLS))),
    )
    low, high = as_bound(_cell(row, LOW)), as_bound(_cell(row, HIGH))
    if low is not None or high is not None:
        column = replace(column, minimum=low, maximum=high)
    return _with_cell(column, "" if _cell(row, CODE) else _cell(row, VALUES))


def _with_codes(column: Column, codes: Mapping[str, str] | None) -> Column:
    """Add codes that have one row each, with their labels."""
    if codes is None:
        return column
    labels = {code: label for code, label in codes.items() if label}
    return replace(
        column, values=tuple(codes), labels=labels, about="" if column.about in labels.values() else column.about
    )


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


def _cell(row: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((row[key] for key in keys if row.get(key)), "")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    content = read_bytes(path, limit=LARGEST_CSV)
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
            yield reader.line_num, {key: cell.strip() for key, cell in zip(names, row, strict=False)}
    except csv.Error:
        raise SpecError(f"{path}:{reader.line_num}:1: not valid CSV; check the quotation marks of this row") from None


def plain_key(name: str) -> str:
    """Return a column's name as the lists above write it: `Variable Name` is `variable_name`."""
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


def header_of_dictionary(names: list[str]) -> bool:
    """Return whether the header of a CSV file names columns that a dictionary has, beside the names of columns."""
    keys = {plain_key(name) for name in names}
    return bool(keys & set(NAME)) and bool(keys & {*_FACTS, *CODE})
