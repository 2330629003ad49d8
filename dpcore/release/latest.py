"""`latest.json` names the newest release: the one whose run was reserved last, by the ledger's events.

Names of releases begin with a time, and a clock can be wrong. A copy or a link of a release has another name than its manifest
states, so it is never the newest.
"""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from dpcore.release.dataset_folder import LATEST, is_release, pointer
from dpcore.release.draft_folder import new_file, sync_folder
from dpcore.release.integrity import read_regular


def point_latest(folder: Path, name: str, *, known: Sequence[str]) -> None:
    """Let `latest.json` name the newest release; a resumed older run does not take the place of a newer one.

    Of runs that end at once, each looks again after it has written: whoever wrote last sees all of their releases.

    Args:
        folder: The folder that holds the releases of a dataset.
        name: The release that has just been made, which is the newest if the folder holds none that is known.
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
    """Return what `latest.json` holds; nothing if there is none yet, or it cannot be read, and is to be written anew."""
    try:
        return read_regular(folder / LATEST)
    except OSError:
        return b""


def _write(path: Path, content: bytes) -> None:
    with new_file(path) as file:
        file.write(content)
