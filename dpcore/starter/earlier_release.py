"""Describe a table by an earlier release of it: its manifest holds the spec, which is public."""

from collections.abc import Iterator, Mapping
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

_KEPT: Mapping[str, type[BaseModel]] = {"privacy": PrivacySpec, "blocks": BlocksSpec, "workload": WorkloadSpec}
_DAMAGED = "is not part of a valid spec; copy the release again, or use the version of dpflow that made it"


def manifest_of(folder: Path) -> Path:
    """Return the manifest of a release, given its folder, or the folder of its dataset, whose newest release is meant."""
    if (folder / LATEST).is_file():
        newest = read_metadata(folder / LATEST)
        folder /= Path(newest.name("release")).name
    return folder / MANIFEST


def describe_release(root: Node) -> Description:
    """Describe the columns as the release declared them. Values that it found are listed: they are public now, and cost nothing again."""
    spec = root.block("a manifest").get("spec")
    universe = None if spec is None else spec.block("a spec").get("universe")
    if spec is None or universe is None:
        raise root.fail("`spec` with its `universe` is missing; name a release that this version of dpflow can read")
    values = _values(root)
    columns = []
    for name, node in universe.fields("a block of columns"):
        told = _told(node.block("a column").data)
        if name in values and told.get("type") == "categorical":
            outside = told.get("outside") or ("other" if "discover" in told else "drop")
            told = {key: part for key, part in told.items() if key not in {"values_from", "discover"}}
            told |= {"values": values[name], "outside": outside}
        if not _is_declaration(told):
            raise node.fail(f"`{name}` {_DAMAGED}")
        columns.append(Column(name, declared=told))
    return Description(tuple(columns), kept=dict(_kept(spec)))


def _is_declaration(told: Mapping[str, Any]) -> bool:
    model = KINDS.get(str(told.get("type")))
    try:
        return model is not None and bool(model.model_validate(told).attribute(Path()))  # type: ignore[attr-defined]
    except (ValidationError, SpecError):
        return False


def _kept(spec: Node) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sections of the spec that a new spec can take over."""
    for key, model in _KEPT.items():
        node = spec.get(key)
        if node is not None:
            told = _told(node.block("a block of keys").data)
            try:
                model.model_validate(told)
            except ValidationError:
                raise node.fail(f"`{key}` {_DAMAGED}") from None
            yield key, told


def _told(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that the spec has given, with the nested ones."""
    return {
        key: _told(each) if isinstance(each, dict) else each
        for key, each in part.items()
        if each is not None and not (key == "missing" and each is False)
    }


def _values(root: Node) -> dict[str, list[Any]]:
    """Return the values of columns that the spec alone does not determine: from a file, or found in the data with noise."""
    found: dict[str, list[Any]] = {}
    if (described := root.get("universe")) is not None:
        for name, node in described.fields("a block of columns"):
            if "values" in node.block("a column"):
                found[name] = list(node.values("values") or ())
    if (discovered := root.get("discovered")) is not None:
        for node in discovered.items("a list of discoveries"):
            cells, number = node.get("cells"), node.number("found")
            if (
                cells is not None
                and isinstance(cells.data, list)
                and number
                and all(isinstance(each, str) for each in cells.data)
            ):
                found.setdefault(node.name("column"), cells.data[: int(number)])
    return found


def looks_like_release(root: Node) -> bool:
    """Return whether a file is the manifest of a release."""
    return all(key in root for key in ("dataset", "spec", "files"))
