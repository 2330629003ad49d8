"""Describe a table by CSV on the Web metadata (CSVW)."""

import re

from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node, chosen, source_of
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


def looks_like_csvw(root: Node) -> bool:
    """Return whether a file names the context of CSVW."""
    return CONTEXT in str(root.get("@context").data)


def describe_csvw(root: Node, table: str | None) -> Description:
    """Describe a table of the metadata. `table` is its address; None if there is only one."""
    node = root.block("CSVW metadata")
    if listed := root.get("tables"):
        tables = {part.name("url"): part for part in listed.items("a list of tables")}
        node = chosen(tables, table, where=root.document.path)
    schema = node.need("tableSchema", "CSVW lists the columns there")
    columns = schema.need("columns", "CSVW lists the columns there").items("a list of columns")
    described = (part for part in columns if part.block("a column").get("virtual").data is not True)
    keys = schema.texts("primaryKey")
    dialect = node.get("dialect") or root.get("dialect")
    source = source_of(node.get("url"), dialect=dialect, encoding=dialect.text("encoding"))
    return Description(tuple(_column(part, schema, keys) for part in described), source=source)


def _column(node: Node, schema: Node, keys: tuple[str, ...]) -> Column:
    # a column inherits `datatype`, `null` and `required` from the schema
    name, title = _words(node, "name"), _words(node, "titles")
    if not (name or title):
        raise node.fail("`titles` is missing; every column needs its name")
    datatype = node.get("datatype") or schema.get("datatype")
    form = datatype.text("format")
    stored = stored_as(datatype.text("base") or str(datatype.data))
    required = (node if "required" in node else schema).flag("required")
    return Column(
        title or name,  # the title is what the header of the file says
        stored=stored,
        values=_alternatives(form) if stored in {None, "text"} else None,
        minimum=datatype.get("minimum", "minInclusive", "minExclusive").bound(),
        maximum=datatype.get("maximum", "maxInclusive", "maxExclusive").bound(),
        format=strptime_format(form) if stored in {"date", "datetime"} and form else None,
        nullable=None if required is None else not required,
        nulls=node.texts("null") or schema.texts("null"),
        about=_words(node, "dc:description") or _words(node, "description"),
        identifies="it is the primary key" if keys in {(name,), (title,)} else "",
    )


def _words(node: Node, key: str) -> str:
    """Return a text that may be in several languages, or one of several texts."""
    data = node.get(key).data
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
    if any(letters and letters not in {*_DATE_PARTS, "T"} for _, letters, _ in pieces):
        return None
    return "".join(quoted or _DATE_PARTS.get(letters, letters) or signs for quoted, letters, signs in pieces)
