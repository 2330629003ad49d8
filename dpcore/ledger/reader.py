"""The reading side of a ledger: what anyone who may open it can look up."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from dpcore.ledger.chain import GENESIS
from dpcore.ledger.refusals import known_account, known_event, known_run, leased_run, undamaged
from dpcore.ledger.rows import WHOLE, Account, Allowance, Balance, Block, Event, Lease, Operation, Run
from dpcore.ledger.scan import LedgerScan
from dpcore.ledger.series import covered
from dpcore.ledger.store import Store
from dpcore.ledger.transaction import LedgerTransaction


class LedgerReader:
    """Accounts, runs, outputs and history as they are now.

    An object belongs to the process and the thread that opened it; others open their own.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[LedgerTransaction]:
        """Begin a transaction that sees one state of all rows."""
        with self._store.transaction(writing=False):
            yield LedgerTransaction(self._store)

    @contextmanager
    def scanning(self) -> Iterator[LedgerScan]:
        """Begin a transaction that sees one state of all rows, and goes through whole tables."""
        with self._store.transaction(writing=False), closing(LedgerScan(self._store)) as scan:
            yield scan

    def account(self, name: str) -> Account:
        """Return an account's terms."""
        with self.reading() as rows:
            return known_account(rows, name)

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts, in the order of their names."""
        with self.reading() as rows:
            return rows.accounts()

    def balance(self, account: str, *, blocks: Collection[str] | None = None) -> Balance:
        """Return what an account has spent, holds and has left, in the block that has used most: of all, or of these."""
        with self.reading() as rows:
            terms = known_account(rows, account)
            found = balances(rows, terms)
        wanted = (balance for block, balance in found if blocks is None or block.name in blocks)
        return max(wanted, key=lambda balance: balance.used, default=Balance(terms.cap, 0, 0))

    def covered(self, account: str, *, series: str) -> dict[str, Run]:
        """Return the blocks that a series of releases has covered, each with the run that did."""
        with self.reading() as rows:
            return covered(rows, known_account(rows, account).name, series)

    def blocks(self, account: str) -> tuple[tuple[Block, Balance], ...]:
        """Return an account's blocks in the order of their names, each with its balance."""
        with self.reading() as rows:
            return balances(rows, known_account(rows, account))

    def across(self, account: str) -> Balance | None:
        """Return the balance of an account's cap across blocks, or None if it has none."""
        with self.reading() as rows:
            terms = known_account(rows, account)
            return across_balance(terms, rows.open_runs(account))

    def allowances(self, account: str) -> tuple[Allowance, ...]:
        """Return what analysts and purposes may use of an account."""
        with self.reading() as rows:
            known_account(rows, account)
            return rows.allowances(account)

    def run(self, run_id: str) -> Run:
        """Return a run as it is now."""
        with self.reading() as rows:
            return known_run(rows, run_id)

    def leased(self, lease: Lease) -> Run:
        """Return the run that this lease is still the newest of, or refuse: it has ended, or another worker has it."""
        with self.reading() as rows:
            return leased_run(rows, lease)

    def runs(self, account: str) -> tuple[Run, ...]:
        """Return an account's runs, oldest first."""
        with self.reading() as rows:
            known_account(rows, account)
            return rows.runs(account)

    def blocks_of(self, run_id: str) -> tuple[str, ...]:
        """Return the names of the blocks that a run was granted."""
        with self.reading() as rows:
            return blocks_of(rows, known_run(rows, run_id))

    def operation(self, run_id: str, step: str) -> Operation | None:
        """Return the step's committed operation, if there is one: whoever finds it neither pays nor draws again."""
        with self.reading() as rows:
            known_run(rows, run_id)
            found = rows.committed(run_id, step=step)
        return self._whole(found[0]) if found else None

    def transcript(self, run_id: str) -> tuple[Operation, ...]:
        """Return the run's committed operations in the order of commitment."""
        with self.reading() as rows:
            known_run(rows, run_id)
            found = rows.committed(run_id, step=None)
        return tuple(self._whole(operation) for operation in found)

    def history(self, account: str | None) -> Iterator[Event]:
        """Go through every change up to now, or those of one account, oldest first, whatever their number."""
        with self.reading() as rows:
            if account is not None:
                known_account(rows, account)
            until = rows.head().seq
        return self._events(account, until=until)

    def identity(self) -> str:
        """Return the hash of the chain's first event, which tells this ledger from any other."""
        with self.reading() as rows:
            first = rows.event(1)
        return GENESIS if first is None else first.hash

    def head(self) -> str:
        """Return the hash of the chain's last event, which stands for the whole history."""
        with self.reading() as rows:
            return rows.head().hash

    def _events(self, account: str | None, *, until: int) -> Iterator[Event]:
        # What is in the chain stays as it is, so that each page can be read in a transaction of its own.
        seen = 0
        while seen < until:
            with self.reading() as rows:
                page = rows.events(after=seen, until=until)
            if not page:
                return
            seen = page[-1].seq
            yield from (event for event in page if account in {None, event.account})

    def _whole(self, operation: Operation) -> Operation:
        if operation.output is None and operation.sha256 is not None:
            operation = replace(operation, output=self._store.kept(operation.sha256))
        return undamaged(operation)


def blocks_of(rows: LedgerTransaction, run: Run) -> tuple[str, ...]:
    """Return the names of the blocks that a run was granted, which its reservation tells."""
    named: Sequence[str] | None = known_event(rows, run.first).details.get("blocks")
    return (WHOLE,) if named is None else tuple(named)


def across_balance(account: Account, runs: Iterable[Run]) -> Balance | None:
    """Return the balance of an account's cap across blocks, given its runs: those that are open hold a part of what is used."""
    if account.across is None:
        return None
    held = sum(run.remaining for run in runs)
    return Balance(account.across, spent=account.across_used - held, reserved=held)


def balances(rows: LedgerTransaction, account: Account) -> tuple[tuple[Block, Balance], ...]:
    """Return an account's blocks in the order of their names, each with its balance."""
    held: Counter[str] = Counter()
    for run in rows.open_runs(account.name):
        for block in (WHOLE,) if account.blocks_by is None else blocks_of(rows, run):
            held[block] += account.weight * run.remaining
    return tuple(
        (block, Balance(block.cap, spent=block.used - held[block.name], reserved=held[block.name]))
        for block in rows.blocks(account.name, None)
    )
