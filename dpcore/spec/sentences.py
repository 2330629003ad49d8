"""Convert pydantic's validation errors into sentences: what is wrong, and what to write instead."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from dpcore.marginals.workload import MOST_WEIGHT
from dpcore.spec.categories import BooleanSpec, CategoricalSpec
from dpcore.spec.days import DateSpec, DatetimeSpec
from dpcore.spec.document import Place
from dpcore.spec.numbers import IntegerSpec, NumberSpec
from dpcore.spec.release import MOST_ROWS, STRATEGIES, ReleaseSpec
from dpcore.spec.workload import LIST, MOST_COLUMNS, NUMBER, PLAIN, WEIGHTED

KINDS: Mapping[str, type[BaseModel]] = {
    "categorical": CategoricalSpec,
    "boolean": BooleanSpec,
    "integer": IntegerSpec,
    "number": NumberSpec,
    "date": DateSpec,
    "datetime": DatetimeSpec,
}
_EXAMPLES = {
    "dataset": "dataset: clinic-visits",
    "source": "source: {path: visits.csv}",
    "privacy": "privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1.0e-9}",
    "universe": "universe: {sex: {type: categorical, values: [F, M]}}",
    "path": "path: visits.csv",
    "unit": "unit: row, or the column that identifies a person",
    "neighbours": "neighbours: add-remove, or neighbours: replace-one",
    "epsilon": "epsilon: 1.0",
    "delta": "delta: 1.0e-9, or delta: 0 for pure differential privacy",
    "type": f"type: {' | '.join(KINDS)}",
    "name": f"name: {' | '.join(STRATEGIES)}",
    "min": "min: 0",
    "max": "max: 99",
    "every": "every: month",
    "format": 'format: "%m/%d/%Y"',
    "marginals": "marginals: 3",
    "columns": "columns: [age, income]",
    "target": "target: income",
    "ranges": "ranges: [age]",
    "most": "most: 100",
    "length": "length: 6",
    "alphabet": 'alphabet: "0123456789.EV"',
    "bins": "bins: 20",
    "share": "share: 0.1",
    "rows_of": "rows_of: patient_id",
    "constant": "constant: [sex, birth_year]",
    "curators": "curators: [Health Office]",
    "authors": "authors: [Ann Miller]",
}
_WANTED = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "model_type": "must be a block of keys",
    "model_attributes_type": "must be a block of keys",
    "dict_type": "must be a block of keys",
    "tuple_type": "must be a list such as [a, b]",
    "string_pattern_mismatch": "must be letters, digits, dots, dashes and underscores, and begin with a letter or digit",
    "string_too_short": "is empty",
    "string_too_long": "is too long; use at most 100 characters",
    "too_short": "is empty; declare at least one",
}


def place_of(loc: tuple[str | int, ...]) -> Place:
    """Drop the tags that pydantic puts into a location for the members of a union."""
    if loc[:1] == ("universe",) and len(loc) > 2 and loc[2] in KINDS:
        loc = (*loc[:2], *loc[3:])
    if loc[:1] == ("strategy",) and len(loc) > 1 and loc[1] in STRATEGIES:
        loc = (*loc[:1], *loc[2:])
    if loc[:1] == ("universe",):
        if loc[2:3] == ("missing",):
            return loc[:3]
        return loc[:4] if loc[2:3] in {("values",), ("edges",)} else loc
    if loc[:1] == ("constraints",):
        return loc[:4]
    if loc[:1] == ("workload",):
        return tuple(part for part in loc if part not in {NUMBER, LIST, PLAIN, WEIGHTED})
    if loc[:1] == ("prior",):
        return loc[:1]
    return loc[:3] if loc[:2] == ("privacy", "weight") else loc[:2]


_EITHER: Mapping[Place, str] = {
    ("prior",): (
        "`prior` must be latest, {release: latest, unchanged: true}, or a public table such as {path: public.parquet}, which is one file on "
        "this machine and no pattern"
    ),
    ("blocks", "window"): "`window` must be all, new, or last and a number of periods, such as `last 3`",
    ("privacy", "expect_rows"): (
        "`expect_rows` must be the minimum and maximum number of rows expected, such as [20000, 200000], both from 1 to 10^12"
    ),
    ("output", "rows"): f"`rows` must be `noisy` or a whole number from 1 to {MOST_ROWS:,}",
    ("workload", "marginals"): (
        f"`marginals` must be a whole number from 1 to {MOST_COLUMNS}, or a list of lists of columns such as [[sex, age]]"
    ),
}


def sentence(place: Place, detail: ErrorDetails) -> str:  # noqa: PLR0911  a table of cases reads best flat
    """Return a sentence that says what is wrong and what to write instead."""
    kind, key = detail["type"], str(place[-1]) if place else "the spec"
    if place and isinstance(place[-1], int):
        key = f"{place[-2]}[{place[-1]}]"
    context = detail.get("ctx", {})
    if kind == "missing" and not isinstance(detail["loc"][-1], int):  # a key, not an item of a list
        return f"`{key}` is missing; write `{_EXAMPLES.get(key, f'{key}: ...')}`"
    if kind == "extra_forbidden" and place != ("prior",):
        return _unknown_key(place, detail)
    if whole := _by_place(place):
        return whole
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        return _unknown_kind(place, detail)
    if kind in {"enum", "literal_error"}:
        return f"`{key}` must be one of {context.get('expected')}"
    if kind == "value_error":
        return f"`{key}` {context.get('error')}"
    limits = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}
    example = f"; write `{_EXAMPLES[key]}`" if key in _EXAMPLES else ""
    if kind in limits:
        limit = next(iter(context.values()))
        shown = f"{limit:d}" if isinstance(limit, int) else f"{limit:g}"
        return f"`{key}` must be {limits[kind]} {shown}{'' if key in {'min', 'max'} else example}"
    return f"`{key}` {_WANTED.get(kind, 'has the wrong form')}{example}"


def _by_place(place: Place) -> str | None:  # noqa: PLR0911  a table of cases reads best flat
    """Return the sentence for a place where any mistake gets the same one."""
    if place in _EITHER:  # pydantic would report every form of a union, or one that was not meant
        return _EITHER[place]
    if place[:1] == ("universe",) and place[2:3] == ("values",) and len(place) == 4:
        return "a category must be text, a number or a boolean; put anything else in quotes"
    if place[:1] == ("universe",) and place[2:] == ("missing",):
        return '`missing` must be true, false, or a list of different texts that count as null, such as ["?", "NA"]; put quotes around numbers'
    if place[:1] == ("constraints",):
        return _in_constraint(place)
    if place[:2] != ("workload", "marginals"):
        return None
    if place[-1] == "weight":
        return f"`weight` must be a whole number from 1 to {MOST_WEIGHT}"
    if len(place) > 3 and isinstance(place[-1], int):
        return "a column must be given by its name, as text; put quotes around a number"
    return (
        "a marginal must be a list of columns such as [sex, age], or, with a weight, {columns: [sex, age], weight: 3}"
    )


_FORMS = {
    "order": "`order` must be two or more columns with <= between them, such as `admitted <= discharged`",
    "sum": "`sum` must be a column, =, and two or more columns with + between them, such as `total = wages + bonus`",
    "depends": "`depends` must be one or more columns, ->, and the column that they determine, such as `city -> state`",
}
"""What to write for a constraint that is one line of text."""


def _in_constraint(place: Place) -> str | None:
    """Return the sentence for a place within `constraints`."""
    if len(place) == 1:
        return "`constraints` must be a list, such as `- impossible: {sex: M, pregnant: true}`"
    if len(place) > 2 and place[2] in {"impossible", "if", "then"}:
        return (
            f"`{place[-1]}` must have a value for each column, such as {{sex: M}}: a value, a list of values, or a range such as {{min: 0, max: 17}}"
            if len(place) == 3
            else f"`{place[-1]}` must be a value, a list of values, or a range such as {{min: 0, max: 17}}"
        )
    if len(place) > 2 and place[2] in _FORMS:
        return _FORMS[str(place[2])]
    if place[2:3] == ("possible",) and place[3:] not in {(), ("columns",)}:
        return (
            "`rows` must be a list of rows, each a list with a value for every column, such as [[M, false], [F, true]]"
        )
    return None


_STEPS: Mapping[type[BaseModel], str] = {
    IntegerSpec: "whole numbers have steps of 1: leave it out, or write `type: number` for larger steps",
    DateSpec: "dates have steps of a day: leave it out, or write `every` for longer periods",
}
"""What to write instead of the step of columns whose step is known."""


def _unknown_key(place: Place, detail: ErrorDetails) -> str:
    if place[0] == "constraints" and len(place) > 3 and place[2] != "possible":
        return str(_in_constraint(place))
    models = _models_at(detail["loc"][:-1])
    if place[-1] == "step" and models[0] in _STEPS:
        return f"unknown key `step`; {_STEPS[models[0]]}"
    keys = sorted(key for model in models for key, _ in _keys(model))
    close = difflib.get_close_matches(str(place[-1]), keys, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"the keys here are {', '.join(keys)}"
    return f"unknown key `{place[-1]}`; {hint}"


def _models_at(loc: tuple[str | int, ...]) -> list[type[BaseModel]]:
    """Return the models whose keys a place in the spec may have."""
    models: list[type[BaseModel]] = [ReleaseSpec]
    for part in (*loc[:1], *loc[2:]) if loc[:1] == ("universe",) else loc:  # without the name of a column
        named = [inner for model in models for key, kind in _keys(model) if key == part for inner in _models_in(kind)]
        tagged = [model for model in models if model is {**KINDS, **STRATEGIES}.get(str(part))]
        models = named or tagged or models
    return models


def _keys(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a model, as a spec writes them, and their types."""
    return ((field.alias or name, field.annotation) for name, field in model.model_fields.items())


def _models_in(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a value of a type may be, or contain."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind):
        yield from _models_in(inner)


def _unknown_kind(place: Place, detail: ErrorDetails) -> str:
    tag = detail.get("ctx", {}).get("tag")
    if place[:1] == ("strategy",):
        return f"a strategy's `name` must be one of {', '.join(STRATEGIES)}"
    name = f"`{place[-1]}`: " if len(place) > 1 else ""
    close = difflib.get_close_matches(str(tag), KINDS, n=1) if tag else []
    return f"{name}`type` must be one of {', '.join(KINDS)}" + (f"; did you mean `{close[0]}`?" if close else "")
