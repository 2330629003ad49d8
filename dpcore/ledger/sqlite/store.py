"""The ledger in one SQLite file, which any number of processes on one machine may open at once."""

import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256 as hashed
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpcore.errors import LedgerError, UsageError
from dpcore.ledger.sqlite.errors import translated
from dpcore.ledger.sqlite.file import bring_up_to_date, create_file, maker_prefix, rules_changed
from dpcore.ledger.sqlite.identity import LedgerFiles, remove_maker_names, require_no_mount
from dpcore.ledger.sqlite.outputs import LARGEST_IN_ROW, OutputFolder
from dpcore.ledger.sqlite.read_only import REFUSAL, Frozen, connect_to_read, may_write, refuses_writing
from dpcore.ledger.store import PATIENCE_SECONDS, Store

_SETTINGS = (
    "PRAGMA synchronous = FULL",  # a transaction that returned survives a power failure
    "PRAGMA fullfsync = ON",  # likewise on macOS, where a plain sync stops in the drive's cache
    "PRAGMA foreign_keys = ON",
    "PRAGMA recursive_triggers = ON",  # so that a row which is replaced counts as deleted, which the rules forbid
    "PRAGMA cell_size_check = ON",  # a garbled page is reported instead of read
)


class SqliteStore(Store):
    """A ledger file.

    `BEGIN IMMEDIATE` takes the file's one write lock before the first read, so that nothing changes between looking at an
    account and charging it.
    """

    is_file = True
    begin_reading = "BEGIN"
    begin_writing = "BEGIN IMMEDIATE"
    clock = "NULL"
    is_named = "name IN (SELECT value FROM json_each(:names))"
    output_digest = "digest(output)"

    def __init__(self, path: Path, *, create: bool) -> None:
        """Open the file, and make it first if `create` says so and there is none. A link is followed once, here."""
        path = _resolved(path)
        super().__init__(str(path))
        self._path = path
        self._outputs = OutputFolder(path)
        with self._translated():
            if path.is_dir():
                raise LedgerError(f"the ledger at {path} is a folder; name a file in it")
            if not path.exists():
                if not create:
                    raise UsageError(
                        f"no ledger at {path}; open an account first: "
                        "dpflow ledger open ACCOUNT --epsilon E --delta D --unit row --neighbours add-remove"
                    )
                create_file(path)
            require_no_mount(path)
            self._frozen: Frozen | None = None
            self._read_only = not may_write(path)
            if not self._read_only:
                remove_maker_names(path, prefix=maker_prefix(path))
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
        """Open the file to write it, or to read it where this user may do no more."""
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
        """Begin a transaction; one that writes is refused at once where this user may only read."""
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
        """Return some names as a list in JSON."""
        return json.dumps(list(names))

    def stream(self, statement: str) -> Iterator[Any]:
        """Go through the rows of a query of any length."""
        return iter(self._connection.execute(statement))

    def close(self) -> None:
        """Let go of the file; a copy of this object in a forked process leaves its parent's connection alone."""
        if os.getpid() == self._owner:
            with self._translated():
                self._connection.close()

    def keep(self, output: bytes, *, sha256: str) -> bytes | None:
        """Return a small output; write a large one to a file of its own and return None."""
        if len(output) <= LARGEST_IN_ROW:
            return output
        with self._translated():
            self._outputs.write(output, digest=sha256)
        return None

    def kept(self, sha256: str) -> bytes | None:
        """Return an output that has a file of its own."""
        with self._translated():
            return self._outputs.read(sha256)

    def kept_digest(self, sha256: str) -> str | None:
        """Return the hash of what an output's file holds now."""
        with self._translated():
            return self._outputs.digest(sha256)

    def check(self) -> str | None:
        """Read the whole file, each index against its table, and the rules against those of a new ledger."""
        if self.execute("PRAGMA integrity_check(1)") != [("ok",)]:
            return "its tables and its indexes contradict each other"
        changed = rules_changed(self._connection)
        return f"its tables or rules are not those it was made with: {changed}" if changed else None

    def require_same(self) -> None:
        """Refuse if the file was deleted, replaced or linked since it was opened."""
        with self._translated():
            self._files.require_same()

    def _begin(self, statement: str) -> None:
        """Begin; pages in memory say nothing about a file that was written to, so they are read again."""
        if self._frozen is not None:
            self._frozen.require_unchanged()
        with self._translated():
            shrank = self._files.log_shrank()
            self.rewritten = shrank or self._files.content_changed()
            self.unexplained = shrank or (self.rewritten and not self._files.may_be_checkpointed())
        if self.rewritten:
            self.execute("PRAGMA shrink_memory")
        self.execute(statement)

    def _ended(self) -> None:
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
        raise UsageError(f"the ledger at {path} is a link that leads nowhere; name the file itself") from None


def _connect(path: Path, query: str) -> sqlite3.Connection:
    # mode=rw or ro: a file that vanished meanwhile is an error, never a new and empty ledger.
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{query}", uri=True, timeout=PATIENCE_SECONDS, isolation_level=None
    )
    try:
        bring_up_to_date(connection, path, immutable="immutable" in query)
        for setting in _SETTINGS:
            connection.execute(setting)
        connection.create_function("digest", 1, lambda output: hashed(output).hexdigest(), deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection
