"""Where a ledger lies: what a database has to provide so that the protocol can be written once.

A store promises that everything done in one writing transaction is alone (no other writer between its first read and its end),
all or nothing, and on disk when it ends.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from dpcore.errors import LedgerError

PATIENCE_SECONDS = 30
"""How long a transaction waits for another one before it gives up."""


class Store(ABC):
    """One connection to a database that holds a ledger; it belongs to the process and the thread that opened it.

    Statements are written once for all databases, with parameters as `:name`; what differs is said by the attributes.
    """

    is_file = False
    """Whether the ledger is a file on this machine, which is known by its path."""
    begin_reading: str
    begin_writing: str
    clock: str
    """The time by the database's clock, if machines share it; else NULL."""
    is_named: str
    """Whether the column `name` is one of the `:names`."""
    output_digest: str
    """The SHA-256 of the column `output`, in hexadecimal."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._owner = os.getpid()
        self._thread = threading.get_ident()
        self._inside = False
        self.rewritten = False
        """Whether what is stored may be something else since the last transaction, such as a backup that was put back."""
        self.unexplained = False
        """Whether somebody has written to it past the database's own program."""

    @abstractmethod
    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Run one statement and return its rows."""

    @abstractmethod
    def names(self, names: Collection[str]) -> object:
        """Return some names as the parameter `:names`."""

    def execute_together(self, statements: Sequence[str], parameters: Mapping[str, Any]) -> None:
        """Run several statements that return nothing, each on a table of its own, in any order."""
        for statement in statements:
            self.execute(statement, parameters)

    @abstractmethod
    def stream(self, statement: str) -> Iterator[Any]:
        """Go through the rows of a query of any length, inside a transaction and within constant memory."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""

    @abstractmethod
    def keep(self, output: bytes, *, sha256: str) -> bytes | None:
        """Return what of an output goes into its row: all of it, or None once it lies durably beside the database."""

    @abstractmethod
    def kept(self, sha256: str) -> bytes | None:
        """Return an output that lies beside the database, or None if it is not there."""

    @abstractmethod
    def kept_digest(self, sha256: str) -> str | None:
        """Return the hash of what lies beside the database under this name now, or None if nothing does."""

    @abstractmethod
    def check(self) -> str | None:
        """Return what is wrong with the database as such, whatever its rows say, or None; inside a transaction."""

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]:
        """Turn every error of the database into one line of ours about this ledger."""

    @abstractmethod
    def _roll_back(self) -> None:
        """Undo an open transaction, if there is one; never raises."""

    def require_same(self) -> None:
        """Refuse if the place that was opened is not there any more, or is another one now; inside a transaction."""
        return

    def _begin(self, statement: str) -> None:
        self.execute(statement)

    def _ended(self) -> None:
        """Take note that a transaction has ended well."""
        return

    @property
    def owned(self) -> bool:
        """Whether this process has opened it, and is no fork of the one that has."""
        return os.getpid() == self._owner

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[None]:
        """Begin a transaction; an exception undoes all of it."""
        if os.getpid() != self._owner:
            raise LedgerError(
                f"the ledger at {self.place} was opened by the parent of this process; open it again here"
            )
        if threading.get_ident() != self._thread:
            raise LedgerError(
                f"the ledger at {self.place} was opened by another thread; open it again where it is used"
            )
        if self._inside:  # PostgreSQL would only warn, and end both with the inner one
            raise LedgerError(f"the ledger at {self.place} is in the middle of another transaction; end that first")
        self._inside = True
        try:
            self._begin(self.begin_writing if writing else self.begin_reading)
            self.require_same()
            yield
            self.execute("COMMIT")
            # Again: what was committed to a file that has just lost its name was never charged.
            self.require_same()
            self._ended()
        except BaseException:
            with self._translated():  # also what the rollback may say
                self._roll_back()
                raise
        finally:
            self._inside = False
