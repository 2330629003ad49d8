"""The ledger in one SQLite file, which any number of processes on one machine may open at once."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import quote

from dpcore.errors import LedgerError, UsageError
from dpcore.ledger.ledger import Ledger
from dpcore.ledger.sqlite_errors import translated
from dpcore.ledger.sqlite_rows import SqliteTransaction
from dpcore.ledger.sqlite_schema import check_file, create_file
from dpcore.ledger.transaction import LedgerTransaction

PATIENCE_SECONDS = 30
"""How long a transaction waits for another one before it gives up."""

_SETTINGS = (
    "PRAGMA synchronous = FULL",  # a transaction that returned survives a power failure
    "PRAGMA fullfsync = ON",  # likewise on macOS, where a plain sync stops in the drive's cache
    "PRAGMA foreign_keys = ON",
    "PRAGMA cell_size_check = ON",  # a garbled page is reported instead of read
)


class SqliteLedger(Ledger):
    """A ledger file.

    `BEGIN IMMEDIATE` takes the file's one write lock before the first read, so that nothing changes between looking at an
    account and charging it.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        """Open the file, and make it first if `create` says so and there is none."""
        self._path = path
        self._owner = os.getpid()
        with translated(path):
            if path.is_dir():
                raise LedgerError(f"the ledger at {path} is a folder; name a file in it")
            if not path.exists():
                if not create:
                    raise UsageError(
                        f"no ledger at {path}; open an account first: "
                        "dpflow ledger open ACCOUNT --epsilon E --delta D --unit row --neighbours add-remove"
                    )
                create_file(path)
            self._connection = _connect(path)

    def close(self) -> None:
        """Let go of the file; a copy of this object in a forked process leaves its parent's connection alone."""
        if os.getpid() == self._owner:
            with translated(self._path):
                self._connection.close()

    def _reading(self) -> AbstractContextManager[LedgerTransaction]:
        return self._transaction("BEGIN")

    def _writing(self) -> AbstractContextManager[LedgerTransaction]:
        return self._transaction("BEGIN IMMEDIATE")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[LedgerTransaction]:
        if os.getpid() != self._owner:
            raise LedgerError(
                f"the ledger at {self._path} was opened by the parent of this process; open it again here"
            )
        connection = self._connection
        with translated(self._path):
            try:
                connection.execute(begin)
                yield SqliteTransaction(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def _connect(path: Path) -> sqlite3.Connection:
    # mode=rw: a file that vanished meanwhile is an error, never a new and empty ledger.
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=rw", uri=True, timeout=PATIENCE_SECONDS, isolation_level=None
    )
    try:
        check_file(connection, path)
        for setting in _SETTINGS:
            connection.execute(setting)
    except BaseException:
        connection.close()
        raise
    return connection
