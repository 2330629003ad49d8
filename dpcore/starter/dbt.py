"""Describe a table by a dbt `schema.yml`: data types, descriptions, and the tests `accepted_values`, `not_null` and `unique`."""

from collections.abc import Iterator
from dataclasses import replace

from dpcore.errors import UsageError
from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node
from dpcore.starter.type_names import stored_as

_GROUPS = ("models", "seeds", "snapshots")


def describe_dbt(root: Node, table: str | None) -> Description:
    """Describe a model, seed, snapshot or source table. `table` names it; None if the file has only one."""
    found = dict(_tables(root))
    if table is None and len(found) != 1:
        shown = ", ".join(sorted(found)[:20]) or "none"
        raise UsageError(f"{root.document.path} describes {len(found)} tables; choose one with --table: {shown}")
    chosen = next(iter(found)) if table is None else table
    if chosen not in found:
        raise UsageError(
            f"{root.document.path} has no table {chosen!r}; its tables are {', '.join(sorted(found)[:20]) or 'none'}"
        )
    node = found[chosen]
    columns = node.get("columns")
    if columns is None:
        raise node.fail(f"{chosen!r} has no `columns`; describe them first")
    described = tuple(_column(each) for each in columns.items("a list of columns"))
    return Description(described, source={"sql": f"select * from {chosen}", "url_env": None})  # noqa: S608  a name for a person to check


def _tables(root: Node) -> Iterator[tuple[str, Node]]:
    for group in _GROUPS:
        if (listed := root.get(group)) is not None:
            for node in listed.items("a list of tables"):
                yield node.name("name"), node
    if (sources := root.get("sources")) is not None:
        for source in sources.items("a list of sources"):
            schema = source.text("schema") or source.name("name")
            if (tables := source.get("tables")) is not None:
                for node in tables.items("a list of tables"):
                    yield f"{schema}.{node.name('name')}", node


def _column(node: Node) -> Column:
    column = Column(
        node.name("name"),
        stored=stored_as(node.text("data_type")),
        about=node.text("description"),
    )
    for test in _tests(node):
        column = _with_test(column, test)
    for constraint in _constraints(node):
        column = _with_name(column, constraint)
    return column


def _tests(node: Node) -> Iterator[Node]:
    for key in ("tests", "data_tests"):
        if (listed := node.get(key)) is not None:
            yield from listed.items("a list of tests")


def _constraints(node: Node) -> Iterator[str]:
    if (listed := node.get("constraints")) is not None:
        for each in listed.items("a list of constraints"):
            yield each.text("type")


def _with_test(column: Column, test: Node) -> Column:
    if isinstance(test.data, str):
        return _with_name(column, test.data)
    for name, part in test.block("a test").fields("a test"):
        plain = name.rpartition(".")[2]  # dbt_utils.accepted_range
        options = part.get("arguments") or part if isinstance(part.data, dict) else part
        if plain == "accepted_values" and isinstance(options.data, dict):
            return replace(column, values=options.values("values"))
        if plain in {"accepted_range", "expect_column_values_to_be_between"} and isinstance(options.data, dict):
            return replace(column, minimum=options.number("min_value"), maximum=options.number("max_value"))
        column = _with_name(column, plain)
    return column


def _with_name(column: Column, test: str) -> Column:
    match test:
        case "not_null":
            return replace(column, nullable=False)
        case "unique":
            return replace(column, identifies="its values are unique")
        case "primary_key":
            return replace(column, identifies="it is the primary key")
    return column


def looks_like_dbt(root: Node) -> bool:
    """Return whether a YAML file has the keys of a dbt `schema.yml`."""
    return any(key in root for key in (*_GROUPS, "sources"))
