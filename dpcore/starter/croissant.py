"""Describe a table by Croissant metadata (JSON-LD). Examples and inline rows in it are not used, because they are values of rows."""

from collections.abc import Mapping
from typing import Any

from dpcore.errors import UsageError
from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node
from dpcore.starter.type_names import stored_as


def describe_croissant(root: Node, table: str | None) -> Description:
    """Describe a record set. `table` names it; None if there is only one besides lists of categories."""
    listed = root.block("Croissant metadata").get("recordSet")
    if listed is None:
        raise root.fail("`recordSet` is missing; Croissant describes the columns there")
    sets = {_plain(each.name("name", "@id")): each for each in listed.items("a list of record sets")}
    tables = {name: each for name, each in sets.items() if not _is_enumeration(each)}
    if table is None and len(tables) == 1:
        chosen = next(iter(tables.values()))
    elif table in tables:
        chosen = tables[table]
    else:
        named = "choose one with --table" if table is None else f"{table!r} is not among them"
        raise UsageError(
            f"{root.document.path} has {len(tables)} record sets, and {named}: {', '.join(sorted(tables)[:20])}"
        )
    fields = chosen.get("field")
    if fields is None:
        raise chosen.fail("`field` is missing; Croissant lists the columns of a record set there")
    nodes = list(fields.items("a list of fields")) if isinstance(fields.data, list) else [fields]
    keys = _ids(chosen.get("key"))
    categories = {name: found for name, each in sets.items() if (found := _categories(each))}
    return Description(tuple(_column(each, keys, categories) for each in nodes), source=_source(root, nodes))


def _column(node: Node, keys: frozenset[str], categories: Mapping[str, tuple[Any, ...]]) -> Column:
    name = _plain(node.name("name", "@id"))
    extract = _below(node, "source", "extract")
    in_file = extract.text("column") if extract is not None else ""
    kinds = node.get("dataType")
    names = [] if kinds is None else kinds.data if isinstance(kinds.data, list) else [kinds.data]
    stored = next((found for each in names if isinstance(each, str) and (found := stored_as(each))), None)
    repeated = node.get("repeated", "isArray")
    reference = _below(node, "references", "field")
    to = _ids(reference) if reference is not None else frozenset()
    return Column(
        in_file or name,
        stored=stored,
        values=next((categories[each.split("/")[0]] for each in to if each.split("/")[0] in categories), None),
        about=node.text("description"),
        identifies="it is the key of its records" if keys & {name, node.text("@id")} else "",
        unusable="it holds lists" if repeated is not None and repeated.data is True else "",
    )


def _plain(name: str) -> str:
    return name.rpartition("/")[2]


def _below(node: Node, *keys: str) -> Node | None:
    for key in keys:
        found = node.get(key) if isinstance(node.data, dict) else None
        if found is None:
            return None
        node = found
    return node if isinstance(node.data, dict) else None


def _ids(node: Node | None) -> frozenset[str]:
    """Return the ids in a reference such as {"@id": "visits/patient"}, or a list of them."""
    parts = () if node is None else node.data if isinstance(node.data, list) else (node.data,)
    texts = [part.get("@id") if isinstance(part, dict) else part for part in parts]
    return frozenset(text for text in texts if isinstance(text, str)) if len(texts) == 1 else frozenset()


def _is_enumeration(node: Node) -> bool:
    return "Enumeration" in str(node.data.get("dataType", ""))


def _categories(node: Node) -> tuple[Any, ...] | None:
    """Return the values of a record set that lists categories: those in its first field. Of no other record set is `data` used."""
    data = node.get("data")
    if not _is_enumeration(node) or data is None or not isinstance(data.data, list):
        return None
    firsts = [next(iter(row.values()), None) for row in data.data if isinstance(row, dict)]
    return tuple(value for value in firsts if isinstance(value, str | int | float)) or None


def _source(root: Node, fields: list[Node]) -> Mapping[str, Any] | None:
    """Return the file that the fields come from, if it is one file."""
    files: set[str] = set()
    for field in fields:
        if (source := _below(field, "source")) is not None:
            files |= _ids(source.get("fileObject", "distribution"))
    objects = root.get("distribution")
    if len(files) != 1 or objects is None or not isinstance(objects.data, list):
        return None
    for each in objects.items("a list of files"):
        if isinstance(each.data, dict) and files & {each.text("@id"), each.text("name")} and each.text("contentUrl"):
            return {"path": each.text("contentUrl")}
    return None


def looks_like_croissant(root: Node) -> bool:
    """Return whether a file names Croissant, or has record sets."""
    return (
        "recordSet" in root
        or "croissant" in str(isinstance(root.data, dict) and root.data.get("conformsTo", "")).lower()
    )
