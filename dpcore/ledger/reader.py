"""The reading side of a ledger: look up accounts, runs, outputs and history."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger.chain import GENESIS
from dpcore.ledger.heads import HeadMemory, SeenHead, continues, loss_accepted, require_continues
from dpcore.ledger.refusals import known_account, known_event, known_run, leased_run, undamaged
from dpcore.ledger.rows import (
    WHOLE,
    Account,
    Allowance,
    Balance,
    Block,
    Event,
    EventKind,
    Lease,
    Operation,
    Run,
    RunState,
)
from dpcore.ledger.scan import LedgerScan
from dpcore.ledger.series import covered
from dpcore.ledger.store import Store
from dpcore.ledger.transaction import Head, LedgerTransaction
from dpcore.ledger.verification.check import replay

MOST_EVENTS_REPLAYED = 10_000
"""Longer chains are not replayed in the middle of a run, which would block all other writers; `verify` replays them."""


class LedgerReader:
    """The current accounts, runs, outputs and history.

    A reader belongs to the process and the thread that opened it. Other processes and threads open their own.
    """

    def __init__(self, store: Store, *, memory: HeadMemory | None = None) -> None:
        self._store = store
        self._memory = memory
        self._seen: Head | None = None
        self._remembered: Head | None = None
        self._identity: str | None = None
        self._lost: SeenHead | None = None
        self._wrote = False
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
        known = self._compared(None)
        if known is not None:
            # Another process may have charged and remembered its head after this transaction's snapshot. So compare the same head
            # again, with a newer snapshot of the ledger.
            self._compared(known)

    def _compared(self, known: SeenHead | None) -> SeenHead | None:
        """Compare the ledger with a seen head, by default the newest. Return that head if the ledger lacks it."""
        second = known is not None
        with self.reading() as rows:
            self._seen, self._identity = rows.head(), rows.hash_of(1)
            if self._memory is None or self._identity is None:
                return None
            try:
                if self._store.is_file:  # a database's name does not identify it
                    self._memory.require_no_other(self._identity, place=self.place)
                known = known or self._memory.recall(self._identity)
            except LedgerDamaged as refused:
                self.warning = str(refused)
                return None
            if known is None or continues(rows, self._seen, seq=known.seq, digest=known.hash):
                return None
            if not loss_accepted(rows, seq=known.seq, digest=known.hash):
                if second:
                    last = rows.event(self._seen.seq)
                    self._lost, self.warning = known, _older_copy(self.place, self._seen, last, known)
                return known
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
            if self._store.unexplained and head.seq <= MOST_EVENTS_REPLAYED:
                self._require_sound()

    def _require_sound(self) -> None:
        """Replay all events against all rows: the file may mix pages of an old copy with current ones."""
        try:
            with closing(LedgerScan(self._store)) as scan:
                replay(scan)
        except LedgerDamaged as found:
            raise LedgerDamaged(
                f"the ledger at {self.place} was overwritten while it was open ({found}); nothing was drawn or published"
            ) from None

    def _remember(self) -> None:
        """Remember the newest head that this object has seen. A ledger that is only read creates no folder for it."""
        if self._memory is None or self._identity is None or self._seen is None:
            return
        if self.warning is not None or self.not_fixed is not None:
            return
        if self._store.owned and (self._wrote or self._memory.exists):
            self._memory.remember(self._identity, self._seen, place=self.place, holds=self._holds)
            self._remembered = self._seen

    def _holds(self, known: SeenHead) -> bool:
        """Return whether the ledger contains a remembered event. One that this object remembered itself needs no query."""
        own = self._remembered
        if own is not None and (own.seq, own.hash) == (known.seq, known.hash):
            return True
        with self.reading() as rows:
            return continues(rows, rows.head(), seq=known.seq, digest=known.hash)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[LedgerTransaction]:
        """Begin a transaction with a consistent snapshot of all rows."""
        with self._store.transaction(writing=False):
            rows = LedgerTransaction(self._store)
            self._require_same_content(rows)
            yield rows

    @contextmanager
    def scanning(self) -> Iterator[LedgerScan]:
        """Begin a transaction with a consistent snapshot that streams whole tables."""
        with self._store.transaction(writing=False), closing(LedgerScan(self._store)) as scan:
            yield scan

    def account(self, name: str) -> Account:
        """Return an account's terms."""
        with self.reading() as rows:
            return known_account(rows, name)

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts, sorted by name."""
        with self.reading() as rows:
            return rows.accounts()

    def balance(self, account: str, *, blocks: Collection[str] | None = None) -> Balance:
        """Return the balance of an account's most used block, among all its blocks or those named."""
        with self.reading() as rows:
            terms = known_account(rows, account)
            found = balances(rows, terms)
        wanted = (balance for block, balance in found if blocks is None or block.name in blocks)
        return max(wanted, key=lambda balance: balance.used, default=Balance(terms.cap, 0, 0))

    def covered(self, account: str, *, series: str) -> dict[str, Run]:
        """Return the blocks that a series of releases has covered, each with the run that covered it."""
        with self.reading() as rows:
            return covered(rows, known_account(rows, account).name, series)

    def blocks(self, account: str) -> tuple[tuple[Block, Balance], ...]:
        """Return an account's blocks with their balances, sorted by name."""
        with self.reading() as rows:
            return balances(rows, known_account(rows, account))

    def across(self, account: str) -> Balance | None:
        """Return the balance of an account's cap across blocks, or None if it has none."""
        with self.reading() as rows:
            terms = known_account(rows, account)
            return across_balance(terms, rows.open_runs(account))

    def allowances(self, account: str) -> tuple[Allowance, ...]:
        """Return an account's allowances for analysts and purposes."""
        with self.reading() as rows:
            known_account(rows, account)
            return rows.allowances(account)

    def run(self, run_id: str) -> Run:
        """Return a run."""
        with self.reading() as rows:
            return known_run(rows, run_id)

    def leased(self, lease: Lease) -> Run:
        """Return the run of this lease. Raise if the run has ended, or another worker has taken it over."""
        with self.reading() as rows:
            return leased_run(rows, lease)

    def manifests_of(self, run_id: str) -> frozenset[str]:
        """Return the SHA-256 of every manifest recorded for a settled run: the first one, and those written again."""
        with self.reading() as rows:
            run = known_run(rows, run_id)
            if run.state is not RunState.SETTLED:
                return frozenset()
            again = (event.details for event in rows.events_of_kind(EventKind.REPUBLISHED))
            told = [known_event(rows, run.last).details, *(each for each in again if each["run"] == run_id)]
        return frozenset(each["manifest_sha256"] for each in told if each.get("manifest_sha256"))

    def has_event(self, digest: str) -> bool:
        """Return whether an event has this hash. Scans the whole chain."""
        return any(event.hash == digest for event in self.history(None))

    def runs(self, account: str) -> tuple[Run, ...]:
        """Return an account's runs, oldest first."""
        with self.reading() as rows:
            known_account(rows, account)
            return rows.runs(account)

    def blocks_of(self, run_id: str) -> tuple[str, ...]:
        """Return the names of the blocks that a run reserved."""
        with self.reading() as rows:
            return blocks_of(rows, known_run(rows, run_id))

    def operation(self, run_id: str, step: str) -> Operation | None:
        """Return the step's committed operation, or None. With it, a caller neither pays nor draws again."""
        with self.reading() as rows:
            known_run(rows, run_id)
            found = rows.committed(run_id, step=step)
        return self._with_output(found[0]) if found else None

    def transcript(self, run_id: str) -> tuple[Operation, ...]:
        """Return the run's committed operations in commit order."""
        with self.reading() as rows:
            known_run(rows, run_id)
            found = rows.committed(run_id, step=None)
        return tuple(self._with_output(operation) for operation in found)

    def history(self, account: str | None) -> Iterator[Event]:
        """Iterate over all events so far, or those of one account, oldest first, in constant memory."""
        with self.reading() as rows:
            if account is not None:
                known_account(rows, account)
            until = rows.head().seq
        return self._events(account, until=until)

    def identity(self) -> str:
        """Return the hash of the chain's first event, which identifies this ledger."""
        with self.reading() as rows:
            first = rows.event(1)
        return GENESIS if first is None else first.hash

    def head(self) -> str:
        """Return the hash of the chain's last event, which commits to the whole history."""
        with self.reading() as rows:
            return rows.head().hash

    def _events(self, account: str | None, *, until: int) -> Iterator[Event]:
        # Events never change, so each page can be read in its own transaction.
        seen = 0
        while seen < until:
            with self.reading() as rows:
                page = rows.events(after=seen, until=until)
            if not page:
                return
            seen = page[-1].seq
            yield from (event for event in page if account in {None, event.account})

    def _with_output(self, operation: Operation) -> Operation:
        if operation.output is None and operation.sha256 is not None:
            operation = replace(operation, output=self._store.kept(operation.sha256))
        return undamaged(operation)


def _older_copy(place: str, head: Head, last: Event | None, known: SeenHead) -> str:
    """Return the warning that a ledger lacks events that were seen in it."""
    at = f" of {last.at[:19]}" if last else ""
    return (
        f"the ledger at {place} ends with event {head.seq}{at}, but event {known.seq} with another history was seen on "
        f"{known.at[:19]}: this is an old or a different copy; restore the newest one, or, if that is lost, run as the steward: "
        "dpflow ledger accept-restoration --reason TEXT"
    )


def blocks_of(rows: LedgerTransaction, run: Run) -> tuple[str, ...]:
    """Return the names of the blocks that a run reserved, from its reservation event."""
    named: Sequence[str] | None = known_event(rows, run.first).details.get("blocks")
    return (WHOLE,) if named is None else tuple(named)


def across_balance(account: Account, runs: Iterable[Run]) -> Balance | None:
    """Return the balance of an account's cap across blocks, or None. Open runs among `runs` hold a part of the used amount."""
    if account.across is None:
        return None
    held = sum(run.remaining for run in runs)
    return Balance(account.across, spent=account.across_used - held, reserved=held)


def balances(rows: LedgerTransaction, account: Account) -> tuple[tuple[Block, Balance], ...]:
    """Return an account's blocks with their balances, sorted by name."""
    held: Counter[str] = Counter()
    for run in rows.open_runs(account.name):
        for block in (WHOLE,) if account.blocks_by is None else blocks_of(rows, run):
            held[block] += account.weight * run.remaining
    return tuple(
        (block, Balance(block.cap, spent=block.used - held[block.name], reserved=held[block.name]))
        for block in rows.blocks(account.name, None)
    )
