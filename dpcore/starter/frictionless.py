"""Describe a table by a Frictionless Data Package, Resource or Table Schema."""

from typing import Any

from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node, chosen, source_of
from dpcore.starter.type_names import stored_as

_UNUSABLE = {"object", "array", "geopoint", "geojson", "duration", "list"}


def looks_like_frictionless(root: Node) -> bool:
    """Return whether a file has the keys of a package, a resource or a table schema."""
    fields = (root.get("schema") or root).get("fields")
    return any(isinstance(part.data, list) for part in (fields, root.get("resources")))


def describe_frictionless(root: Node, table: str | None) -> Description:
    """Describe a resource. `table` names it; None if the package has only one."""
    resource = root.block("a Data Package or a Table Schema")
    if listed := root.get("resources"):
        resources = {node.name("name", "path"): node for node in listed.items("a list of resources")}
        resource = chosen(resources, table, where=root.document.path, what="resource")
    schema = resource.get("schema") or resource
    fields = schema.need("fields", "a Table Schema lists the columns there")
    # the empty text always stands for a missing value
    nulls = tuple(text for text in _listed(schema.get("missingValues")) if isinstance(text, str) and text)
    keys = schema.texts("primaryKey")
    columns = (_column(node, nulls, keys) for node in fields.items("a list of fields"))
    source = source_of(resource.get("path"), dialect=resource.get("dialect"), encoding=resource.text("encoding"))
    return Description(tuple(columns), source=source)


def _column(node: Node, nulls: tuple[str, ...], keys: tuple[str, ...]) -> Column:
    name, kind, form = node.name("name"), node.text("type"), node.text("format")
    limits = node.get("constraints") or node
    words = [*(node.get("trueValues").values() or ()), *(node.get("falseValues").values() or ())]
    values = tuple(words) if kind == "boolean" and words else limits.get("enum").values()
    stored = stored_as(kind) if kind not in _UNUSABLE else None
    reasons = {
        "it is a UUID": form == "uuid",
        "it is the primary key": keys == (name,),
        "its values are unique": limits.flag("unique"),
    }
    required = limits.flag("required")
    return Column(
        name,
        stored="text" if kind == "boolean" and values else stored,
        values=values or _listed(node.get("categories")) or None,
        minimum=limits.get("minimum").bound(),
        maximum=limits.get("maximum").bound(),
        format=form if stored in {"date", "datetime"} and form not in {"", "default", "any"} else None,
        nullable=None if required is None else not required,
        nulls=nulls,
        about=node.text("description") or node.text("title"),
        identifies=next((reason for reason, holds in reasons.items() if holds), ""),
        unusable=f"its type is {kind}" if kind in _UNUSABLE else "",
    )


def _listed(node: Node) -> tuple[Any, ...]:
    """Return the values of a list. In the second version of the standard, each can be a block with a value and a label."""
    items = node.items("a list of values")
    values = (item.get("value").data if isinstance(item.data, dict) else item.data for item in items)
    return tuple(value for value in values if isinstance(value, str | int | float))
