"""Open a ledger that this user may read and not write: a protected file or folder, or a read-only disk.

SQLite in write-ahead mode writes beside the file even to read it. Where the journal's files are there already, it can do without; where
they are not, nobody has the ledger open, and the file alone is the ledger. Then it is read as an immutable file, which makes and locks
nothing, and after each transaction the file is looked at again: whoever began to write meanwhile has made what was read doubtful.
"""

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dpcore.errors import LedgerError

_REFUSED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
REFUSAL = "is read-only for this user; allow writing to the file and its folder"

Connect = Callable[[str], sqlite3.Connection]
"""Open the file with these parameters of a URI."""


@dataclass(frozen=True)
class Frozen:
    """A ledger's file as it was when it was opened as one that nobody writes."""

    path: Path
    state: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> Self:
        """Look at the file and at its journal."""
        return cls(path, _state(path))

    def require_unchanged(self) -> None:
        """Refuse what was read if somebody has written since."""
        if _state(self.path) != self.state:
            raise LedgerError(f"the ledger at {self.path} was written to while it was read without a lock; try again")


def may_write(path: Path) -> bool:
    """Say whether the file's permissions and its disk let this user write; its folder may still refuse."""
    return os.access(path, os.W_OK)


def refuses_writing(error: sqlite3.Error) -> bool:
    """Say whether SQLite could not open a file because it would have to write."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _REFUSED


def connect_to_read(path: Path, connect: Connect) -> tuple[sqlite3.Connection, Frozen | None]:
    """Open a file to read it; return what to compare it with afterwards if it could not be locked."""
    journal, shared = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))
    frozen = Frozen.of(path)
    if journal.exists() and shared.exists():
        try:
            return connect("mode=ro"), None
        except sqlite3.Error as error:
            if not refuses_writing(error):
                raise
    if journal.exists() and journal.stat().st_size:
        raise LedgerError(
            f"the ledger at {path} {REFUSAL}, or let whoever may write it run dpflow ledger show once: "
            "its journal has to be merged before it can be read"
        )
    return connect("mode=ro&immutable=1"), frozen


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    journal = path.with_name(f"{path.name}-wal")
    written = journal.stat().st_size if journal.exists() else 0
    return found.st_ino, found.st_size, found.st_mtime_ns, written
