"""The newest head of each ledger that was seen from here, so that an old copy that was put back is noticed.

A backup of a ledger is as sound as the ledger: its chain verifies, and its account has the budget of then. Only somebody who
has seen a later event knows that it was spent since. The memory is one small file for each ledger in the steward's private folder.
"""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """The newest event of a ledger that was seen from here.

    Attributes:
        ledger: The ledger's identity.
        seq: The event's number.
        hash: Its hash, which stands for all events before it.
        at: When it was seen.
        place: Where the ledger was then, without any password; the name alone for a file beside the private folder, so that
            both can be moved together.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    ledger: str
    seq: int
    hash: str
    at: str
    place: str


_SEEN = TypeAdapter(SeenHead)


class HeadMemory:
    """The remembered heads in a folder; any number of processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, ledger: str) -> SeenHead | None:
        """Return the newest head of a ledger that was seen, if one was.

        Raises:
            LedgerDamaged: If the file is there and does not read, or may not be read.
        """
        path = self._path(ledger)
        try:
            seen = _SEEN.validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except PermissionError:
            if not os.access(self._folder, os.X_OK, effective_ids=True):
                return None  # the memory of somebody else; who can't open the folder is refused before writing
            raise LedgerDamaged(
                f"{path} may not be read by this user, so nobody can tell whether this is an old copy of the ledger; give the "
                "file to whoever owns its folder (chown), or work as the user who wrote it"
            ) from None
        except (OSError, ValidationError):
            seen = None
        if seen is None or seen.ledger != ledger:
            raise LedgerDamaged(
                f"{path} does not read as the newest head that was seen of the ledger; restore it from a backup, or, if "
                "`dpflow ledger verify` with a head that you noted elsewhere finds nothing, delete it"
            )
        return seen

    def require_never_lost(self, file: Path) -> None:
        """Refuse if a ledger is gone that was at this place: a new one there would have a new budget."""
        if not file.exists():
            for path, seen in self._seen_at(str(file.resolve())):  # also where the folder with both was moved
                raise LedgerDamaged(
                    f"the ledger at {file} is gone, and event {seen.seq} of it was seen on {seen.at[:19]}; put it back from "
                    f"a backup, or, if a new ledger with a new budget shall take its place, delete {path}"
                )

    def require_no_other(self, ledger: str, *, place: str) -> None:
        """Refuse a ledger at a place where another one was seen: its budget is another one, too."""
        for path, seen in self._seen_at(place):
            if seen.ledger != ledger:
                raise LedgerDamaged(
                    f"at {place} is ledger {ledger[:12]}... now, and ledger {seen.ledger[:12]}... was seen there on "
                    f"{seen.at[:19]}; put that one back, or, if this one shall take its place, delete {path}"
                )

    def _seen_at(self, place: str) -> Iterator[tuple[Path, SeenHead]]:
        try:
            paths = sorted(self._folder.glob("*.json"))
        except PermissionError:  # the memory of somebody else
            return
        for path in paths:
            seen = self.recall(path.stem)
            if seen is not None and seen.place in {place, self._kept_place(place)}:
                yield path, seen

    def remember(self, ledger: str, head: Head, *, place: str, holds: Callable[[SeenHead], bool]) -> None:
        """Remember a head unless a later one is known, and where the ledger is now.

        Args:
            ledger: The ledger's identity.
            head: Its newest event.
            place: Where it is.
            holds: Says whether the ledger has the event that is known. Two copies of a ledger that are in use at once share this memory;
                the second to charge finds here what the first did.

        Raises:
            LedgerDamaged: If the ledger lacks the event that is known.
        """
        with self._writable(), self._alone():
            try:
                known = self.recall(ledger)
            except LedgerDamaged:  # stays as it is, for the steward to look at
                return
            if known is not None and not holds(known):
                raise LedgerDamaged(
                    f"the ledger at {place} lacks event {known.seq}, which another copy of it has had since {known.at[:19]}, at "
                    f"{known.place}; nothing was drawn or published: stop all runs, decide which copy is the ledger, and remove the other"
                )
            kept = self._kept_place(place)
            if known is None or known.seq < head.seq:
                self._replace(ledger, head, place=kept)
            elif known.place != kept:
                _replace(self._path(ledger), replace(known, place=kept))

    def replace(self, ledger: str, head: Head, *, place: str) -> None:
        """Remember a head in place of whatever is known, after the steward has accepted what was lost."""
        with self._writable(), self._alone():
            self._replace(ledger, head, place=self._kept_place(place))

    def _replace(self, ledger: str, head: Head, *, place: str) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        _replace(self._path(ledger), SeenHead(ledger=ledger, seq=head.seq, hash=head.hash, at=at, place=place))

    def _kept_place(self, place: str) -> str:
        """Return a place as it is remembered: of a file beside the private folder, its name."""
        beside = self._folder.parent.parent.resolve()
        return Path(place).name if Path(place).parent == beside else place

    def require_writable(self) -> None:
        """Refuse, before anything is charged, if nothing can be remembered."""
        with self._writable(), self._alone():
            if not os.access(self._folder, os.W_OK | os.X_OK, effective_ids=True):  # the lock was there already
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    @property
    def exists(self) -> bool:
        """Whether the private folder is there already."""
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
                f"the newest head of the ledger cannot be kept in {self._folder} ({error.strerror}); make that folder "
                "writable, or name another private folder in DPFLOW_PRIVATE"
            ) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _path(self, ledger: str) -> Path:
        return self._folder / f"{ledger}.json"


def continues(rows: LedgerTransaction, head: Head, *, seq: int, digest: str) -> bool:
    """Say whether the chain that ends with `head` still holds the event of this number and hash."""
    if head.seq <= seq:
        return (head.seq, head.hash) == (seq, digest)
    return seq == 0 or rows.hash_of(seq) == digest


def require_continues(rows: LedgerTransaction, head: Head, *, seen: Head, place: str) -> None:
    """Refuse a chain that has lost the event which this process has seen as its last."""
    if not continues(rows, head, seq=seen.seq, digest=seen.hash):
        raise LedgerDamaged(
            f"the ledger at {place} ends with event {head.seq} and has lost event {seen.seq}, which was its last a moment "
            "ago; nothing was drawn or published: stop all runs, put the ledger back, then resume"
        )


def loss_accepted(rows: LedgerTransaction, *, seq: int, digest: str, since: int | None = None) -> bool:
    """Say whether the steward has put on record that an event was lost; looks at every event.

    Args:
        rows: A transaction of the ledger.
        seq: The number of the event that is missing.
        digest: Its hash. A record names the last event that was lost by its hash, and those before it only by their numbers.
        since: The newest record that was known when the event was seen; a later one whose range includes `seq` is about it. None where only
            the last event of a loss counts.
    """
    for event in rows.events_of_kind(EventKind.RESTORED):
        lost = event.details
        if (lost["seq"], lost["hash"]) == (seq, digest):
            return True
        if since is not None and since < event.seq <= seq < lost["seq"]:
            return True
    return False


def last_accepted_loss(rows: LedgerTransaction) -> int:
    """Return the number of the newest event by which the steward has accepted a loss; 0 if there is none."""
    return max((event.seq for event in rows.events_of_kind(EventKind.RESTORED)), default=0)


def _replace(path: Path, seen: SeenHead) -> None:
    """Let the file appear whole; whoever calls holds the lock."""
    draft = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            _give_to_owner_of_folder(file.fileno(), path.parent)
            file.write(json.dumps(_SEEN.dump_python(seen, mode="json"), indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _give_to_owner_of_folder(file: int, folder: Path) -> None:
    """Let root, such as by one `sudo`, leave no file behind that the steward cannot read."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(file, owner.st_uid, owner.st_gid)
