"""Whether the folder of a dataset holds releases only, so that whoever reads all of `*/data` reads what was published."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from dpcore.release.integrity import MANIFEST, one_line, read_regular, require_permitted

LATEST = "latest.json"


def pointer(release: str) -> dict[str, str]:
    """Return what `latest.json` says if this is the newest release."""
    return {"release": release, "data": f"{release}/data", "manifest": f"{release}/{MANIFEST}"}


def is_release(folder: Path, name: str) -> bool:
    """Say whether a folder holds a release of this name, by its manifest: a copy or a link that is called otherwise is none."""
    try:
        return bool(json.loads(read_regular(folder / name / MANIFEST).decode("utf-8"))["release"] == name)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def misplaced(folder: Path, *, recorded: Collection[str], numbers: Mapping[str, int]) -> str | None:
    """Name the first thing in the folder of a dataset that a reader could take for a release, or for the newest, or return None.

    Args:
        folder: The folder that holds the releases of a dataset.
        recorded: The names of the releases that were published there, by the ledger.
        numbers: The number of the event that reserved the run of a release, by its name, as far as the ledger knows them.

    Raises:
        PermissionError: If this user may not read `latest.json`.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return None  # it was moved away, or this user may not look
    for name in names:
        release = folder / name  # also one that begins with a dot: `*` means those too, to DuckDB and polars
        if os.path.lexists(release / "data") and not os.path.lexists(release / MANIFEST):
            return f"{one_line(name)} holds data and no {MANIFEST}, so it is not a release of this ledger"
        if name.lower().endswith(".parquet"):
            return f"{one_line(name)} lies beside the releases and belongs to none of them"
    return _pointing_wrong(folder, recorded=recorded, numbers=numbers) if LATEST in names else None


def _pointing_wrong(folder: Path, *, recorded: Collection[str], numbers: Mapping[str, int]) -> str | None:
    require_permitted(folder / LATEST)
    try:
        told = json.loads(read_regular(folder / LATEST).decode("utf-8"), object_pairs_hook=_each_once)
        name = told["release"]
        if told != pointer(name) or name.startswith(".") or Path(name).name != name:
            return f"{LATEST} does not name a release of this folder"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{LATEST} does not read"
    if name not in recorded and not os.path.lexists(folder / name / MANIFEST):
        return f"{LATEST} points to {one_line(name)}, which is not there and was never recorded"
    if name not in recorded and not is_release(folder, name):
        return f"{LATEST} points to {one_line(name)}, which is a copy or a link of a release with another name"
    there = (each for each in recorded if os.path.lexists(folder / each))
    newest = max(there, key=lambda each: (numbers.get(each, 0), each), default=name)
    if _is_older(name, newest, numbers=numbers):
        return f"{LATEST} points to {one_line(name)}, and {one_line(newest)} is newer"
    return None


def _is_older(name: str, other: str, *, numbers: Mapping[str, int]) -> bool:
    """Say whether a release is older than another one; of another ledger's releases only the names tell."""
    if name in numbers and other in numbers:
        return numbers[name] < numbers[other]
    return name < other


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of JSON; of a key that is there twice, readers may take either value."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError
    return made
