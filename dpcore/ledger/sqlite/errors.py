"""Convert the errors of SQLite and the file system to DpflowErrors that say what to do next."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger.sqlite.read_only import REFUSAL
from dpcore.ledger.store import CONTRADICTS, DAMAGED, DISK_FULL, LOCKED, NO_MEMORY, TOO_LARGE, Meaning

_DENIED = (LedgerError, "may not be used by this user; allow writing to the file and its folder")

_MEANINGS: dict[int, Meaning] = {
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_FULL: DISK_FULL,
    sqlite3.SQLITE_READONLY: (LedgerError, REFUSAL),
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_AUTH: _DENIED,
    sqlite3.SQLITE_CANTOPEN: (LedgerError, "cannot be opened; allow this user to write to the file and its folder"),
    sqlite3.SQLITE_IOERR: (
        LedgerError,
        "cannot be read or written; check its disk (space, quota, health), then try again",
    ),
    sqlite3.SQLITE_IOERR_SHORT_READ: (
        LedgerDamaged,
        "or its log was cut while it was open; nothing was drawn or published: stop all runs, restore the ledger, then resume",
    ),
    sqlite3.SQLITE_PROTOCOL: (LedgerError, "cannot be locked; keep it on a local disk, not on a network folder"),
    sqlite3.SQLITE_NOLFS: (LedgerError, "is too large for its file system; move it to another disk"),
    sqlite3.SQLITE_TOOBIG: TOO_LARGE,
    sqlite3.SQLITE_NOMEM: NO_MEMORY,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_FORMAT: DAMAGED,
    sqlite3.SQLITE_SCHEMA: DAMAGED,
    sqlite3.SQLITE_ERROR: DAMAGED,
    sqlite3.SQLITE_MISMATCH: DAMAGED,
    sqlite3.SQLITE_CONSTRAINT: CONTRADICTS,
}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Convert every error of SQLite or the file system to a one-line error about the ledger at `path`."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise LedgerError(
            f"the ledger at {path} is closed, or was opened by another thread; open it again where it is used"
        ) from error
    except sqlite3.Error as error:
        # An error without a code means that the module could not convert a stored value.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        unforeseen: Meaning = (LedgerError, f"cannot be used (SQLite code {code}); check the file and its disk")
        kind, meaning = _MEANINGS.get(code) or _MEANINGS.get(code & 0xFF, unforeseen)
        raise kind(f"the ledger at {path} {meaning}") from error
    except UnicodeDecodeError as error:
        # SQLite's own message is not valid text, because it quotes the damaged content.
        kind, meaning = DAMAGED
        raise kind(f"the ledger at {path} {meaning}") from error
    except OSError as error:
        raise LedgerError(
            f"the ledger at {path} cannot be used ({error.strerror}); check the path, its permissions and its disk"
        ) from error
