"""List the releases in the folder of a dataset, and say for each whether it can be read, was withdrawn, or is damaged.

A release of the folder is what has the name of one, what `latest.json` names, and what another release names as the one before it. So a
release whose folder is gone is found to be missing, and is never passed over.
"""

import re
from dataclasses import dataclass
from typing import Any

from dpcore.errors import ReleaseDamaged
from dpcore.object_store import AnyPath, ObjectPath
from dpcore.release.dataset_folder import LATEST, is_name, named_by
from dpcore.release.integrity import (
    LARGEST_MANIFEST,
    LARGEST_NOTE,
    MANIFEST,
    damaged,
    is_folder,
    is_there,
    one_line,
    read_published,
    read_regular,
    readable,
    refuse_store_error,
)
from dpcore.release.manifest import manifest_in, parsed_manifest
from dpcore.release.signing import SUMS
from dpcore.release.withdrawal import Notice, read_notice

_NAME = re.compile(r"\d{8}T\d{4}Z-[0-9a-f]{12}")
"""The names that `release_id` gives. Folders with other names, such as copies, are no releases unless something names them."""


@dataclass(frozen=True)
class Listed:
    """A release of a dataset, and what it promises.

    Attributes:
        name: Its name.
        folder: Its folder.
        manifest: Its manifest; empty if that cannot be read.
        notice: Why and when it was withdrawn; None if it was not.
        newest: Whether `latest.json` names it. All others are superseded, unless they cover other blocks.
        damage: What is wrong with it; None if it can be read, or was withdrawn.
    """

    name: str
    folder: AnyPath
    manifest: dict[str, Any]
    notice: Notice | None
    newest: bool
    damage: ReleaseDamaged | None

    def require_readable(self) -> None:
        """Raise if the release is damaged."""
        if self.damage is not None:
            raise self.damage


def listed_in(folder: AnyPath) -> tuple[Listed, ...]:
    """Return the releases in the folder of a dataset, oldest first: withdrawn and damaged ones, and missing ones that something names.

    Raises:
        ReleaseDamaged: If the folder has releases, and `latest.json` is missing or damaged.
        UsageError: If the folder cannot be read.
    """
    newest = pointed(folder)
    with readable():
        pending = sorted(_names(folder) | ({newest} if newest else set()))
        releases: dict[str, Listed] = {}
        while pending:
            name = pending.pop()
            releases[name] = _listed(folder, name, newest=name == newest)
            before = releases[name].manifest.get("version", {}).get("before")
            pending += [before] if before and before not in releases and before not in pending else []
    return tuple(sorted(releases.values(), key=_age))


def _names(folder: AnyPath) -> set[str]:
    """Return what has the name of a release. In a store, a folder without a manifest may still be written."""
    names = {path.name for path in folder.iterdir() if _NAME.fullmatch(path.name)} if is_folder(folder) else set()
    return {name for name in names if not isinstance(folder, ObjectPath) or is_there(folder / name / MANIFEST)}


def _listed(folder: AnyPath, name: str, *, newest: bool) -> Listed:
    release, notice = folder / name, None
    try:
        notice = read_notice(release)
        if notice is None:
            manifest, _ = manifest_in(release)
        else:  # of its files, only the manifest is kept
            manifest = parsed_manifest(read_published(release, MANIFEST, limit=LARGEST_MANIFEST), release)
        before = manifest["version"]["before"]
        if manifest["release"] != name or not (before is None or is_name(before)):
            raise damaged(
                release, f"{MANIFEST} is that of release {one_line(manifest['release'])}, after {one_line(before)}"
            )
    except ReleaseDamaged as error:
        return Listed(name, release, {}, notice, newest, None if notice else error)
    return Listed(name, release, manifest, notice, newest, None)


def pointed(folder: AnyPath) -> str | None:
    """Return the name of the release that `latest.json` points to, or None if the folder has no releases, or is itself one.

    Within a release, such a note would let altered files pass for those of another one.

    Raises:
        ReleaseDamaged: If the folder has releases, and `latest.json` is missing or damaged.
        OutputError: If the store of the folder fails.
    """
    with readable():
        if is_there(folder / MANIFEST) or is_there(folder / SUMS):
            return None
    try:
        if name := named_by(read_regular(folder / LATEST, limit=LARGEST_NOTE)):
            return name
    except OSError as error:
        refuse_store_error(folder, error)
        with readable():
            if isinstance(error, FileNotFoundError | NotADirectoryError) and not _names(folder):
                return None
    raise damaged(folder / LATEST, "it is missing or not what dpflow writes")


def _age(release: Listed) -> tuple[str, int, str]:
    """Return what orders releases by age: the minute in which the run began, and then its reservation in the ledger."""
    return release.name.partition("-")[0], release.manifest.get("privacy", {}).get("reservation") or 0, release.name
