"""A consistent snapshot of accounts: their terms, balances, blocks, runs and allowances."""

from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest

from dpcore.ledger import WHOLE, Account, Allowance, Balance, Block, Ledger, Run, RunState, open_ledger
from dpcore.ledger.reader import across_balance, balances, blocks_of
from dpcore.ledger.refusals import known_account, known_event
from dpcore.ledger.transaction import LedgerTransaction
from dpcore.privacy.accounting import Cap, Promise
from dpcore.reporting.lineage import Part, parts_of
from dpcore.reporting.promises import AccountPromise, account_promise, release_promise

TASK, RESERVE = "task ", "reserve of "
"""How the claims begin of what a `Budget` pays for: one attempt at a task, and what a flow run holds for its tasks."""


@dataclass(frozen=True)
class RunOverview:
    """A run, the blocks granted to it, the time of its last event if it is still open, and the runs that its release is made from."""

    run: Run
    blocks: tuple[str, ...]
    touched: datetime | None
    made_from: tuple[Part, ...]

    def promise(self, account: Account, *, group: int = 1) -> Promise:
        """Return the promise of the run's release by itself."""
        return release_promise(account, self.made_from, group=group)

    @property
    def of_a_spec(self) -> bool:
        """Whether the run is one of a spec, which `dpflow run --resume` can continue."""
        return not self.run.claim.startswith((TASK, RESERVE))


@dataclass(frozen=True)
class AccountOverview:
    """The current state of an account in the ledger, without its history.

    `first_cap` is the account's cap when its first operation was charged, and `first_across` its cap across blocks at that time. They
    are None if no operation was charged yet, or if there is no such cap.
    """

    account: Account
    blocks: tuple[tuple[Block, Balance], ...]
    runs: tuple[RunOverview, ...]
    allowances: tuple[Allowance, ...]
    first_cap: int | None = None
    first_across: int | None = None

    @property
    def most_used(self) -> tuple[str | None, Balance]:
        """The block with the least remaining budget, and its balance, which bounds the next run. The name is None without blocks."""
        named: list[tuple[str | None, Balance]] = [(block.name, balance) for block, balance in self.blocks]
        none = (None, Balance(self.account.cap, 0, 0))
        return max(named, key=lambda pair: pair[1].used, default=none)

    def most_used_blocks(self, most: int | None) -> list[tuple[Block, Balance]]:
        """Return the blocks that have used most, in their order: at most so many, or all."""
        busiest = nlargest(most or len(self.blocks), self.blocks, key=lambda pair: pair[1].used)
        names = {block.name for block, _ in busiest}
        return [pair for pair in self.blocks if pair[0].name in names]

    @property
    def across(self) -> Cap | None:
        """The cap on all runs together, whatever their blocks, or None if the account has none."""
        account = self.account
        return None if account.across is None else Cap(account.currency, account.across, first=self.first_across)

    @property
    def across_balance(self) -> Balance | None:
        """The balance of the cap across blocks, or None if the account has none."""
        return across_balance(self.account, (item.run for item in self.runs))

    def promise(self, *, group: int = 1, delta: float | None = None) -> AccountPromise:
        """Return the account's promise to one unit or to a group of units, at the account's delta unless another is given."""
        return account_promise(self.account, first_cap=self.first_cap, across=self.across, group=group, delta=delta)

    @property
    def spent_by_all_runs(self) -> int:
        """The total amount that all runs have spent, whatever their blocks."""
        return sum(item.run.spent for item in self.runs)


@dataclass(frozen=True)
class Overview:
    """A snapshot of some accounts, with the last event of the chain at that moment. `ledger` is the ledger's permanent identity."""

    accounts: tuple[AccountOverview, ...]
    events: int
    head: str
    ledger: str


def look(account: str | None) -> Overview:
    """Return a snapshot of one account, or of all, from the ledger that the environment names."""
    with open_ledger() as ledger:
        return overview(ledger, account)


def overview(ledger: Ledger, account: str | None) -> Overview:
    """Return a snapshot of one account, or of all, read in one transaction so that all numbers are consistent."""
    identity = ledger.identity()
    with ledger.reading() as rows:
        accounts = rows.accounts() if account is None else (known_account(rows, account),)
        head = rows.head()
        return Overview(tuple(_account(rows, terms) for terms in accounts), head.seq, head.hash, identity)


def _account(rows: LedgerTransaction, account: Account) -> AccountOverview:
    runs = {run.id: run for run in rows.runs(account.name)}
    whole = account.blocks_by is None
    blocks = {run.id: (WHOLE,) if whole else blocks_of(rows, run) for run in runs.values()}
    return AccountOverview(
        account,
        balances(rows, account),
        tuple(
            RunOverview(run, blocks[run.id], _touched(rows, run), parts_of(run, runs, blocks=blocks))
            for run in runs.values()
        ),
        rows.allowances(account.name),
        first_cap=rows.first_cap(account.name),
        first_across=None if account.across is None else rows.first_cap(account.name, across=True),
    )


def _touched(rows: LedgerTransaction, run: Run) -> datetime | None:
    return known_event(rows, run.last).time if run.state is RunState.OPEN else None
