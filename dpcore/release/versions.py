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
from dpcore.release.integrity import MALFORMED, one_line
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
        (older for older in ledger.runs(run.account) if older.first < run.first), key=lambda older: -older.first
    )
    released = (older for older in earlier if older.release and is_recorded(ledger, older.id, folder / older.release))
    try:
        return next((older.release for older in released), None)
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
    except MALFORMED:
        return Version(1, None, ())
    if len(changes) > MOST_CHANGES:
        changes = (*changes[:MOST_CHANGES], f"and {len(changes) - MOST_CHANGES:,} more")
    return Version(number + bool(changes), before, changes)


def _meaning(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything by which the rows of two releases can differ in meaning, by the place where it is written."""
    meaning = dict(_leaves(manifest["spec"], ""))
    for name, described in manifest["universe"].items():
        if manifest["spec"]["universe"][name].get("values_from") is not None:
            meaning[f"universe.{name}.values"] = described.get("values")
    meaning |= {f"columns.{name}": kind for name, kind in manifest["columns"].items()}
    meaning["order of columns"] = list(manifest["columns"])
    return {place: value for place, value in meaning.items() if value is not None and not _IGNORED.fullmatch(place)}


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
        before, after = earlier.get(place), later.get(place)
        if before == after:
            continue
        if before is None or after is None:
            change = f"added {_text(after)}" if before is None else f"removed {_text(before)}"
        elif isinstance(before, list) and isinstance(after, list):
            change = _in_lists(before, after)
        else:
            change = f"{_text(before)} -> {_text(after)}"
        yield f"{place}: {change}"


def _in_lists(before: list[Any], after: list[Any]) -> str:
    added, removed = (
        [value for value in after if value not in before],
        [value for value in before if value not in after],
    )
    parts = [
        f"{word} {', '.join(map(_text, values))}" for word, values in (("added", added), ("removed", removed)) if values
    ]
    text = "; ".join(parts) or "in another order"
    return text if len(text) <= LONGEST else f"{len(added):,} added, {len(removed):,} removed"


def _text(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
