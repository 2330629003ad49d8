"""List the releases in the folder of a dataset, from their manifests alone."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import UsageError
from dpcore.object_store import AnyPath
from dpcore.release.dataset_folder import LATEST, is_release
from dpcore.release.integrity import LARGEST_NOTE, MANIFEST, one_line, read_manifest, read_regular, refuse_store_error
from dpcore.release.withdrawal import Notice, read_notice


@dataclass(frozen=True)
class Listed:
    """A release and what it promises.

    Attributes:
        name: Its name.
        folder: Its folder.
        manifest: Its manifest.
        notice: Why and when it was withdrawn; None if it was not.
        newest: Whether `latest.json` names it.
    """

    name: str
    folder: AnyPath
    manifest: dict[str, Any]
    notice: Notice | None
    newest: bool


def listed_in(folder: AnyPath) -> tuple[Listed, ...]:
    """Return the releases in the folder of a dataset, oldest first, withdrawn ones included."""
    newest = pointed(folder)
    with readable(folder):
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        found = [
            Listed(each, folder / each, _manifest(folder / each), read_notice(folder / each), each == newest)
            for each in names
            if is_release(folder, each)
        ]
    return tuple(sorted(found, key=_age))


@contextmanager
def readable(folder: AnyPath) -> Iterator[None]:
    """Convert the errors of a file system or store."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{one_line(folder)} cannot be read ({error.strerror}); check its permissions") from None


def pointed(folder: AnyPath) -> str | None:
    """Return the name of the release that `latest.json` points to, or None if there is no such note."""
    try:
        return Path(str(json.loads(read_regular(folder / LATEST, limit=LARGEST_NOTE))["release"])).name
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        refuse_store_error(folder, error)
        raise UsageError(f"{LATEST} in {one_line(folder)} cannot be read; see: dpflow ledger verify") from None


def _age(each: Listed) -> tuple[str, int, str]:
    """Return what orders releases by age: the minute in which the run began, and then its reservation in the ledger."""
    privacy = each.manifest.get("privacy")
    reservation = privacy.get("reservation") if isinstance(privacy, dict) else None
    return each.name.partition("-")[0], reservation if isinstance(reservation, int) else 0, each.name


def _manifest(release: AnyPath) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(read_manifest(release / MANIFEST))
    return content
