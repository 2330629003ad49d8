"""Describe a table by a serialised pandera schema (`to_yaml`, `to_json`). The package itself is not needed."""

from collections.abc import Iterator
from dataclasses import replace

from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node
from dpcore.starter.type_names import stored_as

_CAUTION = (
    "pandera's `infer_schema` takes ranges and values from the data: if that made {path}, replace what came from it."
)
_LOW = {"greater_than_or_equal_to", "ge", "greater_than", "gt"}
_HIGH = {"less_than_or_equal_to", "le", "less_than", "lt"}


def describe_pandera(root: Node) -> Description:
    """Describe the columns of a schema."""
    columns = root.block("a pandera schema").get("columns")
    if columns is None:
        raise root.fail("`columns` is missing; pandera lists the columns there")
    described = tuple(_column(name, each) for name, each in columns.fields("a block of columns"))
    ranged = any(each.values or each.minimum is not None or each.maximum is not None for each in described)
    return Description(described, caution=_CAUTION.format(path=root.document.path.name) if ranged else "")


def _column(name: str, node: Node) -> Column:
    node.block("a column")
    nullable, unique = node.get("nullable"), node.get("unique")
    column = Column(
        name,
        stored=stored_as(node.text("dtype")),
        nullable=None if nullable is None else bool(nullable.data),
        about=node.text("description") or node.text("title"),
        identifies="its values are unique" if unique is not None and unique.data is True else "",
    )
    for check, part in _checks(node):
        column = _with_check(column, check, part)
    return column


def _checks(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the checks: a block by name, or in newer versions a list with the name among the options."""
    checks = node.get("checks")
    if checks is None:
        return
    if isinstance(checks.data, dict):
        yield from checks.fields("a block of checks")
        return
    for each in checks.items("a list of checks"):
        options = each.get("options")
        name = options.text("check_name") if options is not None else ""
        if name:
            yield name, each


def _with_check(column: Column, check: str, part: Node) -> Column:
    own = isinstance(part.data, dict)
    holder = part if own else Node(part.document, part.place[:-1], {str(part.place[-1]): part.data})
    keys = ("value", "min_value", "max_value") if own else (str(part.place[-1]),)
    if check in _LOW:
        return replace(column, minimum=holder.number(*keys))
    if check in _HIGH:
        return replace(column, maximum=holder.number(*keys))
    if check in {"in_range", "between"} and own:
        return replace(column, minimum=part.number("min_value"), maximum=part.number("max_value"))
    if check == "isin":
        listed = part.get("value", "allowed_values") if own else part
        if listed is not None:
            return replace(column, values=Node(part.document, listed.place[:-1], {"v": listed.data}).values("v"))
    return column


def looks_like_pandera(root: Node) -> bool:
    """Return whether a file says that it is a schema of pandera."""
    return root.get("schema_type") is not None and root.get("columns") is not None
