"""The rows of a ledger inside one SQLite transaction."""

import json
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dpcore.accounting import Currency
from dpcore.errors import LedgerDamaged
from dpcore.ledger.chain import canonical
from dpcore.ledger.rows import Account, Event, EventKind, Operation, OperationState, Run, RunState
from dpcore.ledger.transaction import LedgerTransaction
from dpcore.privacy import Neighbours

Row = TypeVar("Row")

_ACCOUNT = "SELECT name, currency, cap, epsilon, delta, unit, neighbours, spent, reserved, opened_at FROM account"
_RUN = "SELECT id, account, reserved, spent, state, claim, data_version, opened_at, release FROM run"
_COMMITTED = (
    "SELECT run, step, attempt, state, amount, mechanism, output, sha256 FROM operation WHERE state = 'committed'"
)
_EVENT = "SELECT seq, at, kind, account, run, body, previous, hash FROM event"


class SqliteTransaction(LedgerTransaction):
    """Reads and writes through a connection that is inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def account(self, name: str) -> Account | None:
        """Return the account, if there is one."""
        return _first(_account, self._execute(f"{_ACCOUNT} WHERE name = ?", (name,)))

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts, in the order of their names."""
        return _all(_account, self._execute(f"{_ACCOUNT} ORDER BY name"))

    def run(self, run_id: str) -> Run | None:
        """Return the run, if there is one."""
        return _first(_run, self._execute(f"{_RUN} WHERE id = ?", (run_id,)))

    def runs(self, account: str) -> tuple[Run, ...]:
        """Return the account's runs, oldest first."""
        return _all(_run, self._execute(f"{_RUN} WHERE account = ? ORDER BY number", (account,)))

    def newest(self, run_id: str, step: str) -> Operation | None:
        """Return the step's newest attempt, without its output."""
        found = self._execute(
            "SELECT run, step, attempt, state, amount, mechanism, NULL FROM operation"
            " WHERE run = ? AND step = ? ORDER BY attempt DESC LIMIT 1",
            (run_id, step),
        )
        return _first(_operation, found)

    def committed(self, run_id: str, *, step: str | None) -> tuple[tuple[Operation, str], ...]:
        """Return the run's committed operations (of one step, if named) in the order of commitment, each with its sha256."""
        if step is None:
            found = self._execute(f"{_COMMITTED} AND run = ? ORDER BY committed", (run_id,))
        else:
            found = self._execute(f"{_COMMITTED} AND run = ? AND step = ?", (run_id, step))
        return _all(lambda *row: (_operation(*row[:-1]), str(row[-1])), found)

    def last_event(self) -> Event | None:
        """Return the chain's last event."""
        return _first(_event, self._execute(f"{_EVENT} ORDER BY seq DESC LIMIT 1"))

    def events(self, account: str | None) -> tuple[Event, ...]:
        """Return all events, or those of one account, oldest first."""
        if account is None:
            return _all(_event, self._execute(f"{_EVENT} ORDER BY seq"))
        return _all(_event, self._execute(f"{_EVENT} WHERE account = ? ORDER BY seq", (account,)))

    def add_account(self, account: Account) -> None:
        """Insert an account."""
        self._execute(
            "INSERT INTO account VALUES (:name, :currency, :cap, :epsilon, :delta, :unit, :neighbours, :spent,"
            " :reserved, :opened_at)",
            vars(account),
        )

    def add_run(self, run: Run) -> None:
        """Insert a run."""
        self._execute(
            "INSERT INTO run VALUES (NULL, :id, :account, :reserved, :spent, :state, :claim, :data_version, :opened_at,"
            " :release)",
            vars(run),
        )

    def replace_run(self, run: Run) -> None:
        """Write the run's spent, state, data version and release; the rest of it never changes."""
        self._execute(
            "UPDATE run SET spent = :spent, state = :state, data_version = :data_version, release = :release"
            " WHERE id = :id",
            vars(run),
        )

    def move(self, account: str, *, spent: int, reserved: int) -> None:
        """Add to the account's spent and reserved units; its CHECK refuses to leave 0 <= spent + reserved <= cap."""
        self._execute(
            "UPDATE account SET spent = spent + ?, reserved = reserved + ? WHERE name = ?", (spent, reserved, account)
        )

    def add_operation(self, operation: Operation, *, event: Event) -> None:
        """Insert a started operation, which this event tells of."""
        self._execute(
            "INSERT INTO operation VALUES (:run, :step, :attempt, :state, :amount, :mechanism, :started, NULL, NULL, NULL)",
            vars(operation) | {"mechanism": canonical(operation.mechanism), "started": event.seq},
        )

    def store_output(self, operation: Operation, *, sha256: str, event: Event) -> None:
        """Write a committed operation's output and its hash, which this event tells of."""
        self._execute(
            "UPDATE operation SET state = :state, output = :output, sha256 = :sha256, committed = :committed"
            " WHERE run = :run AND step = :step AND attempt = :attempt",
            vars(operation) | {"sha256": sha256, "committed": event.seq},
        )

    def append(self, event: Event) -> None:
        """Insert the chain's next event."""
        self._execute(
            "INSERT INTO event VALUES (:seq, :at, :kind, :account, :run, :body, :previous, :hash)", vars(event)
        )


def _account(*row: Any) -> Account:
    name, currency, cap, epsilon, delta, unit, neighbours, *rest = row
    return Account(name, Currency(currency), cap, epsilon, delta, unit, Neighbours(neighbours), *rest)


def _run(*row: Any) -> Run:
    run_id, account, reserved, spent, state, *rest = row
    return Run(run_id, account, reserved, spent, RunState(state), *rest)


def _operation(*row: Any) -> Operation:
    run, step, attempt, state, amount, mechanism, output = row
    return Operation(run, step, attempt, OperationState(state), amount, json.loads(mechanism), output)


def _event(*row: Any) -> Event:
    seq, at, kind, *rest = row
    return Event(seq, at, EventKind(kind), *rest)


def _all(make: Callable[..., Row], found: Iterable[tuple[Any, ...]]) -> tuple[Row, ...]:
    try:
        return tuple(make(*row) for row in found)
    except (ValueError, TypeError) as error:
        raise LedgerDamaged("a row of the ledger does not read; restore the ledger from a backup") from error


def _first(make: Callable[..., Row], found: Iterable[tuple[Any, ...]]) -> Row | None:
    return next(iter(_all(make, found)), None)
