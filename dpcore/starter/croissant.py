"""Describe a table by Croissant metadata (JSON-LD). Examples and inline rows in it are not used, because they are values of rows."""

from collections.abc import Mapping
from typing import Any

from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node, chosen
from dpcore.starter.type_names import stored_as


def looks_like_croissant(root: Node) -> bool:
    """Return whether a file names Croissant, or has record sets."""
    return "recordSet" in root or "croissant" in str(root.get("conformsTo").data).lower()


def describe_croissant(root: Node, table: str | None) -> Description:
    """Describe a record set. `table` names it; None if there is only one besides lists of categories."""
    listed = root.need("recordSet", "Croissant describes the columns there").items("a list of record sets")
    sets = {_plain(node.name("name", "@id")): node for node in listed}
    tables = {name: node for name, node in sets.items() if not _is_enumeration(node)}
    records = chosen(tables, table, where=root.document.path, what="record set")
    fields = records.need("field", "Croissant lists the columns of a record set there")
    nodes = list(fields.items("a list of fields")) if isinstance(fields.data, list) else [fields]
    key = _id(records.get("key"))
    categories = {name: _categories(node) for name, node in sets.items() if _is_enumeration(node)}
    return Description(tuple(_column(node, key, categories) for node in nodes), source=_source(root, nodes))


def _column(node: Node, key: str, categories: Mapping[str, tuple[Any, ...] | None]) -> Column:
    name = _plain(node.name("name", "@id"))
    return Column(
        node.get("source").get("extract").text("column") or name,
        stored=next(filter(None, map(stored_as, node.texts("dataType"))), None),
        values=categories.get(_id(node.get("references").get("field")).split("/")[0]),
        about=node.text("description"),
        identifies="it is the key of its records" if key and key in {name, node.text("@id")} else "",
        unusable="it holds lists" if node.get("repeated", "isArray").data is True else "",
    )


def _plain(name: str) -> str:
    return name.rpartition("/")[2]


def _id(node: Node) -> str:
    """Return the id in a reference such as {"@id": "visits/patient"}, or in a list of one; empty if there is none, or several."""
    parts = node.data if isinstance(node.data, list) else [node.data]
    texts = [part.get("@id") if isinstance(part, dict) else part for part in parts]
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else ""


def _is_enumeration(node: Node) -> bool:
    return "Enumeration" in str(node.get("dataType").data)


def _categories(node: Node) -> tuple[Any, ...] | None:
    """Return the values of a record set that lists categories: those in its first field. Of no other record set is `data` used."""
    rows = node.get("data").data
    firsts = [next(iter(row.values()), None) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else ()
    return tuple(value for value in firsts if isinstance(value, str | int | float)) or None


def _source(root: Node, fields: list[Node]) -> Mapping[str, Any] | None:
    """Return the file that the fields come from, if it is one file."""
    files = {_id(field.get("source").get("fileObject", "distribution")) for field in fields} - {""}
    objects = root.get("distribution")
    for node in objects.items("a list of files") if len(files) == 1 and isinstance(objects.data, list) else ():
        if files & {node.text("@id"), node.text("name")} and node.text("contentUrl"):
            return {"path": node.text("contentUrl")}
    return None
