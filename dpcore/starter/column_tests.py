"""Describe a table by tests of its columns: a dbt `schema.yml`, a serialised pandera schema, or a Great Expectations suite.

None of these packages is needed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpcore.starter.description import Column, Description, Stored
from dpcore.starter.metadata import Node, chosen
from dpcore.starter.type_names import stored_as

_NOT_NULL, _UNIQUE = {"nullable": False}, {"identifies": "its values are unique"}
_RANGE = {"minimum": ("min_value",), "maximum": ("max_value",)}
_LOW, _HIGH = {"minimum": ("value", "min_value")}, {"maximum": ("value", "max_value")}
_VALUES, _TYPE = {"values": ("values", "value", "value_set", "allowed_values")}, {"stored": ("type_", "type_list")}

TESTS: Mapping[str, Mapping[str, Any]] = {
    "not_null": _NOT_NULL,
    "unique": _UNIQUE,
    "primary_key": {"identifies": "it is the primary key"},
    "accepted_values": _VALUES,
    "accepted_range": _RANGE,
    "isin": _VALUES,
    "in_range": _RANGE,
    "between": _RANGE,
    **dict.fromkeys(("greater_than_or_equal_to", "ge", "greater_than", "gt"), _LOW),
    **dict.fromkeys(("less_than_or_equal_to", "le", "less_than", "lt"), _HIGH),
    "expect_column_values_to_not_be_null": _NOT_NULL,
    "expect_column_values_to_be_unique": _UNIQUE,
    "expect_column_values_to_be_between": _RANGE,
    "expect_column_values_to_be_in_set": _VALUES,
    "expect_column_distinct_values_to_be_in_set": _VALUES,
    "expect_column_distinct_values_to_equal_set": _VALUES,
    "expect_column_values_to_be_of_type": _TYPE,
    "expect_column_values_to_be_in_type_list": _TYPE,
    "expect_column_values_to_match_strftime_format": {"stored": "date", "format": ("strftime_format",)},
}
"""For each test what it says about a column: a fact, or the names of the option that has it."""


def _first_type(part: Node) -> Stored | None:
    names = part.values() if isinstance(part.data, list) else (part.data,)
    return next(filter(None, (stored_as(str(name)) for name in names or ())), None)


_READERS: Mapping[str, Callable[[Node], Any]] = {
    "minimum": Node.bound,
    "maximum": Node.bound,
    "values": Node.values,
    "stored": _first_type,
    "format": lambda part: part.data if isinstance(part.data, str) else None,
}


def _with_test(column: Column, test: str, options: Node) -> Column:
    """Return a column with what a test says about it, and no test before it."""
    for key, said in TESTS.get(test, {}).items():
        fact = said
        if isinstance(said, tuple):
            is_value = "value" in said and not isinstance(options.data, dict)  # as pandera may write it
            fact = _READERS[key](options if is_value else options.get(*said))
        if fact is not None and getattr(column, key) in (None, ""):
            column = replace(column, **{key: fact})
    return column


_GROUPS = ("models", "seeds", "snapshots")


def looks_like_dbt(root: Node) -> bool:
    """Return whether a YAML file has the keys of a dbt `schema.yml`."""
    return any(key in root for key in (*_GROUPS, "sources"))


def describe_dbt(root: Node, table: str | None) -> Description:
    """Describe a model, seed, snapshot or source table. `table` names it; None if the file has only one."""
    name, node = chosen({name: (name, node) for name, node in _dbt_tables(root)}, table, where=root.document.path)
    columns = node.need("columns", f"describe those of {name!r} first").items("a list of columns")
    source = {"sql": f"select * from {name}", "url_env": None}  # noqa: S608  a name for a person to check
    return Description(tuple(map(_dbt_column, columns)), source=source)


def _dbt_tables(root: Node) -> Iterator[tuple[str, Node]]:
    for group in _GROUPS:
        for node in root.get(group).items("a list of tables"):
            yield node.name("name"), node
    for source in root.get("sources").items("a list of sources"):
        schema = source.text("schema") or source.name("name")
        for node in source.get("tables").items("a list of tables"):
            yield f"{schema}.{node.name('name')}", node


def _dbt_column(node: Node) -> Column:
    column = Column(node.name("name"), stored=stored_as(node.text("data_type")), about=node.text("description"))
    for key in ("tests", "data_tests"):
        for test in node.get(key).items("a list of tests"):
            is_plain = isinstance(test.data, str)
            named = [(test.data, test.get("arguments"))] if is_plain else test.fields("a test")
            for name, options in named:
                plain = name.rpartition(".")[2]  # dbt_utils.accepted_range
                column = _with_test(column, plain, options.get("arguments") or options)
    for constraint in node.get("constraints").items("a list of constraints"):
        column = _with_test(column, constraint.text("type"), constraint)
    return column


def looks_like_pandera(root: Node) -> bool:
    """Return whether a file says that it is a schema of pandera."""
    return "schema_type" in root and "columns" in root


def describe_pandera(root: Node, _table: str | None) -> Description:
    """Describe the columns of a schema."""
    columns = root.need("columns", "pandera lists the columns there").fields("a block of columns")
    caution = "pandera's `infer_schema` takes ranges and values from the data: if that made {path}, replace what came from it."
    return _cautioned(root, tuple(_pandera_column(name, node) for name, node in columns), caution)


def _pandera_column(name: str, node: Node) -> Column:
    column = Column(
        name,
        stored=stored_as(node.block("a column").text("dtype")),
        nullable=node.flag("nullable"),
        about=node.text("description") or node.text("title"),
        identifies="its values are unique" if node.flag("unique") else "",
    )
    checks = node.get("checks")
    if isinstance(checks.data, dict):
        named = list(checks.fields("a block of checks"))
    else:  # in newer versions a list, with the name among the options
        listed = checks.items("a list of checks")
        named = [(check.get("options").text("check_name"), check) for check in listed]
    for check, options in named:
        column = _with_test(column, check, options)
    return column


_LISTS = ("column_list", "column_set")
_PROFILERS = ("profiler", "data_assistant", "dataassistant")


def looks_like_expectations(root: Node) -> bool:
    """Return whether a file has the keys of a suite."""
    return isinstance(root.get("expectations").data, list)


def describe_expectations(root: Node, _table: str | None) -> Description:
    """Describe the columns of a suite. Of a suite that a profiler made, only names and types are used."""
    expectations = root.need("expectations", "a suite lists its expectations there")
    columns: dict[str, Column] = {}
    metas = [root.get("meta").data]
    for node in expectations.items("a list of expectations"):
        metas.append(node.block("an expectation").get("meta").data)
        if not (options := node.get("kwargs")):
            continue
        test = node.text("expectation_type", "type")
        if test.startswith("expect_table_columns_to_match"):
            # the table's own list comes first, and decides the order
            names = map(str, options.block("a block of keys").get(*_LISTS).values() or ())
            columns = {name: columns.get(name, Column(name)) for name in names} | columns
        elif name := options.block("a block of keys").text("column"):
            columns[name] = _with_test(columns.get(name, Column(name)), test, options)
    if not columns:
        raise expectations.fail("the suite names no column; describe the table in another way")
    if any(word in str(metas).lower() for word in _PROFILERS):
        plain = tuple(replace(column, values=None, minimum=None, maximum=None) for column in columns.values())
        path = root.document.path.name
        caution = f"A profiler made {path} from the data, so none of its values and ranges was copied."
        return Description(plain, caution=caution)
    caution = "Profilers of Great Expectations take ranges and values from the data: if one made {path}, replace what came from it."
    return _cautioned(root, tuple(columns.values()), caution)


def _cautioned(root: Node, columns: tuple[Column, ...], caution: str) -> Description:
    """Return a description with a caution, if it has ranges or values."""
    text = caution.replace("{path}", root.document.path.name) if any(column.has_cells for column in columns) else ""
    return Description(columns, caution=text)
