"""Remember the newest head seen of each ledger, so that a restored old copy is detected.

A backup is internally consistent: its chain verifies, and its accounts have the budget of that time. Only a record of a later
event shows that budget was spent since. The memory is one small file per ledger in the steward's private folder.
"""

import errno
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger.rows import EventKind
from dpcore.ledger.transaction import Head, LedgerTransaction

FOLDER = "heads"
_LOCK = ".lock"


@dataclass(frozen=True)
class SeenHead:
    """The newest event seen of a ledger.

    Attributes:
        ledger: The ledger's identity.
        seq: The event's number.
        hash: The event's hash, which commits to all events before it.
        at: When the event was seen.
        place: Where the ledger was then, without any password. For a file beside the private folder this is its name only, so
            that both can be moved together.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    ledger: str
    seq: int
    hash: str
    at: str
    place: str


_SEEN = TypeAdapter(SeenHead)


class HeadMemory:
    """The remembered heads in a folder. Safe for concurrent use by many processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, ledger: str) -> SeenHead | None:
        """Return the newest head seen of a ledger, or None.

        Raises:
            LedgerDamaged: If anything is there but a valid file, even a broken link, or this user may not read it.
        """
        path = self._path(ledger)
        try:
            seen = _SEEN.validate_json(_read(path))
        except FileNotFoundError:
            return None
        except PermissionError:
            if not os.access(self._folder, os.X_OK, effective_ids=True):
                return None  # the folder belongs to another user; `require_writable` refuses this user before any write
            raise LedgerDamaged(
                f"this user may not read {path}, so an old copy of the ledger would not be detected; give the "
                "file to the owner of its folder (chown), or work as the user who wrote it"
            ) from None
        except (OSError, ValidationError):
            seen = None
        if seen is None or seen.ledger != ledger:
            raise LedgerDamaged(
                f"{path} is not a valid record of the ledger's newest head; restore it from a backup, or, if "
                "`dpflow ledger verify` with a head that you noted elsewhere finds nothing, delete it"
            )
        return seen

    def require_never_lost(self, file: Path) -> None:
        """Raise if a ledger was seen at this path but the file is gone: a new ledger there would have a new budget."""
        if not file.exists():
            for path, seen in self._seen_at(str(file.resolve())):  # also finds a ledger moved with this folder
                raise LedgerDamaged(
                    f"the ledger at {file} is gone; its event {seen.seq} was seen on {seen.at[:19]}; restore it from "
                    f"a backup, or, to replace it by a new ledger with a new budget, delete {path}"
                )

    def require_no_other(self, ledger: str, *, place: str) -> None:
        """Raise if another ledger, and so another budget, was seen at this place."""
        for path, seen in self._seen_at(place):
            if seen.ledger != ledger:
                raise LedgerDamaged(
                    f"{place} now holds ledger {ledger[:12]}..., but ledger {seen.ledger[:12]}... was seen there on "
                    f"{seen.at[:19]}; put that one back, or, to accept the new ledger in its place, delete {path}"
                )

    def _seen_at(self, place: str) -> Iterator[tuple[Path, SeenHead]]:
        try:
            paths = sorted(self._folder.glob("*.json"))
        except PermissionError:  # the folder belongs to another user
            return
        for path in paths:
            seen = self.recall(path.stem)
            if seen is not None and seen.place in {place, self._kept_place(place)}:
                yield path, seen

    def remember(self, ledger: str, head: Head, *, place: str, holds: Callable[[SeenHead], bool]) -> None:
        """Remember a head, unless a later one is known, and the ledger's current place.

        Args:
            ledger: The ledger's identity.
            head: Its newest event.
            place: Where it is.
            holds: Tells whether the ledger contains the remembered event. Two copies of a ledger in use at once share this memory,
                so the second copy to charge finds the event of the first here.

        Raises:
            LedgerDamaged: If the ledger lacks the remembered event, or the file has become invalid. Nothing may be drawn then, because an
                old copy of the ledger would not be detected.
        """
        with self._writable(), self._locked():
            remembered = self.recall(ledger)  # an invalid file is kept for the steward to inspect
            if remembered is not None and not holds(remembered):
                raise LedgerDamaged(
                    f"the ledger at {place} lacks event {remembered.seq}, which was seen on {remembered.at[:19]} in another copy at "
                    f"{remembered.place}; nothing was drawn or published: stop all runs, decide which copy is the ledger, and remove the other"
                )
            stored_place = self._kept_place(place)
            if remembered is None or remembered.seq < head.seq:
                self._replace(ledger, head, place=stored_place)
            elif remembered.place != stored_place:
                _replace(self._path(ledger), replace(remembered, place=stored_place))

    def replace(self, ledger: str, head: Head, *, place: str) -> None:
        """Overwrite the remembered head, after the steward has accepted the loss of events."""
        with self._writable(), self._locked():
            self._replace(ledger, head, place=self._kept_place(place))

    def _replace(self, ledger: str, head: Head, *, place: str) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        _replace(self._path(ledger), SeenHead(ledger=ledger, seq=head.seq, hash=head.hash, at=at, place=place))

    def _kept_place(self, place: str) -> str:
        """Return the form in which a place is stored: for a file beside the private folder, its name only."""
        beside = self._folder.parent.parent.resolve()
        return Path(place).name if Path(place).parent == beside else place

    def require_writable(self) -> None:
        """Raise, before anything is charged, if the memory cannot be written."""
        with self._writable(), self._locked():
            if not os.access(self._folder, os.W_OK | os.X_OK, effective_ids=True):  # the lock file existed
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    @property
    def exists(self) -> bool:
        """Whether the private folder exists."""
        return self._folder.parent.is_dir()

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            self._folder.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.parent.mkdir(mode=0o700, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            yield
        except OSError as error:
            raise LedgerError(
                f"the newest head of the ledger cannot be stored in {self._folder} ({error.strerror}); make that folder "
                "writable, or set DPFLOW_PRIVATE to another private folder"
            ) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _path(self, ledger: str) -> Path:
        return self._folder / f"{ledger}.json"


def continues(rows: LedgerTransaction, head: Head, *, seq: int, digest: str) -> bool:
    """Return whether the chain that ends with `head` still contains the event with this number and hash."""
    if head.seq <= seq:
        return (head.seq, head.hash) == (seq, digest)
    return seq == 0 or rows.hash_of(seq) == digest


def require_continues(rows: LedgerTransaction, head: Head, *, seen: Head, place: str) -> None:
    """Raise if the chain has lost the last event that this process saw."""
    if not continues(rows, head, seq=seen.seq, digest=seen.hash):
        raise LedgerDamaged(
            f"the ledger at {place} ends with event {head.seq} and has lost event {seen.seq}, which was its last a moment "
            "ago; nothing was drawn or published: stop all runs, restore the ledger, then resume"
        )


def loss_accepted(rows: LedgerTransaction, *, seq: int, digest: str, since: int | None = None) -> bool:
    """Return whether the steward has recorded that an event was lost. Scans the whole chain.

    Args:
        rows: A transaction of the ledger.
        seq: The number of the missing event.
        digest: The hash of the missing event. A record names the last lost event by its hash, and those before it only by number.
        since: The newest record known when the event was seen. A later record whose range includes `seq` covers the event.
            With None, a record counts only if `seq` is the last event it names.
    """
    for event in rows.events_of_kind(EventKind.RESTORED):
        lost = event.details
        if (lost["seq"], lost["hash"]) == (seq, digest):
            return True
        if since is not None and since < event.seq <= seq < lost["seq"]:
            return True
    return False


def last_accepted_loss(rows: LedgerTransaction) -> int:
    """Return the number of the newest event in which the steward accepted a loss; 0 if there is none."""
    return max((event.seq for event in rows.events_of_kind(EventKind.RESTORED)), default=0)


def _read(path: Path) -> bytes:
    """Return the content of a regular file. Never follow a link, and never wait for the other end of a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _replace(path: Path, seen: SeenHead) -> None:
    """Write the file atomically. The caller holds the lock, so any other draft was left behind by a process that was killed."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            leftover.unlink()
    # A new file, readable by this user only, with a name that nobody can foresee and plant something at.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            _give_to_owner_of_folder(file.fileno(), path.parent)
            file.write(json.dumps(_SEEN.dump_python(seen, mode="json"), indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _give_to_owner_of_folder(file: int, folder: Path) -> None:
    """When running as root, as under `sudo`, give the file to the folder's owner so that the steward can read it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(file, owner.st_uid, owner.st_gid)
