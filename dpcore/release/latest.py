"""Keep `latest.json` pointing to the newest release: the one whose run was reserved last, by the order of the ledger's events.

Release names begin with a time, but clocks can be wrong, so names do not decide. A copy of a release, or a link to one, has another
name than its manifest states, so it never counts as the newest.
"""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from dpcore.release.dataset_folder import LATEST, is_release, pointer
from dpcore.release.draft_folder import new_file, sync_folder
from dpcore.release.integrity import read_regular


def point_latest(folder: Path, name: str, *, known: Sequence[str]) -> None:
    """Point `latest.json` to the newest release. A resumed older run does not replace a newer release.

    Runs that end at the same time each check again after writing, so the last writer sees all their releases.

    Args:
        folder: The folder that holds the releases of a dataset.
        name: The release just published. It counts as the newest if the folder holds no known release.
        known: The names of all releases that the ledger's runs could have made, oldest first.
    """
    while (newest := _pointing(_newest(folder, known) or name)) != _there(folder):
        temporary = folder / f".latest-{secrets.token_hex(4)}"
        try:
            _write(temporary, newest)
            temporary.replace(folder / LATEST)
        finally:
            temporary.unlink(missing_ok=True)
    sync_folder(folder)


def _newest(folder: Path, known: Sequence[str]) -> str | None:
    return next((name for name in reversed(known) if is_release(folder, name)), None)


def _pointing(release: str) -> bytes:
    return (json.dumps(pointer(release)) + "\n").encode("utf-8")


def _there(folder: Path) -> bytes:
    """Return the content of `latest.json`, or nothing if it does not exist or cannot be read and must be rewritten."""
    try:
        return read_regular(folder / LATEST)
    except OSError:
        return b""


def _write(path: Path, content: bytes) -> None:
    with new_file(path) as file:
        file.write(content)
