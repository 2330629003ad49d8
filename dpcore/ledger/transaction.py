"""The ledger's queries inside one transaction, in SQL that every store understands."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from dpcore.errors import LedgerDamaged
from dpcore.ledger.chain import GENESIS
from dpcore.ledger.events import read_body
from dpcore.ledger.rows import (
    Account,
    AccountState,
    Allowance,
    AllowanceKind,
    Block,
    BlockState,
    Event,
    EventKind,
    Operation,
    OperationState,
    Run,
    RunState,
    Share,
)
from dpcore.ledger.store import Store
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

Row = TypeVar("Row")

PAGE = 1_000
"""The number of events in a page."""

_ACCOUNT = (
    "SELECT name, currency, cap, epsilon, delta, unit, neighbours, description, blocks_by, state, opened_at,"
    " across, across_epsilon, across_used FROM account"
)
_BLOCK = "SELECT account, name, state, cap, used FROM block"
_ALLOWANCE = "SELECT account, kind, name, cap, epsilon, used FROM allowance"
_RUN_COLUMNS = tuple(field.name for field in fields(Run))
_RUN_WIDTH = len(_RUN_COLUMNS)
_RUN = f"SELECT {', '.join(_RUN_COLUMNS)} FROM run"
_SHARE = "SELECT run, analyst, cap, token, spent, last FROM share"
_OPERATION = "run, step, attempt, state, amount, mechanism, fence, sha256"
_RUN_AND_ATTEMPT = (
    f"last_event.seq, last_event.hash, {', '.join(f'run.{column}' for column in _RUN_COLUMNS)},"
    " operation.run, step, attempt, operation.state, amount, mechanism, operation.fence, sha256, NULL, operation.analyst"
    " FROM run JOIN event AS last_event ON last_event.seq = (SELECT max(seq) FROM event)"
    " LEFT JOIN operation ON operation.run = run.id AND step = :step"
    " AND attempt = (SELECT max(attempt) FROM operation WHERE run = :id AND step = :step) WHERE run.id = :id"
)
_APPEND = (
    "INSERT INTO event (seq, at, kind, account, run, body, previous, hash)"
    " VALUES (:seq, :at, :kind, :account, :run, :body, :previous, :hash)"
)
_CHARGE = (
    "INSERT INTO operation (run, step, attempt, state, amount, mechanism, fence, analyst, charged)"
    " VALUES (:run, :step, :attempt, :state, :amount, :mechanism, :fence, :analyst, :charged)"
)
_COMMIT = (
    "UPDATE operation SET state = 'committed', output = :output, sha256 = :sha256, committed = :committed"
    " WHERE run = :run AND step = :step AND attempt = :attempt"
)
_ADVANCE = "UPDATE run SET spent = spent + :price, last = :seq WHERE id = :id"
_SPEND = "UPDATE share SET spent = spent + :price, last = :seq WHERE run = :run AND analyst = :analyst"
_EVENT = "SELECT seq, at, kind, account, run, body, previous, hash FROM event"


@dataclass(frozen=True)
class Head:
    """The last link of the chain. `clock` is the time of the database's clock, if several machines share it."""

    seq: int
    hash: str
    clock: datetime | None


class LedgerTransaction:
    """Reads and writes rows through a store that is inside a transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._execute = store.execute

    @property
    def place(self) -> str:
        """Where the ledger is."""
        return self._store.place

    def head(self) -> Head:
        """Return the last link of the chain, with the time of the database's clock if several machines share it."""
        return _first(
            Head, self._execute(f"SELECT seq, hash, {self._store.clock} FROM event ORDER BY seq DESC LIMIT 1")
        ) or Head(0, GENESIS, None)

    def hash_of(self, seq: int) -> str | None:
        """Return the hash of the event with this number, or None."""
        found = self._execute("SELECT hash FROM event WHERE seq = :seq", {"seq": seq})
        return str(found[0][0]) if found else None

    def account(self, name: str) -> Account | None:
        """Return the account, or None."""
        return _first(_account, self._execute(f"{_ACCOUNT} WHERE name = :name", {"name": name}))

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts, sorted by name."""
        return tuple(sorted(_all(_account, self._execute(_ACCOUNT)), key=lambda account: account.name))

    def blocks(self, account: str, names: Collection[str] | None) -> tuple[Block, ...]:
        """Return the account's blocks, or those of `names` that exist, sorted by name."""
        if names is None:
            found = self._execute(f"{_BLOCK} WHERE account = :account", {"account": account})
        else:
            found = self._execute(
                f"{_BLOCK} WHERE account = :account AND {self._store.is_named}",
                {"account": account, "names": self._store.names(names)},
            )
        return tuple(sorted(_all(_block, found), key=lambda block: block.name))

    def allowances(self, account: str) -> tuple[Allowance, ...]:
        """Return the account's allowances for analysts and purposes."""
        found = _all(_allowance, self._execute(f"{_ALLOWANCE} WHERE account = :account", {"account": account}))
        return tuple(sorted(found, key=lambda allowance: (allowance.kind, allowance.name)))

    def run(self, run_id: str) -> Run | None:
        """Return the run, or None."""
        return _first(_run, self._execute(f"{_RUN} WHERE id = :id", {"id": run_id}))

    def runs(self, account: str) -> tuple[Run, ...]:
        """Return the account's runs, oldest first."""
        return _all(_run, self._execute(f"{_RUN} WHERE account = :account ORDER BY number", {"account": account}))

    def open_runs(self, account: str) -> tuple[Run, ...]:
        """Return the account's runs that still hold a reservation."""
        return _all(_run, self._execute(f"{_RUN} WHERE account = :account AND state = 'open'", {"account": account}))

    def used_by(self, account: str, kind: AllowanceKind, name: str) -> int:
        """Return the amount that all runs of an analyst, or for a purpose, reserved and that was not refunded."""
        ((used,),) = self._execute(
            "SELECT coalesce(sum(CASE state WHEN 'open' THEN reserved WHEN 'settled' THEN spent ELSE 0 END), 0)"
            f" FROM run WHERE account = :account AND {kind} = :name",
            {"account": account, "name": name},
        )
        return int(used)

    def run_and_attempt(self, run_id: str, step: str) -> tuple[Run, Operation | None, Head] | None:
        """Return a run, the newest attempt of a step without its output, and the last link of the chain, in one query."""
        found = self._execute(f"SELECT {self._store.clock}, {_RUN_AND_ATTEMPT}", {"id": run_id, "step": step})
        return _first(_run_and_attempt, found)

    def committed(self, run_id: str, *, step: str | None) -> tuple[Operation, ...]:
        """Return the run's committed operations, or those of one step, in commit order."""
        wanted = "" if step is None else " AND step = :step"
        found = self._execute(
            f"SELECT {_OPERATION}, output, analyst FROM operation"
            f" WHERE state = 'committed' AND run = :run{wanted} ORDER BY committed",
            {"run": run_id, "step": step},
        )
        return _all(_operation, found)

    def share(self, run_id: str, analyst: str) -> Share | None:
        """Return an analyst's share of a run, or None."""
        query = f"{_SHARE} WHERE run = :run AND analyst = :analyst"
        return _first(Share, self._execute(query, {"run": run_id, "analyst": analyst}))

    def shares(self, run_id: str) -> tuple[Share, ...]:
        """Return the shares of a run, sorted by the names of the analysts."""
        found = _all(Share, self._execute(f"{_SHARE} WHERE run = :run", {"run": run_id}))
        return tuple(sorted(found, key=lambda share: share.analyst))

    def event(self, seq: int) -> Event | None:
        """Return the event with this number, or None."""
        return _first(_event, self._execute(f"{_EVENT} WHERE seq = :seq", {"seq": seq}))

    def first_cap(self, account: str, *, across: bool = False) -> int | None:
        """Return an account's cap when its first operation was charged, or None if none was charged yet.

        With `across`, return the cap across blocks instead; the account must have one.
        """
        raised, key = (EventKind.ACROSS_RAISED, "across") if across else (EventKind.CAP_RAISED, "cap")
        charged = (
            "SELECT operation.charged FROM operation JOIN run ON run.id = operation.run WHERE run.account = :account"
            " ORDER BY operation.charged LIMIT 1"
        )
        query = (
            f"{_EVENT} WHERE account = :account AND kind IN ('{EventKind.ACCOUNT_OPENED}', '{raised}')"
            f" AND seq < ({charged}) ORDER BY seq DESC LIMIT 1"
        )
        found = _first(_event, self._execute(query, {"account": account}))
        return None if found is None else int(read_body(found)[key])

    def is_recorded(self, kind: EventKind, *, body: str) -> bool:
        """Return whether an event of this kind has exactly this body. Scans the whole chain."""
        query = "SELECT count(*) FROM event WHERE kind = :kind AND body = :body"
        ((number,),) = self._execute(query, {"kind": kind, "body": body})
        return bool(number)

    def events(self, *, after: int, until: int) -> tuple[Event, ...]:
        """Return the next page of events between two numbers, oldest first."""
        between = {"after": after, "until": until}
        query = f"{_EVENT} WHERE seq > :after AND seq <= :until ORDER BY seq LIMIT {PAGE}"
        return _all(_event, self._execute(query, between))

    def events_of_kind(self, *kinds: EventKind) -> tuple[Event, ...]:
        """Return all events of rare kinds, oldest first. Scans the whole chain. Raise if no ledger can have written one of them."""
        named = ", ".join(f"'{kind}'" for kind in kinds)
        found = _all(_event, self._execute(f"{_EVENT} WHERE kind IN ({named}) ORDER BY seq"))
        for event in found:
            read_body(event)
        return found

    def add_account(self, account: Account) -> None:
        """Insert an account."""
        self._execute(
            "INSERT INTO account (name, currency, cap, epsilon, delta, unit, neighbours, description, blocks_by, state,"
            " opened_at, across, across_epsilon, across_used) VALUES (:name, :currency, :cap, :epsilon, :delta, :unit,"
            " :neighbours, :description, :blocks_by, :state, :opened_at, :across, :across_epsilon, :across_used)",
            vars(account),
        )

    def replace_account(self, account: Account) -> None:
        """Update the account's caps, epsilons and state, and its blocks' caps. Its other terms never change."""
        self._execute(
            "UPDATE account SET cap = :cap, epsilon = :epsilon, across = :across, across_epsilon = :across_epsilon,"
            " state = :state WHERE name = :name",
            vars(account),
        )
        self._execute("UPDATE block SET cap = :cap WHERE account = :name AND cap <> :cap", vars(account))

    def add_block(self, block: Block) -> None:
        """Insert a block."""
        self._execute(
            "INSERT INTO block (account, name, state, cap, used) VALUES (:account, :name, :state, :cap, :used)",
            vars(block),
        )

    def seal_blocks(self, account: str, names: Collection[str]) -> None:
        """Seal the blocks: their data is complete."""
        self._execute(
            f"UPDATE block SET state = 'sealed' WHERE account = :account AND {self._store.is_named}",
            {"account": account, "names": self._store.names(names)},
        )

    def use(self, account: str, names: Collection[str], *, amount: int) -> None:
        """Add to the used amount of each of these blocks. The database enforces 0 <= used <= cap."""
        self._execute(
            f"UPDATE block SET used = used + :amount WHERE account = :account AND {self._store.is_named}",
            {"account": account, "names": self._store.names(names), "amount": amount},
        )

    def use_across(self, account: str, *, amount: int) -> None:
        """Add to the used amount of the cap across blocks. The database enforces 0 <= used <= cap."""
        self._execute(
            "UPDATE account SET across_used = across_used + :amount WHERE name = :name",
            {"name": account, "amount": amount},
        )

    def put_allowance(self, allowance: Allowance) -> None:
        """Insert an allowance, or update its cap and epsilon."""
        self._execute(
            "INSERT INTO allowance (account, kind, name, cap, epsilon, used)"
            " VALUES (:account, :kind, :name, :cap, :epsilon, :used)"
            " ON CONFLICT (account, kind, name) DO UPDATE"
            " SET cap = excluded.cap, epsilon = excluded.epsilon",
            vars(allowance),
        )

    def use_allowance(self, allowance: Allowance, *, amount: int) -> None:
        """Add to the used amount of an allowance. The database enforces 0 <= used <= cap."""
        self._execute(
            "UPDATE allowance SET used = used + :amount WHERE account = :account AND kind = :kind AND name = :name",
            vars(allowance) | {"amount": amount},
        )

    def put_share(self, share: Share) -> None:
        """Insert a share, or update its cap and token. The database enforces 0 <= spent <= cap."""
        self._execute(
            "INSERT INTO share (run, analyst, cap, token, spent, last) VALUES (:run, :analyst, :cap, :token, :spent, :last)"
            " ON CONFLICT (run, analyst) DO UPDATE SET cap = excluded.cap, token = excluded.token, last = excluded.last",
            vars(share),
        )

    def add_run(self, run: Run) -> None:
        """Insert a run. Its number is that of the event that first reserves it."""
        self._execute(
            "INSERT INTO run (number, id, account, reserved, spent, state, claim, analyst, purpose, data_version, opened_at,"
            " release, fence, holder, lease_seconds, first, last) VALUES (:first, :id, :account, :reserved, :spent, :state,"
            " :claim, :analyst, :purpose, :data_version, :opened_at, :release, :fence, :holder, :lease_seconds, :first,"
            " :last)",
            vars(run),
        )

    def replace_run(self, run: Run) -> None:
        """Update a run. Its id, account, amount, claim, analyst, purpose and opening time never change."""
        self._execute(
            "UPDATE run SET spent = :spent, state = :state, data_version = :data_version, release = :release,"
            " fence = :fence, holder = :holder, lease_seconds = :lease_seconds, first = :first, last = :last"
            " WHERE id = :id",
            vars(run),
        )

    def charge_operation(self, operation: Operation, *, mechanism: str, event: Event) -> None:
        """Append an event, insert the operation that it charges, and add its price to what run and analyst have spent.

        The mechanism is canonical JSON.
        """
        price = {"mechanism": mechanism, "charged": event.seq, "id": operation.run, "price": operation.amount}
        spending = () if operation.analyst is None else (_SPEND,)
        self._store.execute_together((_APPEND, _CHARGE, *spending, _ADVANCE), vars(operation) | vars(event) | price)

    def commit_operation(self, operation: Operation, *, output: bytes | None, sha256: str, event: Event) -> None:
        """Append an event and store the committed output and its hash. `output` is None if it lies beside the database."""
        result = {"output": output, "sha256": sha256, "committed": event.seq, "id": operation.run, "price": 0}
        key = {"step": operation.step, "attempt": operation.attempt}
        self._store.execute_together((_APPEND, _COMMIT, _ADVANCE), vars(event) | key | result)

    def append(self, event: Event) -> None:
        """Append an event to the chain, as its new head."""
        self._execute(_APPEND, vars(event))


def _account(*row: Any) -> Account:
    name, currency, cap, epsilon, delta, unit, neighbours, description, blocks_by, state, *rest = row
    terms = (unit, Neighbours(neighbours), description, blocks_by)
    return Account(name, Currency(currency), cap, epsilon, delta, *terms, AccountState(state), *rest)


def _block(*row: Any) -> Block:
    account, name, state, cap, used = row
    return Block(account, name, BlockState(state), cap, used)


def _allowance(*row: Any) -> Allowance:
    account, kind, *rest = row
    return Allowance(account, AllowanceKind(kind), *rest)


def _run(*row: Any) -> Run:
    run_id, account, reserved, spent, state, *rest = row
    return Run(run_id, account, reserved, spent, RunState(state), *rest)


def _operation(*row: Any) -> Operation:
    run, step, attempt, state, amount, mechanism, *rest = row
    return Operation(run, step, attempt, OperationState(state), amount, json.loads(mechanism), *rest)


def _run_and_attempt(clock: datetime | None, seq: int, digest: str, *row: Any) -> tuple[Run, Operation | None, Head]:
    run, attempt = row[:_RUN_WIDTH], row[_RUN_WIDTH:]
    return _run(*run), None if attempt[0] is None else _operation(*attempt), Head(seq, digest, clock)


def _event(*row: Any) -> Event:
    seq, at, kind, *rest = row
    return Event(seq, at, EventKind(kind), *rest)


def _all(make: Callable[..., Row], found: Iterable[Any]) -> tuple[Row, ...]:
    return tuple(_each(make, found))


def _each(make: Callable[..., Row], found: Iterable[Any]) -> Iterator[Row]:
    for row in found:
        try:
            yield make(*row)
        except (ValueError, TypeError) as error:
            raise LedgerDamaged("a row of the ledger is unreadable; restore the ledger from a backup") from error


def _first(make: Callable[..., Row], found: Iterable[Any]) -> Row | None:
    return next(_each(make, found), None)
