"""Problems of a dataset's folder: what a reader of all releases could mistake for one, a wrong `latest.json`, and another owner.

Each release is checked on its own (`problems.py`). What lies beside them is checked here, so that a reader of `*/data` can rely on reading exactly
what was published.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dpcore.ledger import Ledger, RunState
from dpcore.object_store import AnyPath, ObjectPath, below
from dpcore.release.atomic_files import DRAFT
from dpcore.release.dataset_folder import (
    DRAFT_OF_RELEASE,
    LATEST,
    named_by,
    oldest_first,
    publication_note,
    reservation_numbers,
    stated_manifest,
)
from dpcore.release.integrity import (
    LARGEST_NOTE,
    MANIFEST,
    is_folder,
    is_there,
    one_line,
    raise_store_error,
    read_regular,
    require_permitted,
    walk,
)
from dpcore.release.ownership import owner_problems

_ROWS = re.compile(r"\.(parquet|parq|pq)(\.\w+)?$", re.IGNORECASE)
"""How the names of files end that readers take for rows, compressed or not."""


def walk_releases(folder: AnyPath) -> Iterator[tuple[AnyPath, list[str], list[str]]]:
    """Iterate like `walk` over a dataset's folder, hidden folders included, except drafts of releases still being written.

    A draft lies in `.partial-RELEASE-.../draft`, deeper than a reader of all releases looks. Nothing else in `.partial-*` is left out.
    """
    for above, folders, others in walk(folder):
        if above.parent == folder and above.name.startswith(DRAFT_OF_RELEASE):
            folders[:] = [name for name in folders if name != DRAFT or (above / name).is_symlink()]
        yield above, folders, others


@dataclass(frozen=True)
class RecordedFolder:
    """A dataset's folder, and what the ledger knows of it.

    Attributes:
        ledger: The ledger.
        folder: The folder that holds the releases of a dataset, without links in its path.
        runs: The run of each release that the ledger recorded as published there, by the name of the release.
    """

    ledger: Ledger
    folder: AnyPath
    runs: Mapping[str, str]

    @cached_property
    def _accounts(self) -> set[str]:
        # Not the folder's name: runs may have reached it through a link, and the name of the link is the account's.
        return {self.ledger.run(run).account for run in self.runs.values()}

    def problems(self, *, manifests: Collection[AnyPath], foreign: Sequence[str]) -> Iterator[str]:
        """Yield each problem as text.

        Args:
            manifests: The manifests that were read, with links in their folders resolved. Each is checked on its own, with all in its folder.
            foreign: The releases in or below the folder whose manifests name another ledger, as they are to be shown.

        Raises:
            PermissionError: If this user may not read `latest.json`, or may not list or enter a folder.
        """
        yield from self._strays(manifests)
        if is_there(self.folder / LATEST):
            yield from self._problems_of_pointer()
        yield from owner_problems(self.ledger, self.folder, accounts=self._accounts, foreign=foreign)

    def _strays(self, manifests: Collection[AnyPath]) -> Iterator[str]:
        """Yield files that a reader would take for rows, and links to folders, that belong to no release.

        Not every folder with a `manifest.json` is a release: only if that was read, somebody has checked what the folder holds.
        """
        for above, folders, others in walk_releases(self.folder):
            folders[:] = [name for name in folders if _manifest_of(above / name) not in manifests]
            if above == self.folder:
                folders[:] = [name for name in folders if not self._is_unfinished(above / name)]
            for path in (above / name for name in sorted(folders + others)):
                shown = one_line(below(self.folder, path))
                if path.is_symlink() and is_folder(path):  # `walk` does not enter it, but a reader may
                    yield f"{shown} is a link to a folder that is not a release"
                elif (path.name in others and _ROWS.search(path.name)) or (
                    path.name == "data" and above.parent == self.folder
                ):
                    yield f"{shown} lies beside the releases but belongs to none of them"

    def _is_unfinished(self, release: AnyPath) -> bool:
        """Return whether a run still writes a release to a store, or was killed while it did and can be resumed.

        Such a run is open, and has left its note, which is older than all of its files, but no manifest. On a disk, it writes to a draft instead.
        """
        if (
            not isinstance(release, ObjectPath)
            or is_there(release / MANIFEST)
            or not is_there(publication_note(release))
        ):
            return False
        runs = (run for account in self._accounts for run in self.ledger.runs(account))  # by now
        return release.name in reservation_numbers(run for run in runs if run.state is RunState.OPEN)

    def _problems_of_pointer(self) -> Iterator[str]:
        note, name = self.folder / LATEST, None
        require_permitted(note)
        try:
            name = named_by(read_regular(note, limit=LARGEST_NOTE))
        except OSError as error:
            raise_store_error(note, error)
        if name is None:
            yield f"{LATEST} is not what dpflow writes"
            return
        if name not in self.runs:
            manifest = self.folder / name / MANIFEST
            if not is_there(manifest):
                yield f"{LATEST} points to {one_line(name)}, which does not exist and was never recorded"
                return
            require_permitted(manifest)
            if stated_manifest(self.folder, name) is None:
                yield f"{LATEST} points to {one_line(name)}, which is a copy of, or a link to, a release with another name"
                return
        yield from self._newer_than(name)

    def _newer_than(self, name: str) -> Iterator[str]:
        """Yield why a release is not the newest. A withdrawn one is the newest only if all are withdrawn."""
        runs = {run.id: run for account in self._accounts for run in self.ledger.runs(account)}
        numbers = reservation_numbers(runs.values())
        numbers |= {recorded: runs[run].first for recorded, run in self.runs.items() if run in runs}
        withdrawn = {run for account in self._accounts for run in self.ledger.withdrawals(account)}
        there = [recorded for recorded in self.runs if is_there(self.folder / recorded)]
        live = [recorded for recorded in there if self.runs[recorded] not in withdrawn]
        if live and self.runs.get(name) in withdrawn:
            yield f"{LATEST} points to {one_line(name)}, which was withdrawn"
            return
        for newest in oldest_first(live or there, numbers)[-1:]:
            if _is_older(name, newest, numbers=numbers):
                yield f"{LATEST} points to {one_line(name)}, but {one_line(newest)} is newer"


def _manifest_of(release: AnyPath) -> AnyPath:
    """Return the path of a release's manifest. The release itself may be a link, the folders above it are none."""
    if isinstance(release, ObjectPath) or not release.is_symlink():
        return release / MANIFEST
    return Path(os.path.realpath(release), MANIFEST)


def _is_older(name: str, newest: str, *, numbers: Mapping[str, int]) -> bool:
    """Return whether a release is older than another. For another ledger's releases, compare the names, which begin with a time."""
    if name in numbers and newest in numbers:
        return numbers[name] < numbers[newest]
    return name < newest
