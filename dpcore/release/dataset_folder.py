"""The folder of a dataset: keep `latest.json` pointing to the newest release, and check that the folder holds releases only.

The newest release is the one whose run was reserved last, by the order of the ledger's events. A run that was refunded and is resumed is
reserved again, and its last reservation counts. Release names begin with a time, but clocks can be wrong, so names do not decide. A copy of
a release, or a link to one, has another name than its manifest states, so it never counts as the newest. The check lets a reader of
`*/data` rely on reading exactly what was published.
"""

import datetime as dt
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dpcore.ledger import Run
from dpcore.object_store import AnyPath, ObjectPath, below
from dpcore.release.atomic_files import DRAFT, write_note
from dpcore.release.integrity import (
    LARGEST_NOTE,
    MANIFEST,
    is_folder,
    is_there,
    one_line,
    raise_store_error,
    read_manifest,
    read_regular,
    require_permitted,
    walk,
)

LATEST = "latest.json"
PUBLISHING = ".publishing"
DRAFT_OF_RELEASE = ".partial-"
_ROWS = re.compile(r"\.(parquet|parq|pq)(\.\w+)?$", re.IGNORECASE)
"""How the names of files end that readers take for rows, compressed or not."""
_LEFTOVER = re.compile(r"\.(latest|ledger)\.json-[0-9a-f]{8}")
_LEFT_BEHIND_AFTER = 3600.0
"""Seconds after which a draft of a small file cannot belong to a live process: writing one takes milliseconds."""


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


def pointer(release: str) -> dict[str, str]:
    """Return the content of `latest.json` when this is the newest release."""
    return {"release": release, "data": f"{release}/data", "manifest": f"{release}/{MANIFEST}"}


def is_release(folder: AnyPath, name: str) -> bool:
    """Return whether a folder holds a release whose manifest states this name. A copy or link under another name does not.

    Raises:
        OSError: If the store fails. Otherwise a release that is there would count as missing, and `latest.json` would stay behind.
    """
    try:
        return bool(json.loads(read_manifest(folder / name / MANIFEST).decode("utf-8"))["release"] == name)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise_store_error(folder, error)
        return False


def point_latest(folder: AnyPath, name: str, *, numbers: Callable[[], Mapping[str, int]]) -> None:
    """Point `latest.json` to the newest release. A resumed older run does not replace a newer release.

    Runs that end at the same time each check again after writing, so the last writer sees all their releases.

    Args:
        folder: The folder that holds the releases of a dataset.
        name: The release just published. It counts as the newest if the folder holds no known release.
        numbers: Returns the `reservation_numbers` of the account's runs whose releases are not withdrawn. It is called before each
            comparison, because other runs may have been reserved since the last one, and other releases withdrawn.
    """
    while (newest := _encoded_pointer(newest_release(folder, numbers()) or name)) != _current_pointer(folder):
        write_note(folder / LATEST, newest)
    if isinstance(folder, Path):
        _remove_leftovers(folder)


def _remove_leftovers(folder: Path) -> None:
    """Remove drafts of `latest.json` and `ledger.json` that killed processes left behind. Those of other users may have to stay."""
    for draft in [path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name)]:
        with suppress(OSError):
            if time.time() - draft.lstat().st_mtime > _LEFT_BEHIND_AFTER:
                draft.unlink()


def newest_release(folder: AnyPath, numbers: Mapping[str, int]) -> str | None:
    """Return the name of the release in a folder whose run was reserved last, or None if the folder holds none of these releases."""
    return next((name for name in reversed(oldest_first(numbers, numbers)) if is_release(folder, name)), None)


def oldest_first(names: Iterable[str], numbers: Mapping[str, int]) -> list[str]:
    """Sort releases by the reservation of their runs. Those of unknown runs come first, by name."""
    return sorted(names, key=lambda name: (numbers.get(name, 0), name))


def _encoded_pointer(release: str) -> bytes:
    return (json.dumps(pointer(release)) + "\n").encode("utf-8")


def _current_pointer(folder: AnyPath) -> bytes:
    """Return the content of `latest.json`, or nothing if it does not exist or cannot be read and must be rewritten."""
    try:
        return read_regular(folder / LATEST, limit=LARGEST_NOTE)
    except OSError:
        return b""


def walk_releases(folder: AnyPath) -> Iterator[tuple[AnyPath, list[str], list[str]]]:
    """Iterate like `walk` over a dataset's folder, hidden folders included, except drafts of releases still being written.

    A draft lies in `.partial-RELEASE-.../draft`, deeper than a reader of all releases looks. Nothing else in `.partial-*` is left out.
    """
    for above, folders, others in walk(folder):
        if above.parent == folder and above.name.startswith(DRAFT_OF_RELEASE):
            folders[:] = [name for name in folders if name != DRAFT or (above / name).is_symlink()]
        yield above, folders, others


def misplaced(  # noqa: PLR0913  what the ledger knows of a folder, named one by one
    folder: AnyPath,
    *,
    manifests: Collection[AnyPath],
    recorded: Collection[str],
    numbers: Mapping[str, int],
    withdrawn: Collection[str] = (),
    is_open: Callable[[str], bool] = lambda _: False,
) -> str | None:
    """Describe the first thing in a dataset's folder that a reader could mistake for a release or for the newest one, or return None.

    Args:
        folder: The folder that holds the releases of a dataset, without links in its path.
        manifests: The manifests that were read, with links in their folders resolved. Each is checked on its own, with all in its folder.
        recorded: The names of the releases that the ledger recorded as published there.
        numbers: For each release name the ledger knows, the number of the event that last reserved its run.
        withdrawn: The names of the releases that the ledger recorded as withdrawn.
        is_open: Returns whether a release's name is that of an open run. It is called after the files were seen, since runs begin and end
            meanwhile.

    Raises:
        PermissionError: If this user may not read `latest.json`, or may not list or enter a folder.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return None  # the folder was moved away
    for name in names:
        release = folder / name  # hidden names too: `*` matches them in DuckDB and polars
        if is_there(release / "data") and not is_there(release / MANIFEST) and not _is_unfinished(release, is_open):
            return f"{one_line(name)} holds data but no {MANIFEST}, so it is not a release of this ledger"
    if problem := _stray(folder, manifests, is_open=is_open):
        return problem
    if LATEST not in names:
        return None
    return _pointer_problem(folder, recorded=recorded, numbers=numbers, withdrawn=withdrawn)


def _is_unfinished(release: AnyPath, is_open: Callable[[str], bool]) -> bool:
    """Return whether a run still writes a release to a store, or was killed while it did and can be resumed.

    Such a run is open, and has left its note, which is older than all of its files, but no manifest. On a disk, it writes to a draft instead.
    """
    if not isinstance(release, ObjectPath) or is_there(release / MANIFEST):
        return False
    return is_there(publication_note(release)) and is_open(release.name)


def _stray(folder: AnyPath, manifests: Collection[AnyPath], *, is_open: Callable[[str], bool]) -> str | None:
    """Describe a file that a reader would take for rows, or a link to a folder, that belongs to no release, or return None.

    Not every folder with a `manifest.json` is a release: only if that was read, somebody has checked what the folder holds.
    """
    for above, folders, others in walk_releases(folder):
        folders[:] = [name for name in folders if _manifest_of(above / name) not in manifests]
        if above == folder:
            folders[:] = [name for name in folders if not _is_unfinished(above / name, is_open)]
        for path in (above / name for name in sorted(folders + others)):
            if path.is_symlink() and is_folder(path):  # `walk` does not enter it, but a reader may
                return f"{one_line(below(folder, path))} is a link to a folder that is not a release"
            if path.name in others and _ROWS.search(path.name):
                return f"{one_line(below(folder, path))} lies beside the releases but belongs to none of them"
    return None


def _manifest_of(release: AnyPath) -> AnyPath:
    """Return the path of a release's manifest. The release itself may be a link, the folders above it are none."""
    if isinstance(release, ObjectPath) or not release.is_symlink():
        return release / MANIFEST
    return Path(os.path.realpath(release), MANIFEST)


def _pointer_problem(
    folder: AnyPath, *, recorded: Collection[str], numbers: Mapping[str, int], withdrawn: Collection[str]
) -> str | None:
    require_permitted(folder / LATEST)
    try:
        told = json.loads(
            read_regular(folder / LATEST, limit=LARGEST_NOTE).decode("utf-8"), object_pairs_hook=_each_once
        )
        name = told["release"]
        if told != pointer(name) or not is_name(name):
            return f"{LATEST} does not name a release of this folder"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise_store_error(folder, error)
        return f"{LATEST} cannot be read"
    if name not in recorded and not is_there(folder / name / MANIFEST):
        return f"{LATEST} points to {one_line(name)}, which does not exist and was never recorded"
    require_permitted(folder / name / MANIFEST)
    if name not in recorded and not is_release(folder, name):
        return f"{LATEST} points to {one_line(name)}, which is a copy of, or a link to, a release with another name"
    return _not_newest(folder, name, recorded=recorded, numbers=numbers, withdrawn=withdrawn)


def _not_newest(
    folder: AnyPath, name: str, *, recorded: Collection[str], numbers: Mapping[str, int], withdrawn: Collection[str]
) -> str | None:
    """Describe why a release is not the newest, or return None. A withdrawn one is the newest only if all are withdrawn."""
    there = [each for each in recorded if is_there(folder / each)]
    if live := [each for each in there if each not in withdrawn]:
        if name in withdrawn:
            return f"{LATEST} points to {one_line(name)}, which was withdrawn"
        there = live
    newest = oldest_first(there, numbers)[-1] if there else name
    if _is_older(name, newest, numbers=numbers):
        return f"{LATEST} points to {one_line(name)}, but {one_line(newest)} is newer"
    return None


def is_name(text: object) -> bool:
    """Return whether a text can name a release of a folder: with an empty or absolute name, `NAME/data` would lead out of the folder."""
    return isinstance(text, str) and text != "" and not text.startswith(".") and not {"/", "\\"}.intersection(text)


def _is_older(name: str, other: str, *, numbers: Mapping[str, int]) -> bool:
    """Return whether a release is older than another. For another ledger's releases, compare the names, which begin with a time."""
    if name in numbers and other in numbers:
        return numbers[name] < numbers[other]
    return name < other


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build a JSON object, and reject duplicate keys: readers differ in which of the values they take."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError
    return made
