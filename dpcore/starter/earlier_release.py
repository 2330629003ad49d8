"""Describe a table by an earlier release of it: its manifest holds the spec, which is public."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dpcore.errors import SpecError
from dpcore.release.dataset_folder import LATEST
from dpcore.release.integrity import MANIFEST
from dpcore.spec.blocks import BlocksSpec
from dpcore.spec.release import PrivacySpec
from dpcore.spec.sentences import KINDS
from dpcore.spec.workload import WorkloadSpec
from dpcore.starter.description import Column, Description
from dpcore.starter.metadata import Node, read_metadata

_SECTIONS: Mapping[str, type[BaseModel]] = {"privacy": PrivacySpec, "blocks": BlocksSpec, "workload": WorkloadSpec}
_DAMAGED = "is not part of a valid spec; copy the release again, or use the version of dpflow that made it"


def manifest_of(folder: Path) -> Path:
    """Return the manifest of a release, given its folder, or the folder of its dataset, whose newest release is meant."""
    if (folder / LATEST).is_file():
        newest = read_metadata(folder / LATEST)
        folder /= Path(newest.name("release")).name
    return folder / MANIFEST


def looks_like_release(root: Node) -> bool:
    """Return whether a file is the manifest of a release."""
    return all(key in root for key in ("dataset", "spec", "files"))


def describe_release(root: Node, _table: str | None) -> Description:
    """Describe the columns as the release declared them. Values that it found are listed: they are public now, and cost nothing again."""
    why = "name a release that this version of dpflow can read"
    spec = root.need("spec", why)
    universe = spec.need("universe", why).fields("a block of columns")
    values = _values(root)
    columns = [Column(name, declared=_declared(name, node, values.get(name))) for name, node in universe]
    sections = {key: _given(spec.get(key)) for key in _SECTIONS if key in spec}
    for key, part in sections.items():
        if not _is_valid(_SECTIONS[key], part):
            raise spec.get(key).fail(f"`{key}` {_DAMAGED}")
    return Description(tuple(columns), sections=sections)


def _declared(name: str, node: Node, values: list[Any] | None) -> dict[str, Any]:
    """Return the declaration of a column, with its values if the spec did not list them."""
    declaration = _given(node)
    if values is not None and declaration.get("type") == "categorical":
        outside = declaration.get("outside") or ("other" if "discover" in declaration else "drop")
        own = {key: part for key, part in declaration.items() if key not in {"values_from", "discover"}}
        declaration = {**own, "values": values, "outside": outside}
    model = KINDS.get(str(declaration.get("type")))
    if model is None or not _is_valid(model, declaration):
        raise node.fail(f"`{name}` {_DAMAGED}")
    return declaration


def _is_valid(model: type[BaseModel], part: Mapping[str, Any]) -> bool:
    try:
        valid = model.model_validate(part)
        return not hasattr(valid, "attribute") or bool(valid.attribute(Path()))
    except (ValidationError, SpecError):
        return False


def _given(node: Node) -> dict[str, Any]:
    """Return the keys that the spec has given, with the nested ones."""
    return {
        key: _given(part) if isinstance(part.data, dict) else part.data
        for key, part in node.fields("a block of keys")
        if part and not (key == "missing" and part.data is False)
    }


def _values(root: Node) -> dict[str, list[Any]]:
    """Return the values of columns that the spec alone does not determine: found in the data with noise, or from a file."""
    values: dict[str, list[Any]] = {}
    for node in root.get("discovered").items("a list of discoveries"):
        cells, number = node.get("cells").data, node.get("found").number()
        if number and isinstance(cells, list) and all(isinstance(cell, str) for cell in cells):
            values.setdefault(node.name("column"), cells[: int(number)])
    for name, node in root.get("universe").fields("a block of columns"):
        if "values" in node.block("a column"):
            values[name] = list(node.get("values").values() or ())
    return values
