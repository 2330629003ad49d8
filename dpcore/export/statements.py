"""What everything that was paid for guarantees: by release, by block and in total, for one unit and for groups of them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dpcore.accounting import UNIT, amount_of_group
from dpcore.errors import UsageError
from dpcore.ledger import Account
from dpcore.overview import AccountOverview, Overview, RunOverview
from dpcore.release.statement import ACCOUNTING
from dpcore.wording import epsilon_at, pair, step_of

GROUPS = (1, 2, 5, 10)
LARGEST_GROUP = 1_000_000


@dataclass(frozen=True)
class GroupGuarantee:
    """What holds for a group of so many units together."""

    group: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Spend:
    """An amount of an account's currency, and what it guarantees."""

    amount: float
    guarantees: tuple[GroupGuarantee, ...]

    @property
    def epsilon(self) -> float:
        """What holds for a single unit."""
        return self.guarantees[0].epsilon


@dataclass(frozen=True)
class BlockStatement:
    """What a block has spent, and what it will have spent if open runs spend all that they reserved."""

    block: str
    state: str
    spent: Spend
    at_most: Spend


@dataclass(frozen=True)
class ReleaseStatement:
    """What one run has spent, which is what its release guarantees by itself. A run that led to none has spent all the same."""

    run: str
    release: str | None
    state: str
    opened_at: str
    analyst: str | None
    purpose: str | None
    blocks: tuple[str, ...] | None
    spent: Spend
    sentence: str


@dataclass(frozen=True)
class AccountStatement:
    """All that holds for one account. `spent` is over the block that has spent most, `at_most` over the most used one.

    `spent_by_all_runs` is the worst case for a unit with rows in every block, which has met all runs. `across` is the cap that
    bounds it, if the account was opened with one; `across_epsilon` is what was declared for it.
    """

    account: str
    about: str
    state: str
    unit: str
    neighbours: str
    currency: str
    accounting: str
    delta: float
    blocks_by: str | None
    sentence: str
    spent: Spend
    spent_in: str | None
    at_most: Spend
    at_most_in: str | None
    declared: Spend
    declared_epsilon: float
    spent_by_all_runs: Spend
    across: Spend | None
    across_epsilon: float | None
    blocks: tuple[BlockStatement, ...]
    releases: tuple[ReleaseStatement, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the statement as plain JSON values."""
        return asdict(self)


def group_sizes(wanted: Iterable[int] | None) -> tuple[int, ...]:
    """Return the sizes of groups to speak of, a single unit always among them.

    >>> group_sizes([3, 3]), group_sizes(None)
    ((1, 3), (1, 2, 5, 10))
    """
    sizes = sorted({1, *(GROUPS if wanted is None else wanted)})
    if sizes[0] < 1 or sizes[-1] > LARGEST_GROUP:
        raise UsageError(f"a group has 1 to {LARGEST_GROUP} units; choose another --group")
    return tuple(sizes)


def statements(found: Overview, *, sizes: tuple[int, ...]) -> tuple[AccountStatement, ...]:
    """State what holds for each account."""
    return tuple(_account(each, sizes) for each in found.accounts)


def _account(each: AccountOverview, sizes: tuple[int, ...]) -> AccountStatement:
    account, by_block = each.account, each.account.blocks_by is not None
    most_spent, spent = each.most_spent
    most_used, used = each.most_used
    total = _spend(account, spent.spent, sizes)
    return AccountStatement(
        account=account.name,
        about=account.description,
        state=account.state.value,
        unit=account.unit,
        neighbours=account.neighbours.value,
        currency=account.currency.value,
        accounting=ACCOUNTING[account.currency],
        delta=account.delta,
        blocks_by=account.blocks_by,
        sentence=_sentence("All that this account has paid for so far, taken together,", account, total),
        spent=total,
        spent_in=most_spent if by_block else None,
        at_most=_spend(account, used.used, sizes),
        at_most_in=most_used if by_block else None,
        declared=_spend(account, account.cap, sizes),
        declared_epsilon=account.epsilon,
        spent_by_all_runs=_spend(account, each.spent_by_all_runs, sizes),
        across=None if account.across is None else _spend(account, account.across, sizes),
        across_epsilon=account.across_epsilon,
        blocks=tuple(
            BlockStatement(
                block.name,
                block.state.value,
                spent=_spend(account, balance.spent, sizes),
                at_most=_spend(account, balance.used, sizes),
            )
            for block, balance in (each.blocks if by_block else ())
        ),
        releases=tuple(_release(account, item, sizes) for item in each.runs if item.run.spent),
    )


def _release(account: Account, item: RunOverview, sizes: tuple[int, ...]) -> ReleaseStatement:
    run, spent = item.run, _spend(account, item.run.spent, sizes)
    return ReleaseStatement(
        run=run.id,
        release=run.release,
        state=run.state.value,
        opened_at=run.opened_at,
        analyst=run.analyst,
        purpose=run.purpose,
        blocks=item.blocks if account.blocks_by is not None else None,
        spent=spent,
        sentence=_sentence("This release, taken by itself," if run.release else "This run", account, spent),
    )


def _spend(account: Account, units: int, sizes: tuple[int, ...]) -> Spend:
    return Spend(
        amount=units / UNIT,
        guarantees=tuple(
            GroupGuarantee(
                size,
                epsilon_at(
                    amount_of_group(units, currency=account.currency, size=size),
                    currency=account.currency,
                    delta=account.delta,
                ),
                account.delta,
            )
            for size in sizes
        ),
    )


def _sentence(subject: str, account: Account, spent: Spend) -> str:
    if not spent.amount:
        return "Nothing was spent yet: nothing that depends on the data has left."
    what = pair(spent.epsilon, account.delta)
    return f"{subject} is {what}-differentially private with respect to {step_of(account)}."
