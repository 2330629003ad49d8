"""Describe a table by a Great Expectations suite in JSON. The package itself is not needed."""

from dataclasses import replace

from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node
from dpcore.starter.type_names import stored_as

_SETS = {
    "expect_column_values_to_be_in_set",
    "expect_column_distinct_values_to_be_in_set",
    "expect_column_distinct_values_to_equal_set",
}
_LISTS = {
    "expect_table_columns_to_match_ordered_list": "column_list",
    "expect_table_columns_to_match_set": "column_set",
}
_PROFILERS = ("profiler", "data_assistant", "dataassistant")
_PROFILED = "A profiler made {path} from the data, so none of its values and ranges was copied."
_CAUTION = "Profilers of Great Expectations take ranges and values from the data: if one made {path}, replace what came from it."


def describe_expectations(root: Node) -> Description:
    """Describe the columns of a suite. Of a suite that a profiler made, only names and types are used."""
    listed = root.block("a suite").get("expectations")
    if listed is None:
        raise root.fail("`expectations` is missing; a suite lists its expectations there")
    columns: dict[str, Column] = {}
    for node in listed.items("a list of expectations"):
        options = node.block("an expectation").get("kwargs")
        if options is None:
            continue
        kind = node.text("expectation_type", "type")
        if kind in _LISTS:
            names = options.block("a block of keys").values(_LISTS[kind]) or ()
            # the table's own list comes first, and decides the order
            columns = {str(name): columns.get(str(name), Column(str(name))) for name in names} | columns
        elif name := options.block("a block of keys").text("column"):
            columns[name] = _with(columns.get(name, Column(name)), kind, options)
    if not columns:
        raise listed.fail("the suite names no column; describe the table in another way")
    return _judged(root, tuple(columns.values()))


def _judged(root: Node, columns: tuple[Column, ...]) -> Description:
    """Drop values and ranges that a profiler has found in the data, and warn where that cannot be told."""
    path = root.document.path.name
    metas = [root.data.get("meta"), *(each.get("meta") for each in root.data["expectations"])]
    if any(word in str(metas).lower() for word in _PROFILERS):
        plain = tuple(replace(each, values=None, minimum=None, maximum=None) for each in columns)
        return Description(plain, caution=_PROFILED.format(path=path))
    ranged = any(each.values or each.minimum is not None or each.maximum is not None for each in columns)
    return Description(columns, caution=_CAUTION.format(path=path) if ranged else "")


def _with(column: Column, kind: str, options: Node) -> Column:  # noqa: PLR0911  a table of cases reads best flat
    match kind:
        case "expect_column_values_to_be_between":
            return replace(column, minimum=options.bound("min_value"), maximum=options.bound("max_value"))
        case "expect_column_values_to_not_be_null":
            return replace(column, nullable=False)
        case "expect_column_values_to_be_unique":
            return replace(column, identifies="its values are unique")
        case "expect_column_values_to_be_of_type":
            return replace(column, stored=stored_as(options.text("type_")) or column.stored)
        case "expect_column_values_to_be_in_type_list":
            names = options.values("type_list") or ()
            return replace(column, stored=next(filter(None, (stored_as(str(name)) for name in names)), column.stored))
        case "expect_column_values_to_match_strftime_format":
            return replace(column, stored=column.stored or "date", format=options.text("strftime_format") or None)
        case _ if kind in _SETS:
            return replace(column, values=options.values("value_set"))
    return column


def looks_like_expectations(root: Node) -> bool:
    """Return whether a file has the keys of a suite."""
    listed = root.get("expectations")
    return listed is not None and isinstance(listed.data, list)
