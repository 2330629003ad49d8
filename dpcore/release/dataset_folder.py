"""Whether the folder of a dataset holds releases only, so that whoever reads all of `*/data` reads what was published."""

import json
import os
from collections.abc import Collection
from pathlib import Path

from dpcore.release.integrity import MANIFEST, one_line, read_regular

LATEST = "latest.json"


def pointer(release: str) -> dict[str, str]:
    """Return what `latest.json` says if this is the newest release."""
    return {"release": release, "data": f"{release}/data", "manifest": f"{release}/{MANIFEST}"}


def misplaced(folder: Path, *, recorded: Collection[str]) -> str | None:
    """Name the first thing in the folder of a dataset that a reader could take for a release, or for the newest, or return None.

    Args:
        folder: The folder that holds the releases of a dataset.
        recorded: The names of the releases that were published there, by the ledger.
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
    return _pointing_wrong(folder, recorded=recorded) if LATEST in names else None


def _pointing_wrong(folder: Path, *, recorded: Collection[str]) -> str | None:
    try:
        told = json.loads(read_regular(folder / LATEST).decode("utf-8"), object_pairs_hook=_each_once)
        name = told["release"]
        if told != pointer(name) or name.startswith(".") or Path(name).name != name:
            return f"{LATEST} does not name a release of this folder"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{LATEST} does not read"
    if name not in recorded and not os.path.lexists(folder / name / MANIFEST):
        return f"{LATEST} points to {one_line(name)}, which is not there and was never recorded"
    newest = max((each for each in recorded if os.path.lexists(folder / each)), default=name)
    if name < newest:
        return f"{LATEST} points to {one_line(name)}, and {one_line(newest)} is newer"
    return None


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of JSON; of a key that is there twice, readers may take either value."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError
    return made
