"""The reading side of a ledger: look up accounts, runs, outputs and history."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from dpcore.ledger.chain import GENESIS
from dpcore.ledger.connection import Connection
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
    Share,
)
from dpcore.ledger.series import covered
from dpcore.ledger.transaction import LedgerTransaction


class LedgerReader(Connection):
    """The current accounts, runs, outputs and history."""

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
            by_block = balances(rows, terms)
        asked = (balance for block, balance in by_block if blocks is None or block.name in blocks)
        return max(asked, key=lambda balance: balance.used, default=Balance(terms.cap, 0, 0))

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
            published = [
                known_event(rows, run.last).details,
                *(details for details in again if details["run"] == run_id),
            ]
        return frozenset(details["manifest_sha256"] for details in published if details.get("manifest_sha256"))

    def has_event(self, digest: str) -> bool:
        """Return whether an event has this hash. Scans the whole chain."""
        return any(event.hash == digest for event in self.history(None))

    def runs(self, account: str) -> tuple[Run, ...]:
        """Return an account's runs, oldest first."""
        with self.reading() as rows:
            known_account(rows, account)
            return rows.runs(account)

    def shares(self, run_id: str) -> dict[str, Share]:
        """Return the share of each analyst that a run ever had, by name."""
        with self.reading() as rows:
            return {share.analyst: share for share in rows.shares(known_run(rows, run_id).id)}

    def withdrawals(self, account: str) -> dict[str, Event]:
        """Return the withdrawal of each of an account's withdrawn releases, by the id of its run: the steward's if there is one."""
        with self.reading() as rows:
            return withdrawals_of(rows, known_account(rows, account).name)

    def blocks_of(self, run_id: str) -> tuple[str, ...]:
        """Return the names of the blocks that a run reserved."""
        with self.reading() as rows:
            return blocks_of(rows, known_run(rows, run_id))

    def operation(self, run_id: str, step: str) -> Operation | None:
        """Return the step's committed operation, or None. With it, a caller neither pays nor draws again."""
        with self.reading() as rows:
            known_run(rows, run_id)
            operations = rows.committed(run_id, step=step)
        return self._with_output(operations[0]) if operations else None

    def transcript(self, run_id: str) -> tuple[Operation, ...]:
        """Return the run's committed operations in commit order."""
        with self.reading() as rows:
            known_run(rows, run_id)
            operations = rows.committed(run_id, step=None)
        return tuple(map(self._with_output, operations))

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
            return rows.hash_of(1) or GENESIS

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


def withdrawals_of(rows: LedgerTransaction, account: str) -> dict[str, Event]:
    """Return the withdrawals of an account's releases by run, the steward's if there is one."""
    events = rows.events_of_kind(EventKind.REMOVED, EventKind.WITHDRAWN)
    stewards_last = sorted(events, key=lambda event: event.kind is EventKind.WITHDRAWN)
    return {str(event.run): event for event in stewards_last if event.account == account}
