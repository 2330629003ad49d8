"""Open a ledger that this user may only read: a protected file or folder, or a read-only disk.

In write-ahead mode SQLite writes files beside the database even to read it, unless they exist already. If they do not exist, nobody has
the ledger open, and the database file alone is the ledger. It is then read as an immutable file, which creates and locks nothing. The
file is checked after each transaction, because a writer that started meanwhile may have invalidated the reads.
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
"""Opens the file with the given URI parameters."""


@dataclass(frozen=True)
class Frozen:
    """The state of a ledger's file when it was opened as immutable."""

    path: Path
    state: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> Self:
        """Record the state of the file and its journal."""
        return cls(path, _state(path))

    def require_unchanged(self) -> None:
        """Raise if the file was written to since."""
        if _state(self.path) != self.state:
            raise LedgerError(f"the ledger at {self.path} was written to while it was read without a lock; try again")


def may_write(path: Path) -> bool:
    """Return whether the file's permissions and its disk let this user write. Its folder may still refuse."""
    return os.access(path, os.W_OK)


def refuses_writing(error: sqlite3.Error) -> bool:
    """Return whether SQLite failed to open a file because it may not write."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _REFUSED


def connect_to_read(path: Path, connect: Connect) -> tuple[sqlite3.Connection, Frozen | None]:
    """Open a file for reading. If it cannot be locked, also return its state, to compare after each transaction."""
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
            f"the ledger at {path} {REFUSAL}, or ask a user who may write it to run dpflow ledger show once: "
            "its journal has to be merged before it can be read"
        )
    return connect("mode=ro&immutable=1"), frozen


def _state(path: Path) -> tuple[int, ...]:
    file = path.stat()
    journal = path.with_name(f"{path.name}-wal")
    written = journal.stat().st_size if journal.exists() else 0
    return file.st_ino, file.st_size, file.st_mtime_ns, written
