"""The reading side of a ledger: what anyone who may open it can look up."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from dpcore.ledger.chain import GENESIS
from dpcore.ledger.refusals import known_account, known_run, undamaged
from dpcore.ledger.rows import Account, Event, Operation, Run
from dpcore.ledger.transaction import LedgerTransaction


class LedgerReader(ABC):
    """Accounts, runs, outputs and history as they are now.

    An object belongs to the process and the thread that opened it; others open their own.
    """

    @abstractmethod
    def _reading(self) -> AbstractContextManager[LedgerTransaction]:
        """Begin a transaction that sees one state of all rows."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the store."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def account(self, name: str) -> Account:
        """Return an account as it is now."""
        with self._reading() as rows:
            return known_account(rows, name)

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts, in the order of their names."""
        with self._reading() as rows:
            return rows.accounts()

    def run(self, run_id: str) -> Run:
        """Return a run as it is now."""
        with self._reading() as rows:
            return known_run(rows, run_id)

    def runs(self, account: str) -> tuple[Run, ...]:
        """Return an account's runs, oldest first."""
        with self._reading() as rows:
            known_account(rows, account)
            return rows.runs(account)

    def operation(self, run_id: str, step: str) -> Operation | None:
        """Return the step's committed operation, if there is one: whoever finds it neither pays nor draws again."""
        with self._reading() as rows:
            known_run(rows, run_id)
            found = rows.committed(run_id, step=step)
        return undamaged(found[0][0], digest=found[0][1]) if found else None

    def transcript(self, run_id: str) -> tuple[Operation, ...]:
        """Return the run's committed operations in the order of commitment."""
        with self._reading() as rows:
            known_run(rows, run_id)
            return tuple(undamaged(operation, digest=digest) for operation, digest in rows.committed(run_id, step=None))

    def history(self, account: str | None) -> tuple[Event, ...]:
        """Return every change, or those of one account, oldest first."""
        with self._reading() as rows:
            if account is not None:
                known_account(rows, account)
            return rows.events(account)

    def head(self) -> str:
        """Return the hash of the chain's last event, which stands for the whole history."""
        with self._reading() as rows:
            last = rows.last_event()
        return GENESIS if last is None else last.hash
