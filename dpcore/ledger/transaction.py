"""The ledger's queries inside one transaction, in SQL that every store understands."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, get_type_hints

from dpcore.errors import LedgerDamaged
from dpcore.ledger.chain import GENESIS
from dpcore.ledger.events import read_body
from dpcore.ledger.rows import Account, Allowance, AllowanceKind, Block, Event, EventKind, Operation, Run, Share
from dpcore.ledger.store import Store

Record = TypeVar("Record")

PAGE = 1_000
"""The number of events in a page."""

TABLES: Mapping[type, str] = {
    Account: "account",
    Block: "block",
    Allowance: "allowance",
    Event: "event",
    Run: "run",
    Share: "share",
    Operation: "operation",
}
"""The table of each kind of record. Its columns have the names of the record's fields."""


@cache
def columns(kind: type) -> tuple[str, ...]:
    """Return the names of a record's columns."""
    return tuple(field.name for field in fields(kind))


def select(kind: type, *, of: str = "") -> str:
    """Return the query of all records of a kind, to be completed by a condition or an order."""
    return f"SELECT {', '.join(columns(kind))} FROM {of or TABLES[kind]}"


_RUN_AND_ATTEMPT = (
    f"last_event.seq, last_event.hash, {', '.join(f'run.{name}' for name in columns(Run))}, "
    + ", ".join("NULL" if name == "output" else f"operation.{name}" for name in columns(Operation))
    + " FROM run JOIN event AS last_event ON last_event.seq = (SELECT max(seq) FROM event)"
    " LEFT JOIN operation ON operation.run = run.id AND step = :step"
    " AND attempt = (SELECT max(attempt) FROM operation WHERE run = :id AND step = :step) WHERE run.id = :id"
)


def _insert(kind: type, *more: str, without: Collection[str] = ()) -> str:
    """Return the statement that inserts a record, with more columns or without some."""
    names = [name for name in (*columns(kind), *more) if name not in without]
    return f"INSERT INTO {TABLES[kind]} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"


_APPEND = _insert(Event)
_CHARGE = _insert(Operation, "charged", without={"sha256", "output"})
_COMMIT = (
    "UPDATE operation SET state = 'committed', output = :output, sha256 = :sha256, committed = :committed"
    " WHERE run = :run AND step = :step AND attempt = :attempt"
)
_ADVANCE = "UPDATE run SET spent = spent + :price, last = :seq WHERE id = :id"
_SPEND = "UPDATE share SET spent = spent + :price, last = :seq WHERE run = :run AND analyst = :analyst"


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
        last = self._execute(f"SELECT seq, hash, {self._store.clock} FROM event ORDER BY seq DESC LIMIT 1")
        return Head(*last[0]) if last else Head(0, GENESIS, None)

    def hash_of(self, seq: int) -> str | None:
        """Return the hash of the event with this number, or None."""
        event = self._execute("SELECT hash FROM event WHERE seq = :seq", {"seq": seq})
        return str(event[0][0]) if event else None

    def account(self, name: str) -> Account | None:
        """Return the account, or None."""
        return self._one(Account, "name = :name", name=name)

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts, sorted by name."""
        return tuple(sorted(self._all(Account, "TRUE"), key=lambda account: account.name))

    def blocks(self, account: str, names: Collection[str] | None) -> tuple[Block, ...]:
        """Return the account's blocks, or those of `names` that exist, sorted by name."""
        named = {} if names is None else {"names": self._store.names(names)}
        condition = f"account = :account AND {self._store.is_named}" if named else "account = :account"
        return tuple(sorted(self._all(Block, condition, account=account, **named), key=lambda block: block.name))

    def allowances(self, account: str) -> tuple[Allowance, ...]:
        """Return the account's allowances for analysts and purposes."""
        allowances = self._all(Allowance, "account = :account", account=account)
        return tuple(sorted(allowances, key=lambda allowance: (allowance.kind, allowance.name)))

    def run(self, run_id: str) -> Run | None:
        """Return the run, or None."""
        return self._one(Run, "id = :id", id=run_id)

    def runs(self, account: str) -> tuple[Run, ...]:
        """Return the account's runs, oldest first."""
        return self._all(Run, "account = :account ORDER BY number", account=account)

    def open_runs(self, account: str) -> tuple[Run, ...]:
        """Return the account's runs that still hold a reservation."""
        return self._all(Run, "account = :account AND state = 'open'", account=account)

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
        rows = self._execute(f"SELECT {self._store.clock}, {_RUN_AND_ATTEMPT}", {"id": run_id, "step": step})
        if not rows:
            return None
        clock, seq, digest, *row = rows[0]
        run, attempt = row[: len(columns(Run))], row[len(columns(Run)) :]
        newest = None if attempt[0] is None else _record(Operation, attempt)
        return _record(Run, run), newest, Head(seq, digest, clock)

    def committed(self, run_id: str, *, step: str | None) -> tuple[Operation, ...]:
        """Return the run's committed operations, or those of one step, in commit order."""
        condition = "state = 'committed' AND run = :run" + ("" if step is None else " AND step = :step")
        return self._all(Operation, f"{condition} ORDER BY committed", run=run_id, step=step)

    def share(self, run_id: str, analyst: str) -> Share | None:
        """Return an analyst's share of a run, or None."""
        return self._one(Share, "run = :run AND analyst = :analyst", run=run_id, analyst=analyst)

    def shares(self, run_id: str) -> tuple[Share, ...]:
        """Return the shares of a run, sorted by the names of the analysts."""
        return tuple(sorted(self._all(Share, "run = :run", run=run_id), key=lambda share: share.analyst))

    def event(self, seq: int) -> Event | None:
        """Return the event with this number, or None."""
        return self._one(Event, "seq = :seq", seq=seq)

    def first_cap(self, account: str, *, across: bool = False) -> int | None:
        """Return an account's cap when its first operation was charged, or None if none was charged yet.

        With `across`, return the cap across blocks instead; the account must have one.
        """
        raised, key = (EventKind.ACROSS_RAISED, "across") if across else (EventKind.CAP_RAISED, "cap")
        charged = (
            "SELECT operation.charged FROM operation JOIN run ON run.id = operation.run WHERE run.account = :account"
            " ORDER BY operation.charged LIMIT 1"
        )
        declared = self._one(
            Event,
            f"account = :account AND kind IN ('{EventKind.ACCOUNT_OPENED}', '{raised}')"
            f" AND seq < ({charged}) ORDER BY seq DESC LIMIT 1",
            account=account,
        )
        return None if declared is None else int(read_body(declared)[key])

    def is_recorded(self, kind: EventKind, *, body: str) -> bool:
        """Return whether an event of this kind has exactly this body. Scans the whole chain."""
        return self._one(Event, "kind = :kind AND body = :body LIMIT 1", kind=kind, body=body) is not None

    def events(self, *, after: int, until: int) -> tuple[Event, ...]:
        """Return the next page of events between two numbers, oldest first."""
        return self._all(Event, f"seq > :after AND seq <= :until ORDER BY seq LIMIT {PAGE}", after=after, until=until)

    def events_of_kind(self, *kinds: EventKind) -> tuple[Event, ...]:
        """Return all events of rare kinds, oldest first. Scans the whole chain. Raise if no ledger can have written one of them."""
        named = ", ".join(f"'{kind}'" for kind in kinds)
        events = self._all(Event, f"kind IN ({named}) ORDER BY seq")
        for event in events:
            read_body(event)
        return events

    def insert(self, record: Account | Block | Allowance | Share) -> None:
        """Insert a row."""
        self._execute(_insert(type(record)), vars(record))

    def replace_account(self, account: Account) -> None:
        """Update the account's caps, epsilons and state, and its blocks' caps. Its other terms never change."""
        self._execute(
            "UPDATE account SET cap = :cap, epsilon = :epsilon, across = :across, across_epsilon = :across_epsilon,"
            " state = :state WHERE name = :name",
            vars(account),
        )
        self._execute("UPDATE block SET cap = :cap WHERE account = :name AND cap <> :cap", vars(account))

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
        update = " ON CONFLICT (account, kind, name) DO UPDATE SET cap = excluded.cap, epsilon = excluded.epsilon"
        self._execute(_insert(Allowance) + update, vars(allowance))

    def use_allowance(self, allowance: Allowance, *, amount: int) -> None:
        """Add to the used amount of an allowance. The database enforces 0 <= used <= cap."""
        self._execute(
            "UPDATE allowance SET used = used + :amount WHERE account = :account AND kind = :kind AND name = :name",
            vars(allowance) | {"amount": amount},
        )

    def put_share(self, share: Share) -> None:
        """Insert a share, or update its cap and token. The database enforces 0 <= spent <= cap."""
        update = (
            " ON CONFLICT (run, analyst) DO UPDATE SET cap = excluded.cap, token = excluded.token, last = excluded.last"
        )
        self._execute(_insert(Share) + update, vars(share))

    def add_run(self, run: Run) -> None:
        """Insert a run. Its number is that of the event that first reserves it."""
        self._execute(_insert(Run, "number"), vars(run) | {"number": run.first})

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

    def _all(self, kind: type[Record], condition: str, /, **parameters: Any) -> tuple[Record, ...]:
        rows = self._execute(f"{select(kind)} WHERE {condition}", parameters)
        return tuple(_record(kind, row) for row in rows)

    def _one(self, kind: type[Record], condition: str, /, **parameters: Any) -> Record | None:
        return next(iter(self._all(kind, condition, **parameters)), None)


def _record(kind: type[Record], row: Iterable[Any]) -> Record:
    """Return a stored row as a record. Raise LedgerDamaged if a value has no meaning."""
    readers = _readers(kind)  # type: ignore[arg-type]
    try:
        return kind(*(read(value) if read else value for read, value in zip(readers, row, strict=True)))
    except (ValueError, TypeError) as error:
        raise LedgerDamaged("a row of the ledger is unreadable; restore the ledger from a backup") from error


@cache
def _readers(kind: type) -> tuple[Callable[[Any], Any] | None, ...]:
    """Return how each stored value becomes a field: enumerations by their names, and a mechanism from its JSON."""

    def reader(name: str, of: Any) -> Callable[[Any], Any] | None:
        if name == "mechanism":
            return json.loads
        return of if isinstance(of, type) and issubclass(of, StrEnum) else None

    return tuple(reader(name, of) for name, of in get_type_hints(kind).items() if name in columns(kind))
