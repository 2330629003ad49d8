"""The connection of a ledger: its transactions, and the comparison of its head with what was seen of it before."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Self

from dpcore.errors import LedgerDamaged, LedgerError, UsageError
from dpcore.ledger.heads import HeadMemory, SeenHead, continues, loss_accepted, require_continues
from dpcore.ledger.rows import Event
from dpcore.ledger.scan import LedgerScan
from dpcore.ledger.store import Store
from dpcore.ledger.transaction import Head, LedgerTransaction
from dpcore.ledger.verification.check import replay
from dpcore.ledger.writing import WritingTransaction


class Connection:
    """An open ledger. It belongs to the process and the thread that opened it; others open their own."""

    def __init__(
        self, store: Store, *, clock: Callable[[], datetime] | None = None, memory: HeadMemory | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._memory = memory
        self._seen: Head | None = None
        self._remembered: Head | None = None
        self._identity: str | None = None
        self._lost: SeenHead | None = None
        self._wrote = False
        self._shared: WritingTransaction | None = None
        self.hides: str | None = None
        """Another `.dpflow` folder in a parent directory, which this ledger hides."""
        self.warning: str | None = None
        """Why nothing may be written to this ledger; None if writing is allowed."""
        self.not_fixed: str | None = None
        """Why no head can be remembered here, so that nothing may be written from here; None if heads are remembered."""

    def close(self) -> None:
        """Remember the newest head and close the store."""
        with suppress(LedgerError, LedgerDamaged):  # the memory was checked to be writable before the first change
            self._remember()
        self._store.close()

    @property
    def place(self) -> str:
        """Where the ledger is: a path, or an address without its password."""
        return self._store.place

    @property
    def known_identity(self) -> str | None:
        """The ledger's identity, without reading the ledger; None while no event was seen in it."""
        return self._identity

    def recall(self) -> None:
        """Compare the ledger with the remembered head. An older copy is opened read-only, and `warning` says so."""
        remembered = self._compared(None)
        if remembered is not None:
            # Another process may have charged and remembered its head after this transaction's snapshot. So compare the same head
            # again, with a newer snapshot of the ledger.
            self._compared(remembered)

    def _compared(self, remembered: SeenHead | None) -> SeenHead | None:
        """Compare the ledger with a seen head, by default the newest. Return that head if the ledger lacks it."""
        second = remembered is not None
        with self.reading() as rows:
            self._seen, self._identity = rows.head(), rows.hash_of(1)
            if self._memory is None or self._identity is None:
                return None
            try:
                if self._store.is_file:  # a database's name does not identify it
                    self._memory.require_no_other(self._identity, place=self.place)
                remembered = remembered or self._memory.recall(self._identity)
            except LedgerDamaged as refused:
                self.warning = str(refused)
                return None
            if remembered is None or continues(rows, self._seen, seq=remembered.seq, digest=remembered.hash):
                return None
            if not loss_accepted(rows, seq=remembered.seq, digest=remembered.hash):
                if second:
                    last = rows.event(self._seen.seq)
                    self._lost, self.warning = remembered, _older_copy(self.place, self._seen, last, remembered)
                return remembered
        with suppress(LedgerError):  # the event that accepts the loss is found again next time
            self._memory.replace(self._identity, self._seen, place=self.place)
        return None

    def require_current(self) -> None:
        """Raise LedgerDamaged if the ledger lacks events that were seen in it before."""
        if self.warning is not None:
            raise LedgerDamaged(self.warning)

    def confirm(self) -> None:
        """Raise unless the ledger continues the one used so far; otherwise remember its head.

        Call this before publishing, so that no release refers to a ledger that lost its run.
        """
        self.require_current()
        with self.reading() as rows:
            head = rows.head()
            if self._seen is not None:
                require_continues(rows, head, seen=self._seen, place=self.place)
        self._seen = head
        self._remember()

    def _require_same_content(self, rows: LedgerTransaction) -> None:
        """Raise if the stored content was replaced since the last transaction. Checks only if the store reports that it may have been."""
        if self._store.rewritten and self._seen is not None and self.warning is None:
            head = rows.head()
            require_continues(rows, head, seen=self._seen, place=self.place)
            # A longer chain is not replayed in the middle of a run, which would block all other writers; `verify` replays it.
            if self._store.unexplained and head.seq <= 10_000:
                self._require_sound()

    def _require_sound(self) -> None:
        """Replay all events against all rows: the file may mix pages of an old copy with current ones."""
        try:
            with closing(LedgerScan(self._store)) as scan:
                replay(scan)
        except LedgerDamaged as damage:
            raise LedgerDamaged(
                f"the ledger at {self.place} was overwritten while it was open ({damage}); nothing was drawn or published"
            ) from None

    def _remember(self) -> None:
        """Remember the newest head that this object has seen. A ledger that is only read creates no folder for it."""
        if self._memory is None or self._identity is None or self._seen is None or self._shared is not None:
            return
        if self.warning is not None or self.not_fixed is not None:
            return
        if self._store.owned and (self._wrote or self._memory.exists):
            self._memory.remember(self._identity, self._seen, place=self.place, holds=self._holds)
            self._remembered = self._seen

    def _holds(self, remembered: SeenHead) -> bool:
        """Return whether the ledger contains a remembered event. One that this object remembered itself needs no query."""
        own = self._remembered
        if own is not None and (own.seq, own.hash) == (remembered.seq, remembered.hash):
            return True
        with self.reading() as rows:
            return continues(rows, rows.head(), seq=remembered.seq, digest=remembered.hash)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[LedgerTransaction]:
        """Begin a transaction with a consistent snapshot of all rows."""
        if self._shared is not None:
            yield self._shared
            return
        with self._store.transaction(writing=False):
            rows = LedgerTransaction(self._store)
            self._require_same_content(rows)
            yield rows

    @contextmanager
    def scanning(self) -> Iterator[LedgerScan]:
        """Begin a transaction with a consistent snapshot that streams whole tables."""
        with self._store.transaction(writing=False), closing(LedgerScan(self._store)) as scan:
            yield scan

    @contextmanager
    def together(self, *, remember: bool = True) -> Iterator[None]:
        """Make the steps of the protocol inside the context one durable transaction: all of them happen, or none.

        Args:
            remember: Whether to remember the new head, as each step alone would: needed before anything is drawn.
        """
        with self._writing() as rows:
            self._shared = rows
            try:
                yield
            finally:
                self._shared = None
        if remember:
            self._remember()

    @contextmanager
    def _writing(self) -> Iterator[WritingTransaction]:
        """Begin an exclusive write transaction. An exception rolls it back."""
        if self._shared is not None:
            yield self._shared
            self._store.end_step()
            return
        self.require_current()
        with self.changing() as rows:
            yield rows

    @contextmanager
    def changing(self) -> Iterator[WritingTransaction]:
        """Begin a write transaction, also of an older copy: only to accept what it has lost."""
        if self.not_fixed is not None:
            raise UsageError(self.not_fixed)
        with self._store.transaction(writing=True):
            now = self._clock() if self._clock else None
            rows = WritingTransaction(self._store, now=now, seen=self._seen)
            self._require_same_content(rows)
            yield rows
            if self._memory is not None and not self._wrote:
                # After the change was checked, because this creates folders, and before it is stored.
                self._memory.require_writable()
            identity = self._identity or rows.hash_of(1)
        self._identity, self._seen, self._wrote = identity, rows.known_last or self._seen, True

    def _forget_loss(self) -> None:
        """Remember the head of an older copy, after the steward has accepted what it has lost."""
        self._lost = self.warning = None
        if self._memory is not None and self._identity is not None and self._seen is not None:
            self._memory.replace(self._identity, self._seen, place=self.place)


def _older_copy(place: str, head: Head, last: Event | None, remembered: SeenHead) -> str:
    """Return the warning that a ledger lacks events that were seen in it."""
    at = f" of {last.at[:19]}" if last else ""
    return (
        f"the ledger at {place} ends with event {head.seq}{at}, but event {remembered.seq} with another history was seen on "
        f"{remembered.at[:19]}: this is an old or a different copy; restore the newest one, or, if that is lost, run as the steward: "
        "dpflow ledger accept-restoration --reason TEXT"
    )
