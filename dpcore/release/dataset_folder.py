"""Check that the folder of a dataset holds releases only, so that a reader of `*/data` reads exactly what was published."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from dpcore.release.integrity import MANIFEST, one_line, read_regular, require_permitted

LATEST = "latest.json"


def pointer(release: str) -> dict[str, str]:
    """Return the content of `latest.json` when this is the newest release."""
    return {"release": release, "data": f"{release}/data", "manifest": f"{release}/{MANIFEST}"}


def is_release(folder: Path, name: str) -> bool:
    """Return whether a folder holds a release whose manifest states this name. A copy or link under another name does not."""
    try:
        return bool(json.loads(read_regular(folder / name / MANIFEST).decode("utf-8"))["release"] == name)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def misplaced(folder: Path, *, recorded: Collection[str], numbers: Mapping[str, int]) -> str | None:
    """Describe the first thing in a dataset's folder that a reader could mistake for a release or for the newest one, or return None.

    Args:
        folder: The folder that holds the releases of a dataset.
        recorded: The names of the releases that the ledger recorded as published there.
        numbers: For each release name the ledger knows, the number of the event that reserved its run.

    Raises:
        PermissionError: If this user may not read `latest.json`.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return None  # the folder was moved away, or this user may not list it
    for name in names:
        release = folder / name  # hidden names too: `*` matches them in DuckDB and polars
        if os.path.lexists(release / "data") and not os.path.lexists(release / MANIFEST):
            return f"{one_line(name)} holds data but no {MANIFEST}, so it is not a release of this ledger"
        if name.lower().endswith(".parquet"):
            return f"{one_line(name)} lies beside the releases but belongs to none of them"
    return _pointing_wrong(folder, recorded=recorded, numbers=numbers) if LATEST in names else None


def _pointing_wrong(folder: Path, *, recorded: Collection[str], numbers: Mapping[str, int]) -> str | None:
    require_permitted(folder / LATEST)
    try:
        told = json.loads(read_regular(folder / LATEST).decode("utf-8"), object_pairs_hook=_each_once)
        name = told["release"]
        if told != pointer(name) or name.startswith(".") or Path(name).name != name:
            return f"{LATEST} does not name a release of this folder"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{LATEST} cannot be read"
    if name not in recorded and not os.path.lexists(folder / name / MANIFEST):
        return f"{LATEST} points to {one_line(name)}, which does not exist and was never recorded"
    if name not in recorded and not is_release(folder, name):
        return f"{LATEST} points to {one_line(name)}, which is a copy of, or a link to, a release with another name"
    there = (each for each in recorded if os.path.lexists(folder / each))
    newest = max(there, key=lambda each: (numbers.get(each, 0), each), default=name)
    if _is_older(name, newest, numbers=numbers):
        return f"{LATEST} points to {one_line(name)}, but {one_line(newest)} is newer"
    return None


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
