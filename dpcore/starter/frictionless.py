"""Describe a table by a Frictionless Data Package, Resource or Table Schema."""

from collections.abc import Mapping
from typing import Any

from dpcore.errors import UsageError
from dpcore.starter.description import Column, Description, Stored
from dpcore.starter.metadata import Node

_TYPES: Mapping[str, Stored] = {
    "string": "text",
    "integer": "integer",
    "year": "integer",
    "number": "number",
    "boolean": "boolean",
    "date": "date",
    "datetime": "datetime",
}
_USUAL_MISSING = ("",)


def describe_frictionless(root: Node, table: str | None) -> Description:
    """Describe a resource. `table` names it; None if the package has only one."""
    root.block("a Data Package or a Table Schema")
    resource = _resource(root, table)
    schema = resource.get("schema") or resource
    fields = schema.get("fields")
    if fields is None:
        raise schema.fail("`fields` is missing; a Table Schema lists the columns there")
    missing = _missing(schema)
    keys = schema.texts("primaryKey")
    columns = [_column(each, missing, keys) for each in fields.items("a list of fields")]
    return Description(tuple(columns), source=_source(resource))


def _resource(root: Node, table: str | None) -> Node:
    listed = root.get("resources")
    if listed is None:
        return root
    resources = {each.name("name", "path"): each for each in listed.items("a list of resources")}
    if table is None and len(resources) == 1:
        return next(iter(resources.values()))
    if table not in resources:
        named = "choose one with --table" if table is None else f"{table!r} is not among them"
        raise UsageError(
            f"{root.document.path} has {len(resources)} resources, and {named}: {', '.join(sorted(resources)[:20])}"
        )
    return resources[table]


def _source(resource: Node) -> Mapping[str, Any] | None:
    path = resource.get("path")
    if path is None or not isinstance(path.data, str):
        return None
    source: dict[str, Any] = {"path": path.data}
    dialect = resource.get("dialect")
    if dialect is not None and isinstance(dialect.data, dict):
        for key, spec_key in (("delimiter", "delimiter"), ("quoteChar", "quote")):
            if dialect.text(key):
                source[spec_key] = dialect.text(key)
    if resource.text("encoding").lower() not in {"", "utf-8", "utf8"}:
        source["encoding"] = resource.text("encoding")
    return source


def _missing(schema: Node) -> tuple[str, ...]:
    """Return the texts that stand for a missing value, without the empty one, which always does."""
    listed = schema.get("missingValues")
    if listed is None:
        return ()
    texts = [
        each.data.get("value") if isinstance(each.data, dict) else each.data for each in listed.items("a list of texts")
    ]
    return tuple(text for text in texts if isinstance(text, str) and text not in _USUAL_MISSING)


def _column(node: Node, missing: tuple[str, ...], keys: tuple[str, ...]) -> Column:
    name, kind = node.name("name"), node.text("type")
    limits = node.get("constraints") or node
    values = limits.values("enum")
    if kind == "boolean" and (words := _boolean_words(node)):
        values = words
    stored = _TYPES.get(kind)
    unique = limits.get("unique")
    identifies = "its values are unique" if unique is not None and unique.data is True else ""
    if keys == (name,):
        identifies = "it is the primary key"
    if node.text("format") == "uuid":
        identifies = "it is a UUID"
    required = limits.get("required")
    return Column(
        name,
        stored="text" if kind == "boolean" and values else stored,
        values=values or _categories(node),
        minimum=limits.bound("minimum"),
        maximum=limits.bound("maximum"),
        format=_format(node) if stored in {"date", "datetime"} else None,
        nullable=None if required is None else not required.data,
        nulls=missing,
        about=node.text("description") or node.text("title"),
        identifies=identifies,
        unusable=f"its type is {kind}"
        if kind in {"object", "array", "geopoint", "geojson", "duration", "list"}
        else "",
    )


def _boolean_words(node: Node) -> tuple[Any, ...]:
    """Return the words for true and false, if the description has its own."""
    return (*(node.values("trueValues") or ()), *(node.values("falseValues") or ()))


def _categories(node: Node) -> tuple[Any, ...] | None:
    """Return the categories of the second version of the standard, each a value or a value with a label."""
    listed = node.get("categories")
    if listed is None:
        return None
    items = [
        each.data.get("value") if isinstance(each.data, dict) else each.data
        for each in listed.items("a list of categories")
    ]
    return tuple(each for each in items if isinstance(each, str | int | float)) or None


def _format(node: Node) -> str | None:
    form = node.text("format")
    return None if form in {"", "default", "any"} else form


def looks_like_frictionless(root: Node) -> bool:
    """Return whether a file has the keys of a package, a resource or a table schema."""
    schema = root.get("schema") or root
    listed = schema.get("fields")
    named = listed is not None and isinstance(listed.data, list)
    return named or ("resources" in root and isinstance(root.data["resources"], list))
