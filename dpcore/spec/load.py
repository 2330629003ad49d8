"""From a YAML file to a checked declaration; all mistakes at once, each with its place and what to write instead."""

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dpcore.errors import SpecError
from dpcore.privacy import Protection
from dpcore.queries import Workload
from dpcore.spec.attributes import (
    AttributeSpec,
    BooleanSpec,
    CategoricalSpec,
    DateSpec,
    DatetimeSpec,
    IntegerSpec,
    NumberSpec,
)
from dpcore.spec.document import Document, Place, read_document
from dpcore.spec.release import MwemSpec, OutputSpec, PmwSpec, PrivacySpec, ReleaseSpec, SourceSpec, WorkloadSpec
from dpcore.universe import Attribute, Universe

_LATER: Mapping[Place, str] = {
    ("blocks",): "`blocks` is not part of this version; remove it, the whole table is one block",
    ("constraints",): "`constraints` is not part of this version; remove it",
    ("source", "sql"): "`sql` is not part of this version; export the table to Parquet or CSV and name it with `path`",
    ("source", "url_env"): "`url_env` is not part of this version; export the table and name it with `path`",
}
_KINDS: Mapping[str, type[BaseModel]] = {
    "categorical": CategoricalSpec,
    "boolean": BooleanSpec,
    "integer": IntegerSpec,
    "number": NumberSpec,
    "date": DateSpec,
    "datetime": DatetimeSpec,
}
_STRATEGIES: Mapping[str, type[BaseModel]] = {"mwem": MwemSpec, "pmw": PmwSpec}
_SECTIONS: Mapping[Place, type[BaseModel]] = {
    (): ReleaseSpec,
    ("source",): SourceSpec,
    ("privacy",): PrivacySpec,
    ("workload",): WorkloadSpec,
    ("output",): OutputSpec,
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
    "type": f"type: {' | '.join(_KINDS)}",
    "name": f"name: {' | '.join(_STRATEGIES)}",
    "min": "min: 0",
    "max": "max: 99",
    "every": "every: month",
    "marginals": "marginals: 3",
}
_WANTED = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be a text",
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


@dataclass(frozen=True)
class Declaration:
    """A checked release spec with everything that follows from it alone; no data was touched."""

    path: Path
    spec: ReleaseSpec
    universe: Universe
    workload: Workload
    digest: str

    @property
    def protection(self) -> Protection:
        """Whom the release protects."""
        return self.spec.privacy.protection

    @property
    def output_folder(self) -> Path:
        """Where the releases of this dataset go."""
        return self.path.parent / self.spec.output.path / self.spec.dataset


def load_spec(path: str | Path) -> Declaration:
    """Read and check a release spec; raise one SpecError that lists all its mistakes."""
    document = read_document(Path(path))
    if not isinstance(document.data, dict):
        document.mistake((), "the file holds no keys; start from `dpflow init DATASET`")
        document.raise_mistakes()
    spec: ReleaseSpec | None = None
    try:
        spec = ReleaseSpec.model_validate(document.data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            place = _place(detail["loc"])
            document.mistake(place, _sentence(place, detail))
    _check_across(document)
    attributes = _attributes(document, spec)
    document.raise_mistakes()
    if spec is None:
        raise SpecError(f"{path}: the spec is not valid; compare it with `dpflow init DATASET`")
    universe = Universe(attributes)
    names = {name: axis for axis, name in enumerate(universe.names)}
    marginals = spec.workload.marginals
    workload = (
        Workload.all_of(attributes=len(names), order=marginals)
        if isinstance(marginals, int)
        else Workload.of([names[column] for column in marginal] for marginal in marginals)
    )
    return Declaration(path=Path(path), spec=spec, universe=universe, workload=workload, digest=_digest(spec, universe))


def _digest(spec: ReleaseSpec, universe: Universe) -> str:
    """Hash what the spec means: its keys, and the values that stand in files of their own."""
    from_files = {
        name: universe.attributes[name].labels for name, part in spec.universe.items() if _has_values_file(part)
    }
    meaning = {"spec": spec.model_dump(mode="json"), "values": from_files}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _has_values_file(part: AttributeSpec) -> bool:
    return isinstance(part, CategoricalSpec) and part.values_from is not None


def _place(loc: tuple[str | int, ...]) -> Place:
    """Drop the tags that pydantic puts into a location for the members of a union."""
    if loc[:1] == ("universe",) and len(loc) > 2 and loc[2] in _KINDS:
        loc = (*loc[:2], *loc[3:])
    if loc[:1] == ("strategy",) and len(loc) > 1 and loc[1] in _STRATEGIES:
        loc = (*loc[:1], *loc[2:])
    return tuple(
        part for part in loc if not (isinstance(part, str) and ("[" in part or part in {"int", "float", "str", "bool"}))
    )


def _sentence(place: Place, detail: ErrorDetails) -> str:  # noqa: PLR0911  a table of cases reads best flat
    """Say what is wrong and what to write instead."""
    kind, key = detail["type"], str(place[-1]) if place else "the spec"
    context = detail.get("ctx", {})
    if kind == "missing":
        return f"`{key}` is missing; write `{_EXAMPLES.get(key, f'{key}: ...')}`"
    if kind == "extra_forbidden":
        return _unknown_key(place, detail)
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        return _unknown_kind(place, detail)
    if kind in {"enum", "literal_error"}:
        return f"`{key}` must be one of {context.get('expected')}"
    if kind == "value_error":
        return f"`{key}` {context.get('error')}"
    limits = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}
    example = f"; write `{_EXAMPLES[key]}`" if key in _EXAMPLES else ""
    if kind in limits:
        return f"`{key}` must be {limits[kind]} {next(iter(context.values())):g}{example}"
    return f"`{key}` {_WANTED.get(kind, 'has the wrong form')}{example}"


def _unknown_key(place: Place, detail: ErrorDetails) -> str:
    if place in _LATER:
        return _LATER[place]
    model = _SECTIONS.get(place[:-1])
    if len(place) > 2 and place[0] == "universe":
        model = _KINDS[str(detail["loc"][2])]
    elif place[0] == "strategy":
        model = _STRATEGIES[str(detail["loc"][1])]
    known = sorted(model.model_fields) if model else []
    close = difflib.get_close_matches(str(place[-1]), known, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"the keys here are {', '.join(known)}"
    return f"unknown key `{place[-1]}`; {hint}"


def _unknown_kind(place: Place, detail: ErrorDetails) -> str:
    given = detail.get("ctx", {}).get("tag")
    if place[:1] == ("strategy",):
        if given == "adaptive":
            return "strategy `adaptive` is not part of this version; write `strategy: {name: mwem}`"
        return "a strategy needs `name: mwem` or `name: pmw`"
    name = f"`{place[-1]}`: " if len(place) > 1 else ""
    close = difflib.get_close_matches(str(given), _KINDS, n=1) if given else []
    return f"{name}`type` must be one of {', '.join(_KINDS)}" + (f"; did you mean `{close[0]}`?" if close else "")


def _check_across(document: Document) -> None:
    """Check what involves several parts, on the raw document, so that it is reported beside all other mistakes."""
    data = document.data
    universe = data.get("universe")
    declared = set(universe) if isinstance(universe, dict) else set()
    privacy = data.get("privacy")
    unit = privacy.get("unit") if isinstance(privacy, dict) else None
    if isinstance(unit, str) and unit != "row":
        if unit in declared:
            document.mistake(
                ("universe", unit), f"`{unit}` identifies the unit and can't be released; remove it from the universe"
            )
        if isinstance(privacy, dict) and "max_rows_per_unit" not in privacy:
            document.mistake(
                ("privacy",), "`max_rows_per_unit` is missing; write how many rows of a person to keep, such as 2"
            )
    workload = data.get("workload")
    marginals = workload.get("marginals") if isinstance(workload, dict) else None
    if isinstance(marginals, int) and declared and marginals > len(declared):
        document.mistake(
            ("workload", "marginals"), f"`marginals` is {marginals}, but the universe has {len(declared)} columns"
        )
    if isinstance(marginals, list):
        for row, columns in enumerate(marginals):
            for index, column in enumerate(columns if isinstance(columns, list) else []):
                if column not in declared:
                    document.mistake(
                        ("workload", "marginals", row, index),
                        f"`{column}` is not a column of the universe; declare it or remove it",
                    )


def _attributes(document: Document, spec: ReleaseSpec | None) -> dict[str, Attribute]:
    """Build each attribute; what only shows then (a values file, too many cells) is a mistake at its place."""
    built: dict[str, Attribute] = {}
    raw: Any = document.data.get("universe")
    for name, part in raw.items() if isinstance(raw, dict) else ():
        model = _KINDS.get(str(part.get("type"))) if isinstance(part, dict) else None
        if model is None:
            continue
        try:
            declared = spec.universe[name] if spec else model.model_validate(part)
            built[name] = declared.attribute(document.path.parent)  # type: ignore[attr-defined]
        except ValidationError:
            continue  # reported already
        except SpecError as error:
            document.mistake(("universe", name), f"`{name}`: {error}")
    return built
