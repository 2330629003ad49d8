"""Withdraw a release: remove its data, and keep its manifest and the reason, so that every reader gets a clear message.

The ledger records the withdrawal first. Everything after that follows from the recorded event, and every step can be repeated. So a
process that is killed in between leaves a release that the next call finishes, with the same bytes.

Programs that read Parquet know nothing of withdrawals. For them a file lies where the rows were. Its name says what happened, and it is not a
Parquet file, so reading it fails with an error that names it. Retention, which removes the data of releases beyond the number that the spec
keeps, leaves no such file, so that a reader of all releases reads the kept ones.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from dpcore.errors import DpflowError, OutputError, ReleaseDamaged, UsageError
from dpcore.ledger import Event, EventKind, Ledger, Run
from dpcore.object_store import AnyPath, ObjectPath, below
from dpcore.release.atomic_files import sync_path, write_note
from dpcore.release.dataset_folder import LATEST, newest_release, point_latest, reservation_numbers
from dpcore.release.integrity import (
    LARGEST_MANIFEST,
    LARGEST_NOTE,
    MANIFEST,
    damaged,
    is_there,
    one_line,
    raise_store_error,
    raise_unless_gone,
    read_manifest,
    read_published,
    read_regular,
    refuse_store_error,
    walk,
)
from dpcore.reporting.lineage import needed_by_open_runs
from dpcore.reporting.session_claims import beginnings
from dpcore.spec import Declaration

progress = logging.getLogger("dpcore.progress")

WITHDRAWN = "withdrawn.json"
DATA = "data"
SIGN = "this-release-was-withdrawn.parquet"
_REMOVED = ".removed-data"


@dataclass(frozen=True)
class Notice:
    """What a withdrawn release says about itself, in `withdrawn.json`.

    Attributes:
        release: The name of the release.
        withdrawn_at: The minute in which the ledger recorded the withdrawal.
        reason: The recorded reason.
        keep: How many newer releases retention keeps; None if a steward withdrew the release.
        ledger: The identity of the ledger.
        event: The number of the ledger's event.
        event_hash: The hash of that event.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    release: str
    withdrawn_at: str
    reason: str
    keep: int | None
    ledger: str
    event: int
    event_hash: str

    @property
    def sentence(self) -> str:
        """What happened, for the person who wanted to read the release."""
        day, reason = one_line(self.withdrawn_at[:10]), one_line(self.reason)
        if self.keep is None:
            return f"release {one_line(self.release)} was withdrawn on {day}: {reason}"
        return f"the data of release {one_line(self.release)} was removed on {day}: {reason}"

    def encoded(self) -> bytes:
        """Return the content of `withdrawn.json`, which depends only on the ledger's event."""
        return (json.dumps(asdict(self), indent=2) + "\n").encode("utf-8")


_NOTICE = TypeAdapter(Notice)


def notice_of(event: Event, *, ledger: str) -> Notice:
    """Return the notice for an event. `ledger` is the ledger's identity."""
    details = event.details
    return Notice(
        release=details["release"],
        withdrawn_at=event.at,
        reason=details["reason"],
        keep=details.get("keep"),
        ledger=ledger,
        event=event.seq,
        event_hash=event.hash,
    )


def read_notice(release: AnyPath) -> Notice | None:
    """Return the notice of a withdrawn release, or None if it is not withdrawn.

    Raises:
        ReleaseDamaged: If there is a notice, but it cannot be read.
        OutputError: If the store of the release fails.
    """
    try:
        return _NOTICE.validate_json(read_regular(release / WITHDRAWN, limit=LARGEST_NOTE))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        refuse_store_error(release / WITHDRAWN, error)
        raise ReleaseDamaged(
            f"{one_line(release)} was withdrawn, but its {WITHDRAWN} cannot be read; ask the steward for the reason"
        ) from None


def require_not_withdrawn(release: AnyPath) -> None:
    """Raise if a release was withdrawn.

    Raises:
        UsageError: With the date and the reason.
    """
    if notice := read_notice(release):
        raise UsageError(f"{notice.sentence}; list the others with: dpflow releases {one_line(release.parent)}")


def require_rewritable(ledger: Ledger, run: Run) -> None:
    """Raise if a run's release was withdrawn. Otherwise a retry of the run would write it again from the transcript.

    Raises:
        UsageError: With the date and the reason.
    """
    if run.release is not None and (event := ledger.withdrawals(run.account).get(run.id)):
        notice = notice_of(event, ledger=ledger.identity())
        raise UsageError(f"{notice.sentence}; it cannot be written again, so start a new run")


def live_numbers(ledger: Ledger, account: str) -> dict[str, int]:
    """Return the `reservation_numbers` of the account's runs whose releases are not withdrawn."""
    withdrawn = ledger.withdrawals(account)
    return reservation_numbers(run for run in ledger.runs(account) if run.id not in withdrawn)


def live_runs(ledger: Ledger, account: str) -> list[Run]:
    """Return the runs of an account that have published a release which is not withdrawn, by their reservations. The last is the newest."""
    withdrawn = ledger.withdrawals(account)
    live = (run for run in ledger.runs(account) if run.release is not None and run.id not in withdrawn)
    return sorted(live, key=lambda run: run.first)


def is_recorded(ledger: Ledger, run_id: str, release: AnyPath) -> bool:
    """Return whether a folder holds a release that this run has recorded, and not a copy with another manifest.

    Raises:
        OSError: If the store of the release fails.
    """
    try:
        written = read_manifest(release / MANIFEST)
    except OSError as error:
        raise_store_error(release, error)
        return False
    return hashlib.sha256(written).hexdigest() in ledger.manifests_of(run_id)


def recorded_manifest(ledger: Ledger, run: Run, release: AnyPath) -> bytes:
    """Return the manifest of a settled run's release, as the ledger has recorded it.

    Raises:
        ReleaseDamaged: If it is missing, or something else. The ledger names the release, so it is never taken for one that is not there.
        OutputError: If that cannot be known, for example because a store fails.
    """
    written = read_published(release, MANIFEST, limit=LARGEST_MANIFEST, run=run.id)
    if hashlib.sha256(written).hexdigest() not in ledger.manifests_of(run.id):
        raise damaged(release, f"{MANIFEST} is not what the ledger has recorded", run=run.id)
    return written


def withdraw(ledger: Ledger, run_id: str, release: AnyPath, *, reason: str, keep: int | None = None) -> Notice:
    """Withdraw a release: record it, then remove the data. Repeating it finishes what an interrupted call has left.

    Args:
        ledger: The ledger that recorded the release.
        run_id: The run that made it.
        release: The folder of the release. If it does not exist, the withdrawal is only recorded.
        reason: The reason to record and publish.
        keep: How many newer releases retention keeps; None for a steward's withdrawal.

    Raises:
        OutputError: If the files cannot be removed. The withdrawal is recorded.
        UsageError: If the run has no release.
    """
    ledger.withdraw(run_id, reason=reason, keep=keep)
    return remove_data(ledger, run_id, release)


def remove_data(ledger: Ledger, run_id: str, release: AnyPath) -> Notice:
    """Make a folder that of a withdrawn release: readers are told first, then `latest.json` moves on, then the data goes.

    Raises:
        OutputError: If the files cannot be removed, or the folder does not hold what the ledger recorded.
    """
    account = ledger.run(run_id).account
    notice = _recorded_notice(ledger, account, run_id)
    folder, beside = _followed(release), _followed(release.parent)
    try:
        if not is_there(folder / MANIFEST):
            _point_to_another(beside, notice.release, ledger=ledger, account=account)
            return notice
        with _locked(folder):
            notice = _recorded_notice(
                ledger, account, run_id
            )  # a steward may have withdrawn what retention was removing
            if not is_recorded(ledger, run_id, folder):  # the folder, or a link to it, may have been replaced
                raise OutputError(
                    f"{notice.sentence}, but {one_line(folder)} holds something else, so nothing was removed; see: dpflow ledger verify"
                )
            write_note(folder / WITHDRAWN, notice.encoded())
            _point_to_another(beside, notice.release, ledger=ledger, account=account)
            if isinstance(folder, ObjectPath):
                _replace_objects(folder, notice)
            else:
                _replace_files(folder, notice)
        if isinstance(folder, ObjectPath) and _recorded_notice(ledger, account, run_id) != notice:
            return remove_data(ledger, run_id, release)  # a store has no lock, and the notice was replaced meanwhile
    except OSError as error:
        raise OutputError(
            f"{notice.sentence}, but its files in {one_line(folder)} cannot be removed ({error.strerror}); make the folder "
            "writable, and run the same command again"
        ) from None
    return notice


def _recorded_notice(ledger: Ledger, account: str, run_id: str) -> Notice:
    return notice_of(ledger.withdrawals(account)[run_id], ledger=ledger.identity())


def _followed(path: AnyPath) -> AnyPath:
    return path if isinstance(path, ObjectPath) else Path(os.path.realpath(path))


@contextmanager
def _locked(folder: AnyPath) -> Iterator[None]:
    """Let one process at a time change a release, so that what a killed one has left can be removed. The lock ends with the process.

    In an object store nothing is renamed, and each step only writes or removes what the recorded notice says. So no lock is needed.
    """
    if isinstance(folder, ObjectPath):
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _point_to_another(folder: AnyPath, name: str, *, ledger: Ledger, account: str) -> None:
    """Point `latest.json` to the newest release that is not withdrawn. If all are, it stays with the newest, which says so."""
    if not is_there(folder / LATEST):
        return
    newest = newest_release(folder, reservation_numbers(ledger.runs(account))) or name
    point_latest(folder, newest, numbers=lambda: live_numbers(ledger, account))


def _replace_objects(folder: ObjectPath, notice: Notice) -> None:
    """Put the sign beside the rows, so that reading them fails from then on. Then remove everything but it, the manifest and the notice."""
    left = {MANIFEST, WITHDRAWN}
    if notice.keep is None:
        left.add(f"{DATA}/{SIGN}")
        (folder / DATA / SIGN).write(sign_of(notice))
    remove_objects(folder, but=left)


def remove_objects(folder: ObjectPath, *, but: Collection[str]) -> None:
    """Remove all objects below a folder, except those with these paths in it."""
    objects = [above / name for above, _, names in walk(folder) for name in names]
    for path in objects:
        if isinstance(path, ObjectPath) and str(below(folder, path)) not in but:
            path.unlink()


def _replace_files(folder: Path, notice: Notice) -> None:
    """Remove everything but the manifest and the notice, the rows in one step. Then put the sign where they were."""
    _remove(folder / _REMOVED)
    with suppress(FileNotFoundError):
        (folder / DATA).rename(folder / _REMOVED)
    for entry in sorted(folder.iterdir()):
        if entry.name not in {MANIFEST, WITHDRAWN}:
            _remove(entry)
    if notice.keep is None:
        (folder / DATA).mkdir()
        write_note(folder / DATA / SIGN, sign_of(notice))
    sync_path(folder)


def sign_of(notice: Notice) -> bytes:
    """Return the content of the file that lies where the rows were."""
    return f"This is not a Parquet file: {notice.sentence}. See {WITHDRAWN} and {MANIFEST}.\n".encode()


def _remove(path: Path) -> None:
    """Remove a file or a folder. A link is removed, not followed."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        raise_unless_gone(error)


def retain_declared(ledger: Ledger, account: str, declaration: Declaration) -> None:
    """Remove the data of older releases than the spec keeps. A failure does not undo the publication, so it is only a warning."""
    keep = declaration.spec.output.keep
    if keep is None:
        return
    try:
        removed = retain(ledger, account, declaration.output_folder, keep=keep)
    except DpflowError as error:
        progress.warning("warning: older releases were not removed: %s", error)
    except OSError as error:
        progress.warning("warning: older releases were not removed: %s", error.strerror)
    else:
        for name in removed:
            progress.info("removed the data of release %s: the spec keeps %d", name, keep)


def retain(ledger: Ledger, account: str, folder: AnyPath, *, keep: int) -> tuple[str, ...]:
    """Keep the newest releases of a dataset's folder, and remove the data of all others. Return the names of those removed now.

    Newest means reserved last, as for `latest.json`. Runs that end at the same time may both call this. Releases only become more, so neither
    call removes one of the newest. An earlier removal that was interrupted is finished. Releases that open sessions began with, or
    that open runs start from, are neither counted nor removed: those sessions and runs need them.

    Args:
        ledger: The ledger that recorded the releases.
        account: The account that paid for them.
        folder: The folder that holds the releases of the dataset.
        keep: How many releases to keep, at least 1.

    Raises:
        OutputError: If files cannot be removed.
    """
    for run_id, event in ledger.withdrawals(account).items():
        release = folder / str(event.details["release"])
        if event.kind is EventKind.REMOVED and _has_files(release) and is_recorded(ledger, run_id, release):
            remove_data(ledger, run_id, release)
    needed = beginnings(ledger, account) | needed_by_open_runs(ledger, account)
    live = [
        (run.id, str(run.release))
        for run in live_runs(ledger, account)
        if run.id not in needed and is_recorded(ledger, run.id, folder / str(run.release))
    ]
    reason = "retention: only the newest release is kept" if keep == 1 else f"retention: the newest {keep} are kept"
    for run_id, name in live[:-keep]:
        withdraw(ledger, run_id, folder / name, reason=reason, keep=keep)
    return tuple(name for _, name in live[:-keep])


def _has_files(release: AnyPath) -> bool:
    """Return whether a release has more than the manifest and the notice that a removal leaves."""
    return is_there(release / MANIFEST) and sum(1 for _ in release.iterdir()) > 2
