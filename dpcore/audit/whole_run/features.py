"""The features of the product that whole-run audits must reach: the keys of a spec, and the verbs that spend."""

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from pydantic import BaseModel

from dpcore.audit.whole_run.drivers import VERBS
from dpcore.audit.whole_run.settings import EXPORT, Setting
from dpcore.privacy.accounting import Currency
from dpcore.spec.release import ReleaseSpec

Keys: TypeAlias = tuple[str, ...]

CONDITIONS = ("impossible", "when", "then")
"""Keys whose own keys are columns."""

ALIKE = ("every", "step", "sector", "rows", "type", "name")
"""Keys whose words are alike for a run, or part of the name of a feature already."""

UNREACHED: Mapping[str, str] = {
    "about": "words about the dataset",
    "analyst": "who asks",
    "purpose": "who asks",
    "dataset": "which account pays",
    "description": "words about a column",
    "measured_in": "words about a column",
    "keep": "which earlier releases stay",
    "scheduler": "which cluster",
    "workers": "which cluster",
    "values_from": "where declared values are written",
    "init": "a charged look buys levels of trees, as the discovery of a run does",
    "check": "its one histogram is the first measurement of every run",
    "report": "three figures about all cells together tell little of one canary; `dpflow audit` attacks how they are measured",
}
"""Features without a setting, by their last or first word, and why."""


def product_features() -> tuple[str, ...]:
    """Return all features: every key of a spec, every choice among the words that it may have, every unit, currency and verb."""
    currencies = (f"currency: {currency}" for currency in Currency)
    verbs = ("run", *VERBS.values(), "init", "check", "report", EXPORT)
    return tuple(dict.fromkeys([*_keys(ReleaseSpec, ()), "unit: row", "unit: person", *currencies, *verbs]))


@cache
def features_of(setting: Setting) -> tuple[str, ...]:
    """Return the features of a setting, by its spec and its driver, in the order of `product_features`."""
    with TemporaryDirectory(prefix="dpflow-audit-") as folder:
        spec = setting.declared(Path(folder)).spec
    chosen = {f"unit: {setting.unit}", f"currency: {setting.currency}", VERBS.get(setting.driver, "run"), setting.only}
    used = {*_used(spec, ()), *chosen}
    return tuple(feature for feature in product_features() if feature in used)


def _keys(model: type[BaseModel], path: Keys) -> Iterator[str]:
    """Yield the features that a part of a spec may have."""
    for key, field in model.model_fields.items():
        place = (*path, field.alias or key)
        kinds = list(_kinds(field.annotation))
        parts = [kind for kind in kinds if isinstance(kind, type)]
        for part in parts if key not in CONDITIONS else ():
            yield from _keys(part, (*place, *_label(part)))
        if not parts or key in CONDITIONS:
            yield ".".join(place)
        yield from (_choice(place, kind) for kind in kinds if not isinstance(kind, type) and key not in ALIKE)


def _used(model: BaseModel, path: Keys) -> Iterator[str]:
    """Yield the features that a part of a spec has."""
    for key, field in type(model).model_fields.items():
        place, value = (*path, field.alias or key), getattr(model, key)
        values = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        if value is not None and value is not False:
            yield from (".".join(place), *(_choice(place, word) for word in values))
        for part in values:
            if isinstance(part, BaseModel):
                yield from _used(part, (*place, *_label(type(part))))


def _label(part: type[BaseModel]) -> Keys:
    """Return the word by which a spec chooses a kind of column, strategy or engine."""
    for key in ("type", "name"):
        if key in part.model_fields and get_origin(part.model_fields[key].annotation) is Literal:
            return get_args(part.model_fields[key].annotation)
    return ()


def _choice(place: Keys, word: object) -> str:
    return f"{'.'.join(place)}: {str(word).lower()}"


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the models and the words that a key may have."""
    inner = get_args(annotation)
    if get_origin(annotation) is Literal:
        yield from inner
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from annotation
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for alternative in inner[:1] if get_origin(annotation) is Annotated else inner:
            yield from _kinds(alternative)
