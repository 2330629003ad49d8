"""The rows of a ledger inside one transaction: all that a store has to provide.

The protocol is written once, in `dpcore.ledger.ledger`, on top of this. A store promises that everything done in one writing
transaction is alone (no other writer between its first read and its end), all or nothing, and on disk when it ends.
"""

from abc import ABC, abstractmethod

from dpcore.ledger.rows import Account, Event, Operation, Run


class LedgerTransaction(ABC):
    """Reads and writes of rows; it decides nothing."""

    @abstractmethod
    def account(self, name: str) -> Account | None:
        """Return the account, if there is one."""

    @abstractmethod
    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts, in the order of their names."""

    @abstractmethod
    def run(self, run_id: str) -> Run | None:
        """Return the run, if there is one."""

    @abstractmethod
    def runs(self, account: str) -> tuple[Run, ...]:
        """Return the account's runs, oldest first."""

    @abstractmethod
    def newest(self, run_id: str, step: str) -> Operation | None:
        """Return the step's newest attempt, without its output."""

    @abstractmethod
    def committed(self, run_id: str, *, step: str | None) -> tuple[tuple[Operation, str], ...]:
        """Return the run's committed operations (of one step, if named) in the order of commitment, each with its sha256."""

    @abstractmethod
    def last_event(self) -> Event | None:
        """Return the chain's last event."""

    @abstractmethod
    def events(self, account: str | None) -> tuple[Event, ...]:
        """Return all events, or those of one account, oldest first."""

    @abstractmethod
    def add_account(self, account: Account) -> None:
        """Insert an account."""

    @abstractmethod
    def add_run(self, run: Run) -> None:
        """Insert a run."""

    @abstractmethod
    def replace_run(self, run: Run) -> None:
        """Write the run's spent, state, data version and release; the rest of it never changes."""

    @abstractmethod
    def move(self, account: str, *, spent: int, reserved: int) -> None:
        """Add to the account's spent and reserved units; the store itself refuses to leave 0 <= spent + reserved <= cap."""

    @abstractmethod
    def add_operation(self, operation: Operation, *, event: Event) -> None:
        """Insert a started operation, which this event tells of."""

    @abstractmethod
    def store_output(self, operation: Operation, *, sha256: str, event: Event) -> None:
        """Write a committed operation's output and its hash, which this event tells of."""

    @abstractmethod
    def append(self, event: Event) -> None:
        """Insert the chain's next event."""
