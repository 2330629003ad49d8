"""The interface between the protocol and a database.

A store guarantees that a write transaction is exclusive (no other writer between its first read and its end), atomic, and
durable once it ends.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from dpcore.errors import DpflowError, LedgerDamaged, LedgerError

Meaning: TypeAlias = tuple[type[DpflowError], str]
"""What an error of the database means: the error to raise instead, and what is wrong with the ledger and what to do next."""

DAMAGED: Meaning = (LedgerDamaged, "is not a readable ledger; restore it from a backup")
LOCKED: Meaning = (LedgerError, "stayed locked by another process; wait until it ends, then try again")
DISK_FULL: Meaning = (LedgerError, "cannot grow because its disk is full; make room, then try again")
NO_MEMORY: Meaning = (LedgerError, "needs more memory than there is; free some, then try again")
TOO_LARGE: Meaning = (LedgerError, "cannot hold an output this large; measure fewer cells at once")
CONTRADICTS: Meaning = (LedgerDamaged, "contradicts itself; nothing was changed: restore it from a backup")
"""The protocol checks before it writes, so only contradictory rows can violate a constraint."""

PATIENCE_SECONDS = 30
"""The lock timeout of a transaction."""
VERSION = 1
"""The version of the tables and their rules, in every kind of database."""


def require_version(version: int, *, place: str) -> None:
    """Raise if the tables of a ledger are of another version."""
    if version != VERSION:
        raise LedgerError(
            f"the ledger at {place} has version {version}, and this dpflow reads {VERSION}: use the dpflow that wrote it"
        )


class Store(ABC):
    """One connection to a database that holds a ledger. It belongs to the process and the thread that opened it.

    Statements are shared by all databases, with parameters as `:name`. Class attributes hold the SQL that differs.
    """

    is_file = False
    """Whether the ledger is a file on this machine, identified by its path."""
    begin_reading: str
    begin_writing: str
    clock: str
    """SQL for the time of the database's clock, if several machines share the database; else NULL."""
    is_named: str
    """SQL for whether the column `name` is one of the `:names`."""
    output_digest: str
    """SQL for the SHA-256 of the column `output`, in hexadecimal."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._owner = os.getpid()
        self._thread = threading.get_ident()
        self._inside = False
        self.rewritten = False
        """Whether the stored content may have been replaced since the last transaction, for example by a restored backup."""
        self.unexplained = False
        """Whether the content was written to by something other than the database engine."""

    @abstractmethod
    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Run one statement and return its rows."""

    @abstractmethod
    def names(self, names: Collection[str]) -> object:
        """Convert names to a value for the parameter `:names`."""

    def execute_together(self, statements: Sequence[str], parameters: Mapping[str, Any]) -> None:
        """Run several statements that return nothing, each on a different table, in any order."""
        for statement in statements:
            self.execute(statement, parameters)

    @abstractmethod
    def stream(self, statement: str) -> Iterator[Any]:
        """Iterate over the rows of a query inside a transaction, in constant memory."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def keep(self, output: bytes, *, sha256: str) -> bytes | None:
        """Return the output if it belongs in its row; otherwise store it durably beside the database and return None."""

    def kept(self, sha256: str) -> bytes | None:  # noqa: ARG002  by default, the row holds every output
        """Return an output stored beside the database, or None if it is not there."""
        return None

    def kept_digest(self, sha256: str) -> str | None:  # noqa: ARG002  likewise
        """Return the actual hash of an output stored beside the database, or None if it is not there."""
        return None

    @abstractmethod
    def check(self) -> str | None:
        """Return a problem of the database itself, apart from the content of its rows, or None. Call inside a transaction."""

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]:
        """Convert every error of the database to a one-line DpflowError about this ledger."""

    @abstractmethod
    def _roll_back(self) -> None:
        """Roll back the open transaction, if there is one. Never raises."""

    def require_same(self) -> None:
        """Raise if the opened ledger was removed or replaced. Call inside a transaction."""
        return

    def _begin(self, statement: str) -> None:
        self.execute(statement)

    def end_step(self) -> None:
        """Check one step of several in a transaction, as its end would. By default, each statement is checked at once."""
        return

    def _after_commit(self) -> None:
        """Run after a transaction has ended successfully."""
        return

    @property
    def owned(self) -> bool:
        """Whether this process opened the store, as opposed to a fork of it."""
        return os.getpid() == self._owner

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[None]:
        """Begin a transaction. An exception rolls it back."""
        if not self.owned:
            raise LedgerError(
                f"the ledger at {self.place} was opened by the parent of this process; open it again here"
            )
        if threading.get_ident() != self._thread:
            raise LedgerError(
                f"the ledger at {self.place} was opened by another thread; open it again where it is used"
            )
        if self._inside:  # PostgreSQL would only warn, and end both transactions with the inner one
            raise LedgerError(f"the ledger at {self.place} is in the middle of another transaction; end that one first")
        self._inside = True
        try:
            self._begin(self.begin_writing if writing else self.begin_reading)
            self.require_same()
            yield
            self.execute("COMMIT")
            # Check again: a commit to a file that was just removed or replaced charges nothing.
            self.require_same()
            self._after_commit()
        except BaseException:
            with self._translated():  # errors of the rollback included
                self._roll_back()
                raise
        finally:
            self._inside = False
