"""A write transaction: it has a timestamp, and appends events to the chain."""

from collections.abc import Mapping
from datetime import UTC, datetime

from dpcore.ledger.chain import canonical, link
from dpcore.ledger.events import read_body
from dpcore.ledger.heads import require_continues
from dpcore.ledger.rows import Event, EventKind, Operation, Run, whole_minute
from dpcore.ledger.store import Store
from dpcore.ledger.transaction import Head, LedgerTransaction


class WritingTransaction(LedgerTransaction):
    """An exclusive write transaction.

    `now` comes from the database's clock if several machines share it, otherwise from this machine's. Only lease expiry depends
    on it, and no guarantee does.
    """

    def __init__(self, store: Store, *, now: datetime | None, seen: Head | None = None) -> None:
        """Begin.

        Args:
            store: Inside a writing transaction.
            now: The time of this transaction, overriding the clocks.
            seen: The last link of the chain seen before. No event is appended to a chain that has lost it.
        """
        super().__init__(store)
        self._given = now
        self._seen = seen
        self._last: Head | None = None
        self._now: datetime | None = None

    @property
    def last(self) -> Head:
        """The last link of the chain, including this transaction's events."""
        if self._last is None:
            self._last = self._continuing(self.head())
        return self._last

    @property
    def known_last(self) -> Head | None:
        """The last link of the chain if this transaction has read it, otherwise None."""
        return self._last

    @property
    def now(self) -> datetime:
        """The time of this transaction."""
        if self._now is None:
            self._now = (self._given or self.last.clock or datetime.now(UTC)).astimezone(UTC)
        return self._now

    @property
    def at(self) -> str:
        """The time of this transaction, as written to events and rows."""
        return whole_minute(self.now)

    def run_and_attempt(self, run_id: str, step: str) -> tuple[Run, Operation | None, Head] | None:
        """Return a run, the newest attempt of a step and the last link of the chain, and remember that link."""
        rows = super().run_and_attempt(run_id, step)
        if rows is None:
            _ = self.last  # raises if the chain has lost events, and the run with them
        else:
            self._last = self._continuing(rows[2])
        return rows

    def _continuing(self, head: Head) -> Head:
        """Return the head. Raise if the chain has lost the link seen before."""
        if self._seen is not None:
            require_continues(self, head, seen=self._seen, place=self._store.place)
        return head

    def next_event(self, kind: EventKind, *, account: str, run: str | None, body: Mapping[str, object]) -> Event:
        """Return the event that records a change, to be appended in the same transaction."""
        last, content = self.last, canonical(body)
        event = link(last.hash, seq=last.seq + 1, at=self.at, kind=kind, account=account, run=run, body=content)
        read_body(event)  # raises if the event breaks the rule of its kind, whatever the store
        self._last = Head(event.seq, event.hash, last.clock)
        return event

    def record(self, kind: EventKind, *, account: str, body: Mapping[str, object], run: str | None = None) -> Event:
        """Append the event that records a change, in the transaction that makes it."""
        event = self.next_event(kind, account=account, run=run, body=body)
        self.append(event)
        return event
