"""Publish a release where its spec says: in a folder of this machine, with one atomic rename, or in an object store.

A store cannot rename. There, a release exists once its manifest does, so the manifest is written after all other files, and `latest.json` after
the manifest. A process that is killed before that leaves files that no manifest lists. The resumed run writes the same ones again, and removes
all others before it writes the manifest: the first attempt may have had a signing key, for example, and so a signature.

With the same settings, files are the same to the last byte, because all attempts of a run state the same moment of publication. In a store, the
first attempt notes it in `.publishing/RELEASE.json`, which is never replaced or removed. So neither a resumed run nor a worker that was believed
dead can mix files of two attempts, and a release is published once.
"""

import datetime as dt
import errno
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dpcore.errors import OutputError
from dpcore.ledger import Lease, Ledger
from dpcore.ledger.rows import whole_minute
from dpcore.object_store import AnyPath, ObjectPath, without_links
from dpcore.release.atomic_files import new_draft, sync_path
from dpcore.release.dataset_folder import DRAFT_OF_RELEASE, is_name, point_latest, publication_note
from dpcore.release.draft import Draft
from dpcore.release.integrity import LARGEST_NOTE, MALFORMED, MANIFEST, is_there, one_line, read_regular, readable
from dpcore.release.ownership import claim_folder
from dpcore.release.problems import Contents, problems
from dpcore.release.publishing import Published, write_files
from dpcore.release.versions import release_before
from dpcore.release.withdrawal import DATA, WITHDRAWN, live_numbers, remove_objects

LEAST_FREE_BYTES = 4 << 20


def check_writable(folder: AnyPath) -> None:
    """Raise if a release cannot be written to an output folder. Create nothing.

    Whether a store may be written to, only writing shows, and a run begins with that.
    """
    if isinstance(folder, ObjectPath):
        try:
            folder.exists()
        except OSError as error:
            raise OutputError(f"releases cannot be written to {folder}: {error.strerror}") from None
        return
    nearest = folder.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise OutputError(
            f"the output folder {folder} cannot be created: {nearest.name} is a file; choose another `output: {{path: ...}}`"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(
            f"the output folder {folder} is read-only; make it writable or choose another `output: {{path: ...}}`"
        )
    disk = shutil.disk_usage(nearest)
    if not disk.total:
        raise OutputError(
            f"the output folder {folder} cannot be created: {nearest} keeps no files; choose another `output: {{path: ...}}`"
        )
    if disk.free < LEAST_FREE_BYTES:
        raise OutputError(f"the disk of the output folder {folder} is full; free some space and run again")


def publish(draft: Draft, *, ledger: Ledger, lease: Lease | None) -> Published:
    """Write the files of a run's release, and let them appear at once. A worker that has lost its lease publishes nothing.

    What already lies at the final path is never trusted. It is kept if its manifest is one that the run has recorded. If the run has recorded
    none, it is kept if this run would write the same bytes for the moment that it states.

    Args:
        draft: The content of the release.
        ledger: It confirms that it still has the run, after everything is written and before it appears, in a store also before anything is
            uploaded.
        lease: The lease on the run; None if it is only replayed, which changes nothing.

    Raises:
        OutputError: If the path holds something else, or the release was withdrawn, or the path cannot be written to.
    """
    folder, run = draft.declaration.output_folder, draft.statement.run
    draft = replace(draft, before=release_before(ledger, run, folder))
    if lease is not None:
        claim_folder(ledger, folder)
    final, recorded = folder / draft.name, ledger.manifests_of(run)
    with _output_errors(folder, run):
        if recorded and _is_taken(final):
            published = as_recorded(final, recorded, run=run)
        elif isinstance(final, ObjectPath):
            published = _uploaded(draft, final, ledger=ledger)
        else:
            published = _appeared_or_same(draft, final, ledger=ledger)
        if isinstance(folder, Path):
            for leftover in folder.glob(f"{DRAFT_OF_RELEASE}{draft.name}-*"):
                shutil.rmtree(leftover, ignore_errors=True)
        # Writing a release takes time, and newer runs may be reserved and publish meanwhile.
        point_latest(folder, draft.name, numbers=lambda: live_numbers(ledger, draft.statement.account))
    return published


def settle(published: Published, *, ledger: Ledger, lease: Lease | None) -> None:
    """Settle the run of a published release, so that what it has not spent returns to its account."""
    run, folder = published.manifest["privacy"]["run"], published.folder
    # Of a run that was settled before, record only a release that was really written again.
    record = lease is not None or published.appeared
    ledger.settle(
        run,
        release=folder.name,
        lease=lease,
        manifest=str(without_links(folder) / MANIFEST) if record else None,
        manifest_sha256=published.manifest_sha256 if record else None,
    )


def published_before(final: AnyPath, *, recorded: Collection[str], run: str) -> Published:
    """Return the release of a settled run as it is in its place. Write nothing.

    Args:
        final: The folder of the release.
        recorded: The SHA-256 of each manifest that the run has recorded as published.
        run: The id of the run.

    Raises:
        OutputError: If it is damaged, or something else is there.
        UsageError: If it cannot be read.
    """
    with readable():
        return as_recorded(final, recorded, run=run)


def write_folder(draft: Draft, final: Path) -> Published:
    """Write a release that no run has made to a folder of its own, with one atomic rename.

    Raises:
        OutputError: If the folder is taken, or cannot be written to.
    """
    try:
        published = _renamed(draft, final, confirm=lambda: None)
    except OSError as error:
        raise OutputError(
            f"{one_line(final)} cannot be written ({error.strerror}); choose another folder, or make room there"
        ) from None
    if published is None:
        raise OutputError(f"{one_line(final)} appeared meanwhile; choose a new folder")
    return published


def _is_taken(final: AnyPath) -> bool:
    """Return whether something is in the place of a release. In a store, that is a manifest; a folder is free if it is empty."""
    if isinstance(final, ObjectPath):
        return is_there(final / MANIFEST)
    return os.path.lexists(final) and (not final.is_dir() or final.is_symlink() or any(final.iterdir()))


def as_recorded(final: AnyPath, recorded: Collection[str], *, run: str) -> Published:
    """Return the release at a path if the run has recorded it and it is undamaged, else raise."""
    contents = Contents.read(final)
    if contents.digest is None or contents.digest not in recorded:
        raise _another(final, f"{MANIFEST} is missing or differs", run=run)
    for problem in problems(final):
        raise _another(final, problem.sentence, run=run)
    return Published(final, contents.manifest, contents.digest, appeared=False)


def _another(final: AnyPath, problem: str, *, run: str) -> OutputError:
    """Return the error that something else is in the place of a run's release."""
    return OutputError(
        f"{one_line(final)} is not the release of run {run}: {problem}; move it away, then let the run write its "
        f"release there with --resume {run}"
    )


def _appeared_or_same(draft: Draft, final: Path, *, ledger: Ledger) -> Published:
    """Publish the release. If the path is taken, even by another worker meanwhile, compare what is there."""
    try:
        if published := _renamed(draft, final, confirm=ledger.confirm):
            return published
    except FileNotFoundError:
        if not _is_taken(final):
            raise  # otherwise a faster worker has removed this draft as a leftover
    contents = Contents.read(final)
    if (moment := _moment_in(contents.written)) and ledger.has_event(moment.head):
        with _draft_beside(final) as folder:
            same = write_files(folder, _as_of(draft, moment), created=moment.created)
        if contents.digest == same.manifest_sha256 and not any(problems(final)):
            return replace(same, folder=final, appeared=False)
    raise _another(final, "its files are not those that this run would write", run=draft.statement.run)


def _renamed(draft: Draft, final: Path, *, confirm: Callable[[], None]) -> Published | None:
    """Write the release beside its place, and rename it. Return None if the place was taken first, for example by another worker of the run."""
    if _is_taken(final):
        return None
    final.parent.mkdir(parents=True, exist_ok=True)
    with _draft_beside(final) as folder:
        published = write_files(folder, draft, created=whole_minute(dt.datetime.now(dt.UTC)))
        confirm()
        try:
            folder.rename(final)
        except OSError:
            if not os.path.lexists(final):
                raise
            return None
    sync_path(final.parent)
    return replace(published, folder=final)


def _draft_beside(final: Path) -> AbstractContextManager[Path]:
    return new_draft(final.with_name(f"{DRAFT_OF_RELEASE}{final.name}-{secrets.token_hex(4)}"))


def _uploaded(draft: Draft, final: ObjectPath, *, ledger: Ledger) -> Published:
    """Write the release to a temporary folder of this machine, and upload it from there."""
    run, taken, moment = draft.statement.run, _is_taken(final), _agreed(draft, final, ledger=ledger)
    with tempfile.TemporaryDirectory() as above, new_draft(Path(above, "release")) as local:
        published = write_files(local, _as_of(draft, moment), created=moment.created)
        if taken and Contents.read(final).digest != published.manifest_sha256:
            raise _another(final, "its files are not those that this run would write", run=run)
        names = [path.relative_to(local).as_posix() for path in local.rglob("*") if path.is_file()]
        names.remove(MANIFEST)
        _require_publishable(final, run=run, ledger=ledger)
        for name in sorted(names, key=lambda name: (name.startswith(f"{DATA}/"), name)):  # the rows last
            (final / name).upload(local / name)
        _require_publishable(final, run=run, ledger=ledger)
        remove_objects(final, but={*names, MANIFEST, WITHDRAWN})  # what an earlier attempt with other settings has left
        (final / MANIFEST).upload(local / MANIFEST)
    return replace(published, folder=final, appeared=not taken)


def _require_publishable(final: ObjectPath, *, run: str, ledger: Ledger) -> None:
    """Raise if the ledger has lost the run, or the release was withdrawn meanwhile: then nothing of it may appear again."""
    ledger.confirm()
    if is_there(final / WITHDRAWN):
        raise OutputError(
            f"{final / WITHDRAWN} says that the release of run {run} was withdrawn, so it is not written again; see: dpflow ledger verify"
        )


class _Moment(NamedTuple):
    """What a manifest states about the moment of its publication: its time, the head of the ledger, and the release before it."""

    created: str
    head: str
    before: str | None


def _moment_in(manifest: bytes | None) -> _Moment | None:
    """Return what a manifest states about the moment of its publication, or None if that is missing or malformed."""
    try:
        content = json.loads(manifest or b"")
        moment = _Moment(content["created"], content["privacy"]["ledger_head"], content["version"]["before"])
        whole = whole_minute(dt.datetime.fromisoformat(moment.created)) == moment.created
    except MALFORMED:
        return None
    before = moment.before is None or is_name(moment.before)
    return moment if whole and before and isinstance(moment.head, str) else None


def _as_of(draft: Draft, moment: _Moment) -> Draft:
    return replace(draft, statement=replace(draft.statement, ledger_head=moment.head), before=moment.before)


def _agreed(draft: Draft, final: ObjectPath, *, ledger: Ledger) -> _Moment:
    """Return the moment that all attempts of a run state: that of the first one.

    Raises:
        OutputError: If the note of that moment is not one that this ledger can have written.
    """
    now = whole_minute(dt.datetime.now(dt.UTC))
    own = {"created": now, "privacy": {"ledger_head": draft.statement.ledger_head}, "version": {"before": draft.before}}
    note = publication_note(final)
    note.create((json.dumps(own) + "\n").encode("utf-8"))
    moment = _moment_in(read_regular(note, limit=LARGEST_NOTE))  # another attempt's, if it was quicker
    if moment is None or not ledger.has_event(moment.head):
        raise OutputError(
            f"{note} is not a note of this ledger; remove it, then let the run write its release with --resume {draft.statement.run}"
        )
    return moment


_IN_THE_WAY, _DENIED = "a file is in the place of a folder; move it away", "permission denied; make it writable"
_ADVICE = {
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the disk is read-only; make it writable",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
}


@contextmanager
def _output_errors(folder: AnyPath, run_id: str) -> Iterator[None]:
    """Convert the errors of a disk or a store. The run is already paid for, so the message says how to resume it."""
    problem = None
    try:
        yield
    except OSError as error:
        if isinstance(folder, ObjectPath):
            problem = error.strerror or "the disk of this machine failed; check its space and TMPDIR"
        else:
            problem = _ADVICE.get(error.errno or 0, "file system error; check the disk")
    if problem:
        raise OutputError(f"the release cannot be written to {folder}: {problem}, then resume with --resume {run_id}")
