"""Describe a table by CSV on the Web metadata (CSVW)."""

import re
from collections.abc import Mapping
from typing import Any

from dpcore.errors import UsageError
from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node
from dpcore.starter.type_names import stored_as

CONTEXT = "ns/csvw"
_DATE_PARTS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "M": "%m",
    "dd": "%d",
    "d": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}


def describe_csvw(root: Node, table: str | None) -> Description:
    """Describe a table of the metadata. `table` is its address; None if there is only one."""
    node = _table(root.block("CSVW metadata"), table)
    schema = node.get("tableSchema")
    columns = None if schema is None else schema.block("a block of keys").get("columns")
    if schema is None or columns is None:
        raise node.fail("`tableSchema` with its `columns` is missing; CSVW lists the columns there")
    listed = [
        each for each in columns.items("a list of columns") if each.block("a column").data.get("virtual") is not True
    ]
    keys = schema.texts("primaryKey")
    return Description(tuple(_column(each, schema, keys) for each in listed), source=_source(root, node))


def _table(root: Node, table: str | None) -> Node:
    listed = root.get("tables")
    if listed is None:
        return root
    tables = {each.name("url"): each for each in listed.items("a list of tables")}
    if table is None and len(tables) == 1:
        return next(iter(tables.values()))
    if table not in tables:
        named = "choose one with --table" if table is None else f"{table!r} is not among them"
        raise UsageError(
            f"{root.document.path} has {len(tables)} tables, and {named}: {', '.join(sorted(tables)[:20])}"
        )
    return tables[table]


def _source(root: Node, table: Node) -> Mapping[str, Any] | None:
    if not table.text("url"):
        return None
    source: dict[str, Any] = {"path": table.text("url")}
    dialect = table.get("dialect") or root.get("dialect")
    if dialect is not None and isinstance(dialect.data, dict):
        for key, spec_key in (("delimiter", "delimiter"), ("quoteChar", "quote"), ("encoding", "encoding")):
            text = dialect.text(key)
            if text and (key, text.lower()) not in {("encoding", "utf-8"), ("delimiter", ","), ("quoteChar", '"')}:
                source[spec_key] = text
    return source


def _column(node: Node, schema: Node, keys: tuple[str, ...]) -> Column:
    # a column inherits `datatype`, `null` and `required` from the schema
    names = [_words(node, key) for key in ("name", "titles")]
    name = names[1] or names[0]  # the title is what the header of the file says
    if not name:
        raise node.fail("`titles` is missing; every column needs its name")
    datatype = node.get("datatype") or schema.get("datatype")
    details = datatype if datatype is not None and isinstance(datatype.data, dict) else None
    kind = details.text("base") if details is not None else str(datatype.data) if datatype is not None else ""
    stored = stored_as(kind)
    form = details.text("format") if details is not None else ""
    nulls = node.texts("null") or schema.texts("null")
    required = node.get("required") or schema.get("required")
    return Column(
        name,
        stored=stored,
        values=_alternatives(form) if stored in {None, "text"} else None,
        minimum=None if details is None else details.bound("minimum", "minInclusive", "minExclusive"),
        maximum=None if details is None else details.bound("maximum", "maxInclusive", "maxExclusive"),
        format=strptime_format(form) if stored in {"date", "datetime"} and form else None,
        nullable=None if required is None else not required.data,
        nulls=nulls,
        about=_words(node, "dc:description") or _words(node, "description"),
        identifies="it is the primary key" if keys in {(names[0],), (name,)} else "",
    )


def _words(node: Node, key: str) -> str:
    """Return a text that may be in several languages, or one of several texts."""
    found = node.get(key)
    data = None if found is None else found.data
    while isinstance(data, dict | list) and data:
        first = next(iter(data.values())) if isinstance(data, dict) else data[0]
        data = data.get("@value", data.get("en", first)) if isinstance(data, dict) else first
    return data if isinstance(data, str) else ""


def _alternatives(pattern: str) -> tuple[str, ...] | None:
    """Return the alternatives of a regular expression such as `F|M`, if it has no other signs."""
    inner = re.sub(r"^\^?\(?(.*?)\)?\$?$", r"\1", pattern)
    parts = inner.split("|")
    return tuple(parts) if len(parts) > 1 and all(re.fullmatch(r"[\w -]+", part) for part in parts) else None


def strptime_format(pattern: str) -> str | None:
    """Return the `strptime` format for a pattern such as dd/MM/yyyy; None if it has other parts.

    >>> strptime_format("dd/MM/yyyy"), strptime_format("yyyy-MM-dd'T'HH:mm:ss"), strptime_format("EEE d")
    ('%d/%m/%Y', '%Y-%m-%dT%H:%M:%S', None)
    """
    pieces = re.findall(r"'([^']*)'|([A-Za-z]+)|([^A-Za-z']+)", pattern)
    letters = [letters for _, letters, _ in pieces if letters]
    if any(part not in _DATE_PARTS and part != "T" for part in letters):
        return None
    return "".join(
        quoted or _DATE_PARTS.get(part, part) or other if quoted or part else other for quoted, part, other in pieces
    )


def looks_like_csvw(root: Node) -> bool:
    """Return whether a file names the context of CSVW."""
    context = root.get("@context")
    return context is not None and CONTEXT in str(context.data)
