"""Verify a ledger: its hash chain, every row, output and price, and the heads recorded elsewhere.

One pass over the events replays the protocol and compares each row with the event that wrote it. Memory grows with the number of
accounts, blocks, allowances, shares and open runs, not with that of events, operations or ended runs.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, TypeVar

from dpcore.errors import DpflowError, LedgerDamaged
from dpcore.ledger.chain import GENESIS, canonical, link
from dpcore.ledger.events import read_body
from dpcore.ledger.findings import at_event, at_row, differing, named, require
from dpcore.ledger.rows import (
    Account,
    Allowance,
    Block,
    Event,
    EventKind,
    OperationState,
    Share,
    in_currency,
    whole_minute,
)
from dpcore.ledger.scan import LedgerScan, OperationRow
from dpcore.ledger.verification.replay import Details, Replay
from dpcore.privacy.accounting import Currency

Row = TypeVar("Row")
Price: TypeAlias = Callable[[Mapping[str, Any], Currency], int]
"""Returns a mechanism's price as an amount. Raises if it has none."""

_PRICES_KEPT = 1024


@dataclass(frozen=True)
class Verified:
    """The result of a verification: the number of records checked, and the head of the chain."""

    events: int
    runs: int
    operations: int
    outputs: int
    manifests: int
    head: str
    others: int = 0
    """The number of manifests found that belong to another ledger."""
    files: int = 0
    """The number of release files, including manifests, that match their publication."""
    absent: int = 0
    """The number of recorded releases found neither where they were published nor in the folders searched."""
    withdrawn: int = 0
    """The number of releases found whose data was removed, as recorded in the ledger."""
    first_absent: tuple[tuple[str, str], ...] = ()
    """The first few of the absent releases: each as DATASET/RELEASE, and its run."""

    @property
    def claims(self) -> tuple[tuple[str, int, str], ...]:
        """What was checked, how many there are, and what holds for each."""
        withdrawn = ("withdrawn", self.withdrawn, "each as recorded: without data, with its reason")
        return (
            ("events", self.events, "each hash follows from the one before"),
            ("runs", self.runs, "each sum follows from the events"),
            ("operations", self.operations, "each price follows from its mechanism"),
            ("outputs", self.outputs, "each is the output that was committed"),
            ("manifests", self.manifests, "each names a head of this ledger and its run's promise"),
            ("files", self.files, "each file of these releases is as published, and there are no others"),
            *((withdrawn,) if self.withdrawn else ()),
        )


class Scanned(Protocol):
    """The part of a ledger that verification needs."""

    def scanning(self) -> AbstractContextManager[LedgerScan]:
        """Read every row in one transaction."""


def verify(ledger: Scanned, *, price: Price, heads: Mapping[str, str], expected_head: str | None = None) -> Verified:
    """Verify everything that a ledger holds.

    Args:
        ledger: The ledger. It may be in use meanwhile: the verification reads one snapshot.
        price: Returns a mechanism's price. No charge may be lower.
        heads: The chain's head that each release's manifest states, by the manifest's name.
        expected_head: A head noted elsewhere, if there is one.

    Raises:
        LedgerDamaged: At the first event or row that is invalid, which the message names.
    """
    awaited = {head: f"the head in the manifest {name}" for name, head in heads.items()}
    if expected_head is not None:
        awaited[expected_head] = "the head that was expected"
    with ledger.scanning() as scan:
        check = _Check(scan, price=price)
        for event in check.events():
            awaited.pop(event.hash, None)
        check.rest()
    if not check.seq:
        awaited.pop(GENESIS, None)
    for head, whose in awaited.items():
        raise LedgerDamaged(
            f"{whose}, {head[:16]}..., is not in this chain of {check.seq} events: events were dropped since, or the head "
            "is of another ledger; restore the newest backup, or check DPFLOW_LEDGER_URL"
        )
    return Verified(
        events=check.seq,
        runs=check.runs,
        operations=check.operations,
        outputs=check.outputs,
        manifests=len(heads),
        head=check.head,
    )


def replay(scan: LedgerScan) -> None:
    """Verify everything except prices and heads recorded elsewhere, inside an open transaction.

    Raises:
        LedgerDamaged: At the first event or row that is invalid, which the message names.
    """
    check = _Check(scan, price=lambda _mechanism, _currency: 0)
    for _ in check.events():
        pass
    check.rest()


class _Check:
    """Compares each event with the protocol and with the rows that it wrote."""

    def __init__(self, scan: LedgerScan, *, price: Price) -> None:
        self.seq, self.head = 0, GENESIS
        self.runs = self.operations = self.outputs = 0
        self._scan = scan
        self._price = lru_cache(_PRICES_KEPT)(lambda text, currency: price(json.loads(text), currency))
        self._replay = Replay((row.account, row.kind, row.name) for row in scan.every(Allowance))
        self._charges, self._commits, self._numbers = scan.charges(), scan.commits(), scan.run_numbers()
        self._ends = scan.runs_by_last_event()
        self._end = next(self._ends, None)

    def events(self) -> Iterator[Event]:
        """Iterate over the chain, verifying each event before yielding it."""
        for event in self._scan.chain():
            _require_link(event, seq=self.seq + 1, previous=self.head)
            details = read_body(event)
            if event.kind == EventKind.RESERVED and event.run not in self._replay.runs:
                self.runs += 1
                row = next(self._numbers, None)
                require(event, row == (event.seq, event.run), "reserves a run whose row is missing or misplaced")
            self._replay.follow(event, details)
            if event.kind == EventKind.CHARGED:
                self._require_charged(event, details)
            elif event.kind == EventKind.COMMITTED:
                self._require_committed(event, details)
            while self._end is not None and self._end.last == event.seq:
                self._require_run(event)
            self.seq, self.head = event.seq, event.hash
            yield event

    def rest(self) -> None:
        """Verify what concerns no single event: the head, rows without an event, the tables, and the attempts of each step."""
        head = self._scan.head()
        if (head.seq, head.hash) != (self.seq, self.head):
            raise LedgerDamaged(
                f"the ledger ends with event {head.seq}, but its chain with event {self.seq}; restore it from a backup"
            )
        for row in self._charges:
            raise at_row(f"the operation that event {row.charged} charged", "exists, but no event records it")
        for commit in self._commits:
            raise at_row(f"the operation that event {commit.committed} committed", "exists, but no event records it")
        if self._end is not None:
            raise at_row(f"run {named(self._end.id)}", "has a row that names another run's event as its last")
        for run_id in (*self._replay.runs, *(run_id for _, run_id in self._numbers)):
            raise at_row(f"run {named(run_id)}", "has no row, or has one that no event records")
        _require_tables(self._scan, self._replay)
        _require_attempts(self._scan, operations=self.operations)
        self._scan.require_sound_database()

    def _require_charged(self, event: Event, details: Details) -> None:
        self.operations += 1
        mechanism = canonical(details["mechanism"])
        expected = {"charged": event.seq, "run": event.run, **details, "mechanism": mechanism}
        self._require_operation(event, next(self._charges, None), expected)
        self._require_paid(event, amount=details["amount"], mechanism=mechanism)

    def _require_operation(self, event: Event, row: OperationRow | None, expected: Details) -> OperationRow:
        """Return the row of the operation that an event charged or committed. Raise unless it has these values."""
        if row is None or event.seq not in {row.charged, row.committed}:
            raise at_event(event, "has no row for its operation")
        if wrong := [key for key, value in expected.items() if getattr(row, key) != value]:
            raise at_event(event, f"differs from its operation's row in: {', '.join(wrong)}")
        return row

    def _require_paid(self, event: Event, *, amount: int, mechanism: str) -> None:
        currency = self._replay.accounts[event.account].currency
        try:
            price = self._price(mechanism, currency)
        except (DpflowError, ArithmeticError, TypeError, ValueError):  # report any recorded mechanism that fails
            raise at_event(
                event, "has a mechanism that this version cannot price", then="verify with the version that recorded it"
            ) from None
        if price > amount:
            charged, costs = in_currency(amount, currency), in_currency(price, currency)
            raise at_event(
                event,
                f"was charged {charged} and costs {costs}",
                then="count the difference as spent, and find out why",
            )

    def _require_committed(self, event: Event, details: Details) -> None:
        self.outputs += 1
        stated = {key: details[key] for key in ("step", "attempt", "sha256")}
        fence = self._replay.runs[str(event.run)].fence
        row = self._require_operation(
            event, next(self._commits, None), {"committed": event.seq, "run": event.run, **stated, "fence": fence}
        )
        # The hash is used as a file name only after it is known to be a hash, and not a path.
        digest = row.digest if row.digest is not None else self._scan.kept_digest(details["sha256"])
        problem = "lost" if digest is None else "not what was committed"
        require(event, digest == details["sha256"], f"has an output that is {problem}")

    def _require_run(self, event: Event) -> None:
        row, self._end = self._end, next(self._ends, None)
        run = self._replay.forget(event.run or "")
        if row is None or run is None or row.id != event.run:
            raise at_event(event, "is named as the last event of a run that it does not concern")
        if row != run:
            raise at_event(event, f"leaves a run that differs from its row in: {differing(row, run)}")


def _require_link(event: Event, *, seq: int, previous: str) -> None:
    """Raise if an event does not follow the one before it, or does not match its hash."""
    if event.seq != seq:
        raise LedgerDamaged(f"event {seq} is missing from the ledger; restore the ledger from a backup")
    require(event, event.previous == previous, "does not follow the event before it")
    try:
        linked = link(
            previous, seq=seq, at=event.at, kind=event.kind, account=event.account, run=event.run, body=event.body
        )
        require(event, event.hash == linked.hash, "does not match its hash")
        readable = whole_minute(datetime.fromisoformat(event.at)) == event.at
    except (TypeError, ValueError):
        readable = False
    require(event, readable, "is unreadable")


def _require_tables(scan: LedgerScan, replay: Replay) -> None:
    """Raise unless the accounts, blocks, allowances and shares are exactly those that the events lead to."""
    _require_rows("account", scan.every(Account), replay.accounts, key=lambda row: row.name)
    _require_rows("block", scan.every(Block), replay.blocks, key=lambda row: (row.account, row.name))
    _require_rows(
        "allowance", scan.every(Allowance), replay.allowances, key=lambda row: (row.account, row.kind, row.name)
    )
    _require_rows("share", scan.every(Share), replay.shares, key=lambda row: (row.run, row.analyst))


def _require_rows(
    table: str, rows: Iterable[Row], expected: Mapping[Any, Row], *, key: Callable[[Row], Hashable]
) -> None:
    missing = dict(expected)
    for row in rows:
        recorded = missing.pop(key(row), None)
        if recorded is None:
            raise at_row(f"{table} {_shown(key(row))}", "exists, but no event records it")
        if row != recorded:
            raise at_row(f"{table} {_shown(key(row))}", f"differs from the events in: {differing(row, recorded)}")
    for name in missing:
        raise at_row(f"{table} {_shown(name)}", "has no row")


def _shown(key: Hashable) -> str:
    return ", ".join(map(named, key if isinstance(key, tuple) else (key,)))


def _require_attempts(scan: LedgerScan, *, operations: int) -> None:
    """Raise unless each step's attempts are numbered in the order of their charges, and only the last one is committed.

    The events were already compared with these rows, so a check of the rows also covers the events.
    """
    before: OperationRow | None = None
    attempts = 0
    for row in scan.attempts():
        attempts += 1
        if before is not None and (before.run, before.step) != (row.run, row.step):
            before = None
        if problem := _problem(row, before=before):
            raise at_row(f"attempt {row.attempt} of step {named(row.step)} of run {named(row.run)}", problem)
        before = row
    if attempts != operations:
        raise at_row("the table of operations", "changed between two reads")


def _problem(row: OperationRow, *, before: OperationRow | None) -> str | None:
    if row.attempt != (before.attempt + 1 if before else 1):
        return "is not numbered next after the previous attempt"
    if before and not (before.committed is None and before.charged < row.charged):
        return "was charged before the previous attempt, or after its step was committed"
    if row.committed is None:
        whole = row.state == OperationState.CHARGED and row.sha256 is None and row.digest is None
    else:
        whole = row.state == OperationState.COMMITTED and row.charged < row.committed
    return None if whole else "has columns that disagree on whether it is committed"
