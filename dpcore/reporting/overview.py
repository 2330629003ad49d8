"""Accounts as they are at one moment: terms, balances, blocks, runs and allowances that belong together."""

from dataclasses import dataclass
from datetime import datetime

from dpcore.ledger import WHOLE, Account, Allowance, Balance, Block, Ledger, Run, RunState, open_ledger
from dpcore.ledger.reader import across_balance, balances, blocks_of
from dpcore.ledger.refusals import known_account, known_event
from dpcore.ledger.transaction import LedgerTransaction
from dpcore.privacy.accounting import Cap
from dpcore.reporting.promises import AccountPromise, account_promise


@dataclass(frozen=True)
class RunOverview:
    """A run, the blocks that it was granted, and when it was last changed if it still holds a reservation."""

    run: Run
    blocks: tuple[str, ...]
    touched: datetime | None


@dataclass(frozen=True)
class AccountOverview:
    """All that the ledger knows about an account but its history.

    `first_cap` is the cap that the account had when its first operation was charged, and `first_across` its cap across blocks; None: no
    operation was charged yet, or there is no such cap.
    """

    account: Account
    blocks: tuple[tuple[Block, Balance], ...]
    runs: tuple[RunOverview, ...]
    allowances: tuple[Allowance, ...]
    first_cap: int | None = None
    first_across: int | None = None

    @property
    def most_used(self) -> tuple[str | None, Balance]:
        """The block of which least remains, with its balance: what bounds the account's next run. None: no block yet."""
        named: list[tuple[str | None, Balance]] = [(block.name, balance) for block, balance in self.blocks]
        none = (None, Balance(self.account.cap, 0, 0))
        return max(named, key=lambda pair: pair[1].used, default=none)

    @property
    def across(self) -> Cap | None:
        """The cap on all runs together, whatever their blocks; None: the account has none."""
        account = self.account
        return None if account.across is None else Cap(account.currency, account.across, first=self.first_across)

    @property
    def across_balance(self) -> Balance | None:
        """The balance of the cap across blocks; None: the account has none."""
        return across_balance(self.account, (item.run for item in self.runs))

    def promise(self, *, group: int = 1, delta: float | None = None) -> AccountPromise:
        """Return what the account promises to one unit, or to a group of them, at its own delta or another."""
        return account_promise(self.account, first_cap=self.first_cap, across=self.across, group=group, delta=delta)

    @property
    def spent_by_all_runs(self) -> int:
        """What all runs have spent together, whatever their blocks."""
        return sum(item.run.spent for item in self.runs)


@dataclass(frozen=True)
class Overview:
    """Some accounts, and the last event of the chain at that moment. `ledger` is the identity of the ledger, for good."""

    accounts: tuple[AccountOverview, ...]
    events: int
    head: str
    ledger: str


def look(account: str | None) -> Overview:
    """Look at one account, or at all of them, in the ledger that the environment names."""
    with open_ledger() as ledger:
        return overview(ledger, account)


def overview(ledger: Ledger, account: str | None) -> Overview:
    """Look at one account, or at all of them, in one transaction: nothing changes between one figure and the next."""
    identity = ledger.identity()
    with ledger.reading() as rows:
        accounts = rows.accounts() if account is None else (known_account(rows, account),)
        head = rows.head()
        return Overview(tuple(_account(rows, terms) for terms in accounts), head.seq, head.hash, identity)


def _account(rows: LedgerTransaction, account: Account) -> AccountOverview:
    runs = tuple(_run(rows, account, run) for run in rows.runs(account.name))
    return AccountOverview(
        account,
        balances(rows, account),
        runs,
        rows.allowances(account.name),
        first_cap=rows.first_cap(account.name),
        first_across=None if account.across is None else rows.first_cap(account.name, across=True),
    )


def _run(rows: LedgerTransaction, account: Account, run: Run) -> RunOverview:
    blocks = (WHOLE,) if account.blocks_by is None else blocks_of(rows, run)
    touched = known_event(rows, run.last).time if run.state is RunState.OPEN else None
    return RunOverview(run, blocks, touched)
