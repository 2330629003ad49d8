"""Whether a ledger is whole: its chain, what follows from it, every row, output and price, and the heads stated elsewhere.

One pass over the events replays the protocol and holds each row against the event that it came from. Memory goes with the
accounts, blocks and allowances and with the runs in flight, not with events, operations and runs that have ended.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from dpcore.errors import DpflowError, LedgerDamaged
from dpcore.ledger.chain import GENESIS, canonical, link
from dpcore.ledger.rows import Event, EventKind, in_currency
from dpcore.ledger.scan import ChargedRow, CommittedRow, LedgerScan
from dpcore.ledger.verification.bodies import read_body
from dpcore.ledger.verification.findings import at_event, at_row, differing, named, require
from dpcore.ledger.verification.replay import Replay
from dpcore.ledger.verification.replayed_run import Details
from dpcore.ledger.verification.tables import require_attempts, require_tables
from dpcore.privacy.accounting import Currency

Price: TypeAlias = Callable[[Mapping[str, Any], Currency], int]
"""What a mechanism costs, as an amount; raises an error for one that has no price."""

_PRICES_KEPT = 1024


@dataclass(frozen=True)
class Verified:
    """What was found whole: how many of each, and the hash that stands for all of it."""

    events: int
    runs: int
    operations: int
    outputs: int
    manifests: int
    head: str
    others: int = 0
    """Manifests that were found and are of another ledger."""
    files: int = 0
    """Files of releases, manifests among them, that are what was published."""
    absent: int = 0
    """Releases on record that do not lie where they were published, nor where else was looked."""


class Scanned(Protocol):
    """A ledger, as far as it is verified."""

    def scanning(self) -> AbstractContextManager[LedgerScan]:
        """Read every row in one transaction."""


def verify(ledger: Scanned, *, price: Price, heads: Mapping[str, str], expected_head: str | None = None) -> Verified:
    """Check everything that a ledger holds.

    Args:
        ledger: The ledger, which may be in use meanwhile: one state of it is seen.
        price: What a mechanism costs; what was charged must not be less.
        heads: The head of the chain that the manifest of each release states, by the manifest's name.
        expected_head: A head that was written down elsewhere, if there is one.

    Raises:
        LedgerDamaged: At the first row that does not fit, which the message names.
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
            f"{whose}, {head[:16]}..., is not in this chain of {check.seq} events: events were dropped since, or it is "
            "of another ledger; restore the newest backup, or check DPFLOW_LEDGER_URL"
        )
    counts = {"runs": check.runs, "operations": check.operations, "outputs": check.outputs}
    return Verified(events=check.seq, **counts, manifests=len(heads), head=check.head)


def replay(scan: LedgerScan) -> None:
    """Check everything but prices and the heads stated elsewhere, in a transaction that has begun.

    Raises:
        LedgerDamaged: At the first row that does not fit, which the message names.
    """
    check = _Check(scan, price=lambda _mechanism, _currency: 0)
    for _ in check.events():
        pass
    check.rest()


class _Check:
    """The events, one by one, each held against what the protocol allows and against the rows that it led to."""

    def __init__(self, scan: LedgerScan, *, price: Price) -> None:
        self.seq, self.head = 0, GENESIS
        self.runs = self.operations = self.outputs = 0
        self._scan = scan
        self._price = lru_cache(_PRICES_KEPT)(lambda text, currency: price(json.loads(text), currency))
        self._replay = Replay((row.account, row.kind, row.name) for row in scan.all_allowances())
        self._charges, self._commits, self._ids = scan.charges(), scan.commits(), scan.run_ids()
        self._ends = scan.runs_by_last_event()
        self._end = next(self._ends, None)

    def events(self) -> Iterator[Event]:
        """Go through the chain as far as it fits."""
        for event in self._scan.all_events():
            _require_link(event, seq=self.seq + 1, previous=self.head)
            details = read_body(event)
            if event.kind == EventKind.RESERVED and event.run not in self._replay.runs:
                self.runs += 1
                require(event, next(self._ids, None) == event.run, "reserves a run that has no row in its place")
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
        """Look at what no single event stands for: the head, rows without an event, accounts, and the attempts of each step."""
        head = self._scan.head()
        if (head.seq, head.hash) != (self.seq, self.head):
            raise LedgerDamaged(
                f"the ledger ends with event {head.seq}, and its chain with event {self.seq}; restore it from a backup"
            )
        for row in self._charges:
            raise at_row(f"the operation that event {row.charged} charged", "is there, and no event tells of it")
        for commit in self._commits:
            raise at_row(f"the operation that event {commit.committed} committed", "is there, and no event tells of it")
        if self._end is not None:
            raise at_row(f"run {named(self._end.id)}", "was last changed by an event that is not of it, says its row")
        for run_id in (*self._replay.runs, *self._ids):
            raise at_row(f"run {named(run_id)}", "has lost its row, or has one that no event tells of")
        require_tables(self._scan, self._replay)
        require_attempts(self._scan, operations=self.operations)
        self._scan.require_sound_database()

    def _require_charged(self, event: Event, details: Details) -> None:
        self.operations += 1
        row = next(self._charges, None)
        if row is None or row.charged != event.seq:
            raise at_event(event, "has no operation's row")
        step, attempt, amount, fence = (details[key] for key in ("step", "attempt", "amount", "fence"))
        mechanism = canonical(details["mechanism"])
        told = ChargedRow(event.seq, str(event.run), step, attempt, amount, mechanism, fence)
        if row != told:
            raise at_event(event, f"is not what its operation's row says, in: {differing(row, told)}")
        self._require_paid(event, amount=amount, mechanism=mechanism)

    def _require_paid(self, event: Event, *, amount: int, mechanism: str) -> None:
        currency = self._replay.accounts[event.account].currency
        try:
            price = self._price(mechanism, currency)
        except (DpflowError, ArithmeticError, TypeError, ValueError):  # whatever was recorded leads to a finding
            raise at_event(
                event, "has a mechanism without a price here", then="account again with the version that recorded it"
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
        row = next(self._commits, None)
        if row is None or row.committed != event.seq:
            raise at_event(event, "has no operation's row")
        step, attempt, sha256 = details["step"], details["attempt"], details["sha256"]
        fence = self._replay.runs[str(event.run)].run.fence
        told = CommittedRow(event.seq, str(event.run), step, attempt, sha256, fence, row.digest)
        if row != told:
            raise at_event(event, f"is not what its operation's row says, in: {differing(row, told)}")
        # Only now is the hash known to be one, and not a path to somewhere.
        found = row.digest if row.digest is not None else self._scan.kept_digest(sha256)
        require(
            event, found == sha256, "has an output that is " + ("lost" if found is None else "not what was committed")
        )

    def _require_run(self, event: Event) -> None:
        row, self._end = self._end, next(self._ends, None)
        run = self._replay.runs.pop(event.run or "", None)
        if row is None or run is None or row.id != event.run:
            raise at_event(event, "is taken for the last of a run that it is not about")
        if row != run.row:
            raise at_event(event, f"leaves a run that is not what its row says, in: {differing(row, run.row)}")


def _require_link(event: Event, *, seq: int, previous: str) -> None:
    """Refuse an event that does not follow the one before, or that is not what its hash says."""
    if event.seq != seq:
        raise LedgerDamaged(f"event {seq} is missing from the ledger; restore the ledger from a backup")
    require(event, event.previous == previous, "does not follow the event before it")
    try:
        told = link(
            previous, seq=seq, at=event.at, kind=event.kind, account=event.account, run=event.run, body=event.body
        )
        require(event, event.hash == told.hash, "is not what its hash says")
        readable = datetime.fromisoformat(event.at).tzinfo is not None
    except (TypeError, ValueError):
        readable = False
    require(event, readable, "does not read")
