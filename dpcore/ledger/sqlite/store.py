"""The ledger in one SQLite file, shared by any number of processes on one machine."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256 as hashed
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpcore.errors import LedgerError, NoLedger, UsageError
from dpcore.ledger.sqlite.errors import translated
from dpcore.ledger.sqlite.file import create_file, require_ledger, rules_changed, temporary_prefix
from dpcore.ledger.sqlite.identity import LedgerFiles, remove_temporary_names, require_no_mount
from dpcore.ledger.sqlite.outputs import LARGEST_IN_ROW, OutputFolder
from dpcore.ledger.sqlite.read_only import REFUSAL, Frozen, connect_to_read, may_write, refuses_writing
from dpcore.ledger.store import PATIENCE_SECONDS, Store

_SETTINGS = (
    "PRAGMA synchronous = FULL",  # a committed transaction survives a power failure
    "PRAGMA fullfsync = ON",  # likewise on macOS, where fsync alone stops at the drive's cache
    "PRAGMA foreign_keys = ON",
    "PRAGMA recursive_triggers = ON",  # REPLACE fires the triggers that forbid deleting
    "PRAGMA cell_size_check = ON",  # report a corrupt page instead of reading it
)


class SqliteStore(Store):
    """A ledger file.

    `BEGIN IMMEDIATE` takes the file's only write lock before the first read, so nothing changes between reading an account and
    charging it.
    """

    is_file = True
    begin_reading = "BEGIN"
    begin_writing = "BEGIN IMMEDIATE"
    clock = "NULL"
    is_named = "name IN (SELECT value FROM json_each(:names))"
    output_digest = "digest(output)"

    def __init__(self, path: Path, *, create: bool) -> None:
        """Open the file, and create it first if it does not exist and `create` is true. A symbolic link is resolved only here."""
        path = _resolved(path)
        super().__init__(str(path))
        self._path = path
        self._outputs = OutputFolder(path)
        with self._translated():
            if path.is_dir():
                raise LedgerError(f"the ledger at {path} is a folder; name a file in it")
            if not path.exists():
                if not create:
                    raise NoLedger(f"no ledger at {path}")
                create_file(path)
            require_no_mount(path)
            self._frozen: Frozen | None = None
            self._read_only = not may_write(path)
            if not self._read_only:
                remove_temporary_names(path, prefix=temporary_prefix(path))
            self._files = LedgerFiles(path)
            self._files.require_same()
            self._connection = self._opened()
            try:
                self._files.pin_companions()
                self._files.require_same()
            except BaseException:
                self._connection.close()
                raise

    def _opened(self) -> sqlite3.Connection:
        """Open the file for writing, or read-only if this user may not write."""
        if not self._read_only:
            try:
                return _connect(self._path, "mode=rw")
            except sqlite3.Error as error:
                if not refuses_writing(error):
                    raise
        self._read_only = True
        connection, self._frozen = connect_to_read(self._path, lambda query: _connect(self._path, query))
        return connection

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[None]:
        """Begin a transaction. Raise at once if it writes and this user may only read."""
        if writing and self._read_only:
            raise LedgerError(f"the ledger at {self.place} {REFUSAL}")
        with super().transaction(writing=writing):
            yield
        if self._frozen is not None:
            self._frozen.require_unchanged()

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Run one statement and return its rows."""
        return self._connection.execute(statement, parameters or {}).fetchall()

    def names(self, names: Collection[str]) -> object:
        """Return the names as a JSON array."""
        return json.dumps(list(names))

    def stream(self, statement: str) -> Iterator[Any]:
        """Iterate over the rows of a query."""
        return iter(self._connection.execute(statement))

    def close(self) -> None:
        """Close the connection. A copy of this object in a forked process leaves its parent's connection open."""
        if self.owned:
            with self._translated():
                self._connection.close()

    def keep(self, output: bytes, *, sha256: str) -> bytes | None:
        """Return a small output. Write a large one to its own file and return None."""
        if len(output) <= LARGEST_IN_ROW:
            return output
        with self._translated():
            self._outputs.write(output, digest=sha256)
        return None

    def kept(self, sha256: str) -> bytes | None:
        """Return an output stored in its own file, or None if it is not there."""
        with self._translated():
            return self._outputs.read(sha256)

    def kept_digest(self, sha256: str) -> str | None:
        """Return the actual hash of an output's file, or None if it is not there."""
        with self._translated():
            return self._outputs.digest(sha256)

    def check(self) -> str | None:
        """Check the whole file, compare each index with its table, and the schema with that of a new ledger."""
        if self.execute("PRAGMA integrity_check(1)") != [("ok",)]:
            return "its tables and its indexes contradict each other"
        changed = rules_changed(self._connection)
        return f"its tables or rules are not those it was made with: {changed}" if changed else None

    def require_same(self) -> None:
        """Raise if the file was deleted, replaced or hard-linked since it was opened."""
        with self._translated():
            self._files.require_same()

    def _begin(self, statement: str) -> None:
        """Begin a transaction. If the file was written to, drop cached pages first, so that they are read again."""
        if self._frozen is not None:
            self._frozen.require_unchanged()
        with self._translated():
            shrank = self._files.log_shrank()
            self.rewritten = shrank or self._files.content_changed()
            self.unexplained = shrank or (self.rewritten and not self._files.may_be_checkpointed())
        if self.rewritten:
            self.execute("PRAGMA shrink_memory")
        self.execute(statement)

    def _after_commit(self) -> None:
        with self._translated():
            self._files.note_content()

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._path)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise UsageError(f"the ledger at {path} is a broken symbolic link; name the file itself") from None


def _connect(path: Path, query: str) -> sqlite3.Connection:
    # With mode=rw or ro, a file that vanished meanwhile is an error instead of a new, empty ledger.
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{query}", uri=True, timeout=PATIENCE_SECONDS, isolation_level=None
    )
    try:
        require_ledger(connection, path, immutable="immutable" in query)
        for setting in _SETTINGS:
            connection.execute(setting)
        connection.create_function("digest", 1, lambda output: hashed(output).hexdigest(), deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection
