"""The folder of a dataset: keep `latest.json` pointing to the newest release.

The newest release is the one whose run was reserved last, by the order of the ledger's events. A run that was refunded and is resumed is
reserved again, and its last reservation counts. Release names begin with a time, but clocks can be wrong, so names do not decide. A copy of
a release, or a link to one, has another name than its manifest states, so it never counts as the newest.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpcore.ledger import Run
from dpcore.object_store import AnyPath, ObjectPath
from dpcore.release.atomic_files import write_note
from dpcore.release.integrity import LARGEST_NOTE, MALFORMED, MANIFEST, raise_store_error, read_manifest, read_regular

LATEST = "latest.json"
PUBLISHING = ".publishing"
DRAFT_OF_RELEASE = ".partial-"


def release_id(run_id: str, *, opened_at: str) -> str:
    """Return the name of a run's release. It depends only on the run, and no other run has it. Within a minute, names have no order.

    >>> release_id("5f0c2ab1-7d8e", opened_at="2026-11-15T02:10:00+00:00")
    '20261115T0210Z-7d9117748bbf'
    """
    opened = dt.datetime.fromisoformat(opened_at).astimezone(dt.UTC)
    return f"{opened:%Y%m%dT%H%MZ}-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def reservation_numbers(runs: Iterable[Run]) -> dict[str, int]:
    """Return, for the name of each run's release, the number of the event that last reserved the run."""
    return {release_id(run.id, opened_at=run.opened_at): run.first for run in runs}


def publication_note(release: ObjectPath) -> ObjectPath:
    """Return the place of the note that a run leaves in a store before it writes anything else of its release."""
    return release.parent / PUBLISHING / f"{release.name}.json"


def encoded_pointer(release: str) -> bytes:
    """Return the content of `latest.json` when this is the newest release."""
    pointer = {"release": release, "data": f"{release}/data", "manifest": f"{release}/{MANIFEST}"}
    return (json.dumps(pointer) + "\n").encode("utf-8")


def named_by(note: bytes) -> str | None:
    """Return the release that the content of `latest.json` names; None if it is not what dpflow writes.

    >>> named_by(encoded_pointer("20261115T0210Z-7d9117748bbf")), named_by(encoded_pointer("..")), named_by(b'{"release": "a"}')
    ('20261115T0210Z-7d9117748bbf', None, None)
    """
    try:
        name = json.loads(note)["release"]
    except MALFORMED:
        return None
    return str(name) if is_name(name) and note == encoded_pointer(name) else None


def stated_manifest(folder: AnyPath, name: str) -> dict[str, Any] | None:
    """Return the manifest of a folder's release as it is, if it states this name. A copy or link under another name does not; then return None.

    Raises:
        OSError: If the store fails. Otherwise a release that is there would count as missing, and `latest.json` would stay behind.
    """
    try:
        manifest: dict[str, Any] = json.loads(read_manifest(folder / name / MANIFEST))
        return manifest if manifest["release"] == name else None
    except (OSError, *MALFORMED) as error:
        raise_store_error(folder, error)
        return None


def point_latest(folder: AnyPath, name: str, *, numbers: Callable[[], Mapping[str, int]]) -> None:
    """Point `latest.json` to the newest release. A resumed older run does not replace a newer release.

    Runs that end at the same time each check again after writing, so the last writer sees all their releases.

    Args:
        folder: The folder that holds the releases of a dataset.
        name: The release just published. It counts as the newest if the folder holds no known release.
        numbers: Returns the `reservation_numbers` of the account's runs whose releases are not withdrawn. It is called before each
            comparison, because other runs may have been reserved since the last one, and other releases withdrawn.
    """
    while (newest := encoded_pointer(newest_release(folder, numbers()) or name)) != _current_pointer(folder):
        write_note(folder / LATEST, newest)


def newest_release(folder: AnyPath, numbers: Mapping[str, int]) -> str | None:
    """Return the name of the release in a folder whose run was reserved last, or None if the folder holds none of these releases."""
    return next((name for name in reversed(oldest_first(numbers, numbers)) if stated_manifest(folder, name)), None)


def oldest_first(names: Iterable[str], numbers: Mapping[str, int]) -> list[str]:
    """Sort releases by the reservation of their runs. Those of unknown runs come first, by name."""
    return sorted(names, key=lambda name: (numbers.get(name, 0), name))


def _current_pointer(folder: AnyPath) -> bytes:
    """Return the content of `latest.json`, or nothing if it does not exist or cannot be read and must be rewritten."""
    try:
        return read_regular(folder / LATEST, limit=LARGEST_NOTE)
    except OSError:
        return b""


def is_name(text: object) -> bool:
    """Return whether a text can name a release of a folder: with an empty or absolute name, `NAME/data` would lead out of the folder."""
    return isinstance(text, str) and text != "" and not text.startswith(".") and not {"/", "\\"}.intersection(text)
