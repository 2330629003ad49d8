"""Generate the spec reference from the JSON Schema that pydantic derives from the models."""

import json
from collections.abc import Iterator
from typing import Any

from dpcore.spec import json_schema

_INTRODUCTION = """\
# Spec

A spec is one YAML file. This page is generated from the models that validate it; `dpflow schema` prints the same as a JSON Schema for editors.
[The sample's spec](../tutorial/sample-spec.md) shows every part in use.

Paths are relative to the spec's file. A key that is not listed here is an error, which `dpflow check` reports with its line.

"""
_HEADINGS = {
    "Spec": "## The whole file",
    "SourceSpec": "## `source`",
    "PrivacySpec": "## `privacy`",
    "WeightSpec": "### `privacy.weight`",
    "BlocksSpec": "## `blocks`",
    "PersonsSpec": "## `persons`",
    "PriorSpec": "## `prior`",
    "CategoricalSpec": "## `universe`: a column of type `categorical`",
    "BooleanSpec": "## `universe`: a column of type `boolean`",
    "IntegerSpec": "## `universe`: a column of type `integer`",
    "NumberSpec": "## `universe`: a column of type `number`",
    "DateSpec": "## `universe`: a column of type `date`",
    "DatetimeSpec": "## `universe`: a column of type `datetime`",
    "DiscoverValues": "### `discover` for texts",
    "DiscoverBins": "### `discover` for numbers",
    "ConstraintSpec": "## `constraints`: one of a list",
    "RangeSpec": "### A range in a condition",
    "PossibleSpec": "### `possible`",
    "WorkloadSpec": "## `workload`",
    "MarginalSpec": "### One marginal of a list",
    "AdaptiveSpec": "## `strategy`: `adaptive`",
    "MwemSpec": "## `strategy`: `mwem`",
    "PmwSpec": "## `strategy`: `pmw`",
    "OutputSpec": "## `output`",
    "AboutSpec": "## `about`",
    "EngineSpec": "## `engine`",
}

_LIMITS = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "gt": ">",
    "maximum": "≤",
    "le": "≤",
    "exclusiveMaximum": "<",
}


def page() -> str:
    """Return the page. A model without a heading here is an error, so that none is left out."""
    schema = json_schema()
    parts = {"Spec": schema} | schema["$defs"]
    described = {name for name, part in parts.items() if "properties" in part}
    if described != set(_HEADINGS):
        raise ValueError(f"headings and models differ: {sorted(described ^ set(_HEADINGS))}; fix _HEADINGS")
    return _INTRODUCTION + "\n".join("\n".join(_section(name, parts[name], schema)) for name in _HEADINGS)


def _section(name: str, part: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    yield f"{_HEADINGS[name]} {{ #{name.lower()} }}\n"
    if name != "Spec":
        yield f"{_cell(part.get('description', ''))}\n"
    yield "| key | value | if left out | meaning |\n|---|---|---|---|"
    for key, field in part["properties"].items():
        needed = key in part.get("required", [])
        yield f"| `{key}` | {_kind(field, schema)} | {_default(field, needed=needed)} | {_meaning(field, schema)} |"
    yield ""


def _meaning(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return a field's own description, or that of its model."""
    if "description" not in field and "$ref" in field:
        return _cell(_referred(field["$ref"], schema).get("description", ""))
    return _cell(field.get("description", ""))


def _kind(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """Describe in a few words which values a field takes."""
    if "$ref" in field:
        return _reference(field["$ref"], schema)
    if choices := field.get("enum", [field["const"]] if "const" in field else []):
        return ", ".join(f"`{value}`" for value in choices)
    for several in ("anyOf", "oneOf"):
        if several in field:
            kinds = [_kind(one, schema) for one in field[several] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if field.get("type") == "array":
        return f"list of {_items(field, schema)}"
    if field.get("type") == "object":
        return f"column names, each with {_kind(field['additionalProperties'], schema)}"
    return _simple(field)


def _items(field: dict[str, Any], schema: dict[str, Any]) -> str:
    if "items" in field:
        return _kind(field["items"], schema)
    return " and ".join(_kind(one, schema) for one in field["prefixItems"])


def _simple(field: dict[str, Any]) -> str:
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
    kind = "date" if field.get("format") == "date" else words[field["type"]]
    limits = [f"{sign} {field[name]:,}" for name, sign in _LIMITS.items() if name in field]
    return " ".join([kind, ", ".join(limits)]).strip()


def _reference(reference: str, schema: dict[str, Any]) -> str:
    part = _referred(reference, schema)
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    name = reference.rpartition("/")[2]
    label = part["properties"].get("type", part["properties"].get("name", {})).get("const")
    return f"[{f'`{label}`' if label else 'keys below'}](#{name.lower()})"


def _referred(reference: str, schema: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = schema["$defs"][reference.rpartition("/")[2]]
    return part


def _default(field: dict[str, Any], *, needed: bool) -> str:
    if needed:
        return "**required**"
    value = field.get("default")
    return "" if value is None or isinstance(value, dict) else f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
