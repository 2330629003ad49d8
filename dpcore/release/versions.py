"""Number the versions of a dataset's spec, so that a reader of all releases knows which of them are alike.

Releases of one version have the same columns, with the same types and the same meaning. A release whose spec differs from that of the release
before it starts a new version, and lists the differences. Withdrawn releases count, since their manifests are kept.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpcore.errors import OutputError
from dpcore.ledger import Ledger
from dpcore.object_store import AnyPath
from dpcore.release.dataset_folder import stated_manifest
from dpcore.release.integrity import one_line
from dpcore.release.withdrawal import is_recorded

MOST_CHANGES = 50
LONGEST = 160
_IGNORED = re.compile(r"output\.(path|keep)|analyst|purpose|dataset|about\..*|universe\..*\.description")
"""What does not change the meaning of rows."""


@dataclass(frozen=True)
class Version:
    """The version of a spec, as a release of it states it.

    Attributes:
        number: The number of the version, counted from 1.
        before: The release before it, by the reservations of their runs; None if it is the first.
        changes: The differences from the spec of the release before it. Without differences, the version is the same.
    """

    number: int
    before: str | None
    changes: tuple[str, ...]


def release_before(ledger: Ledger, run_id: str, folder: AnyPath) -> str | None:
    """Return the newest release of a dataset's folder that is older than a run's. Manifests that others have changed do not count.

    Raises:
        OutputError: If the store of the folder fails.
    """
    run = ledger.run(run_id)
    earlier = sorted(
        (each for each in ledger.runs(run.account) if each.first < run.first), key=lambda each: -each.first
    )
    released = (each for each in earlier if each.release and is_recorded(ledger, each.id, folder / each.release))
    try:
        return next((each.release for each in released), None)
    except OSError as error:
        raise OutputError(
            f"the releases in {one_line(folder)} cannot be read: {error.strerror}, then resume with --resume {run_id}"
        ) from None


def version_of(manifest: Mapping[str, Any], folder: AnyPath, *, before: str | None) -> Version:
    """Return the version of a release's spec.

    Args:
        manifest: The release's manifest, with the keys `spec`, `universe` and `columns`.
        folder: The folder that holds the releases of the dataset.
        before: The release before it. If the folder does not hold it, the release counts as the first.

    Raises:
        OSError: If the store of the folder fails.
    """
    earlier = None if before is None else stated_manifest(folder, before)
    if earlier is None:
        return Version(1, None, ())
    try:
        number = int(earlier["version"]["number"])
        read = {key: manifest[key] for key in ("spec", "universe", "columns")}
        own = json.loads(json.dumps(read))  # with lists instead of tuples, as in the other manifest
        changes = tuple(_changes(_meaning(earlier), _meaning(own)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Version(1, None, ())
    if len(changes) > MOST_CHANGES:
        changes = (*changes[:MOST_CHANGES], f"and {len(changes) - MOST_CHANGES:,} more")
    return Version(number + bool(changes), before, changes)


def _meaning(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything by which the rows of two releases can differ in meaning, by the place where it is written."""
    found = dict(_leaves(manifest["spec"], ""))
    for name, described in manifest["universe"].items():
        if manifest["spec"]["universe"][name].get("values_from") is not None:
            found[f"universe.{name}.values"] = described.get("values")
    found |= {f"columns.{name}": kind for name, kind in manifest["columns"].items()}
    found["order of columns"] = list(manifest["columns"])
    return {place: value for place, value in found.items() if value is not None and not _IGNORED.fullmatch(place)}


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{place}.{key}" if place else str(key))
    else:
        yield place, value


def _changes(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> Iterator[str]:
    """Yield each difference as text.

    >>> list(_changes({"privacy.epsilon": 1.0, "universe.sex.values": ["F", "M"]}, {"privacy.epsilon": 2.0, "universe.sex.values": ["F", "X"]}))
    ['privacy.epsilon: 1.0 -> 2.0', 'universe.sex.values: added "X"; removed "M"']
    """
    for place in dict.fromkeys((*earlier, *later)):
        one, other = earlier.get(place), later.get(place)
        if one == other:
            continue
        if one is None or other is None:
            change = f"added {_text(other)}" if one is None else f"removed {_text(one)}"
        elif isinstance(one, list) and isinstance(other, list):
            change = _in_lists(one, other)
        else:
            change = f"{_text(one)} -> {_text(other)}"
        yield f"{place}: {change}"


def _in_lists(one: list[Any], other: list[Any]) -> str:
    added, removed = [each for each in other if each not in one], [each for each in one if each not in other]
    parts = [f"{word} {', '.join(map(_text, each))}" for word, each in (("added", added), ("removed", removed)) if each]
    text = "; ".join(parts) or "in another order"
    return text if len(text) <= LONGEST else f"{len(added):,} added, {len(removed):,} removed"


def _text(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
