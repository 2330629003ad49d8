"""One change of a ledger: a transaction that knows its time and appends to the chain."""

from collections.abc import Mapping
from datetime import UTC, datetime

from dpcore.ledger.chain import canonical, link
from dpcore.ledger.heads import require_continues
from dpcore.ledger.rows import Event, EventKind, Operation, Run
from dpcore.ledger.store import Store
from dpcore.ledger.transaction import Head, LedgerTransaction


class WritingTransaction(LedgerTransaction):
    """A transaction that is the only writer from here to its end.

    `now` is the database's clock where many machines share one, else this machine's. Nothing but the courtesy of waiting
    for a lease depends on it.
    """

    def __init__(self, store: Store, *, now: datetime | None, seen: Head | None = None) -> None:
        """Begin.

        Args:
            store: Inside a writing transaction.
            now: The moment of this transaction, if it is not the store's to say.
            seen: The chain's last link as it was seen before: no event is appended to a chain that has lost it.
        """
        super().__init__(store)
        self._given = now
        self._seen = seen
        self._last: Head | None = None
        self._now: datetime | None = None

    @property
    def last(self) -> Head:
        """The chain's last link, as this transaction has left it."""
        if self._last is None:
            self._last = self._continuing(self.head())
        return self._last

    @property
    def known_last(self) -> Head | None:
        """The chain's last link as this transaction has left it, if it has looked."""
        return self._last

    @property
    def now(self) -> datetime:
        """The moment of this transaction."""
        if self._now is None:
            self._now = (self._given or self.last.clock or datetime.now(UTC)).astimezone(UTC)
        return self._now

    @property
    def at(self) -> str:
        """The moment of this transaction, as events and rows have it."""
        return self.now.isoformat(timespec="microseconds")

    def run_and_attempt(self, run_id: str, step: str) -> tuple[Run, Operation | None, Head] | None:
        """Return a run, the newest attempt of one of its steps and the chain's last link, which is then known."""
        found = super().run_and_attempt(run_id, step)
        if found is None:
            _ = self.last  # a chain that has lost the run is refused as such
        else:
            self._last = self._continuing(found[2])
        return found

    def _continuing(self, head: Head) -> Head:
        """Return the head of a chain that still holds what was seen of it, or refuse."""
        if self._seen is not None:
            require_continues(self, head, seen=self._seen, place=self._store.place)
        return head

    def next_event(self, kind: EventKind, *, account: str, run: str | None, body: Mapping[str, object]) -> Event:
        """Return the event that tells of a change, to be appended with it."""
        last, content = self.last, canonical(body)
        event = link(last.hash, seq=last.seq + 1, at=self.at, kind=kind, account=account, run=run, body=content)
        self._last = Head(event.seq, event.hash, last.clock)
        return event

    def record(self, kind: EventKind, *, account: str, run: str | None, body: Mapping[str, object]) -> Event:
        """Append the event that tells of a change, in the transaction that makes it."""
        event = self.next_event(kind, account=account, run=run, body=body)
        self.append(event)
        return event
