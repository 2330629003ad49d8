"""State what an account and its releases promise, for one unit and for groups, and what was spent (bookkeeping)."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dpcore.errors import UsageError
from dpcore.ledger import Account, Balance
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Promise
from dpcore.release.statement import ACCOUNTING
from dpcore.reporting.formatting import account_sentence, promise_sentence, run_step_of
from dpcore.reporting.overview import AccountOverview, Overview, RunOverview

GROUPS = (1, 2, 5, 10)
LARGEST_GROUP = 1_000_000


@dataclass(frozen=True)
class GroupGuarantee:
    """The guarantee for a group of `group` units changed at once."""

    group: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Bookkeeping:
    """The amounts reserved and spent, in the account's currency. The amount spent is not a promise, so it has no epsilon."""

    counts: str
    cap: float
    spent: float
    reserved: float


@dataclass(frozen=True)
class BlockStatement:
    """The bookkeeping of one block. Its promise is the account's, which is the same for every block."""

    block: str
    state: str
    bookkeeping: Bookkeeping


@dataclass(frozen=True)
class ReleaseStatement:
    """The promise of one run's release alone, by the reservations of all runs in `made_from`. A run without a release still counts toward the total."""

    run: str
    release: str | None
    state: str
    opened_at: str
    analyst: str | None
    purpose: str | None
    blocks: tuple[str, ...] | None
    promise: tuple[GroupGuarantee, ...]
    bookkeeping: Bookkeeping
    sentence: str
    made_from: tuple[str, ...]


@dataclass(frozen=True)
class AccountStatement:
    """The promises and the bookkeeping of one account.

    Attributes:
        account: The account's name.
        about: Its description.
        state: Open or closed.
        unit: The protected entity.
        neighbours: The neighbouring relation.
        currency: The currency of its amounts.
        accounting: The kind of accounting.
        delta: The declared delta.
        epsilon: The declared epsilon, including all raises.
        raised: Whether the cap was raised after the first charge.
        blocks_by: How rows are divided into blocks; None if the whole table is one block.
        sentence: The promise in words.
        promise: The promise of its cap, for one unit and for groups. With blocks, for units whose rows lie in one block.
        across_blocks: The promise of the cap across blocks, for units with rows in any number of blocks; None without such a cap.
        bookkeeping: The bookkeeping of its most used block.
        most_used_block: The name of that block.
        spent_by_all_runs: The total spent by all runs in all blocks, in the account's currency.
        blocks: One statement for each block.
        releases: One statement for each run that has spent something.
    """

    account: str
    about: str
    state: str
    unit: str
    neighbours: str
    currency: str
    accounting: str
    delta: float
    epsilon: float
    raised: bool
    blocks_by: str | None
    sentence: str
    promise: tuple[GroupGuarantee, ...]
    across_blocks: tuple[GroupGuarantee, ...] | None
    bookkeeping: Bookkeeping
    most_used_block: str | None
    spent_by_all_runs: float
    blocks: tuple[BlockStatement, ...]
    releases: tuple[ReleaseStatement, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the statement as plain JSON values."""
        return asdict(self)


def group_sizes(asked: Iterable[int] | None) -> tuple[int, ...]:
    """Return the group sizes to state guarantees for, in ascending order. A single unit is always included.

    >>> group_sizes([3, 3]), group_sizes(None)
    ((1, 3), (1, 2, 5, 10))
    """
    sizes = sorted({1, *(GROUPS if asked is None else asked)})
    if sizes[0] < 1 or sizes[-1] > LARGEST_GROUP:
        raise UsageError(f"a group has 1 to {LARGEST_GROUP} units; choose another --group")
    return tuple(sizes)


def statements(overview: Overview, *, sizes: tuple[int, ...]) -> tuple[AccountStatement, ...]:
    """Return the statement of each account."""
    return tuple(_account(account, sizes) for account in overview.accounts)


def _account(overview: AccountOverview, sizes: tuple[int, ...]) -> AccountStatement:
    account, by_block = overview.account, overview.account.blocks_by is not None
    most_used, balance = overview.most_used
    promises = [overview.promise(group=size) for size in sizes]
    across = [(size, promise.across) for size, promise in zip(sizes, promises, strict=True) if promise.across]
    return AccountStatement(
        account=account.name,
        about=account.description,
        state=account.state.value,
        unit=account.unit,
        neighbours=account.neighbours.value,
        currency=account.currency.value,
        accounting=ACCOUNTING[account.currency],
        delta=account.delta,
        epsilon=account.epsilon,
        raised=promises[0].raised,
        blocks_by=account.blocks_by,
        sentence=account_sentence(account, promises[0]),
        promise=_guarantees((size, promise.one) for size, promise in zip(sizes, promises, strict=True)),
        across_blocks=_guarantees(across) or None,
        bookkeeping=_books(account, balance),
        most_used_block=most_used if by_block else None,
        spent_by_all_runs=overview.spent_by_all_runs / AMOUNT_OF_ONE,
        blocks=tuple(
            BlockStatement(block.name, block.state.value, _books(account, balance))
            for block, balance in (overview.blocks if by_block else ())
        ),
        releases=tuple(_release(account, item, sizes) for item in overview.runs if item.run.spent or item.run.release),
    )


def _release(account: Account, item: RunOverview, sizes: tuple[int, ...]) -> ReleaseStatement:
    run, promise = item.run, item.promise(account)
    subject = "This release, taken by itself, is" if run.release else "This run is"
    return ReleaseStatement(
        run=run.id,
        release=run.release,
        state=run.state.value,
        opened_at=run.opened_at,
        analyst=run.analyst,
        purpose=run.purpose,
        blocks=item.blocks if account.blocks_by is not None else None,
        promise=_guarantees((size, item.promise(account, group=size)) for size in sizes),
        bookkeeping=Bookkeeping(
            account.currency.symbol,
            cap=run.reserved / AMOUNT_OF_ONE,
            spent=run.spent / AMOUNT_OF_ONE,
            reserved=run.remaining / AMOUNT_OF_ONE,
        ),
        sentence=promise_sentence(subject, promise, difference=run_step_of(account), runs=len(item.made_from)),
        made_from=tuple(part.run for part in item.made_from),
    )


def _guarantees(promises: Iterable[tuple[int, Promise]]) -> tuple[GroupGuarantee, ...]:
    return tuple(GroupGuarantee(size, promise.epsilon, promise.delta) for size, promise in promises)


def _books(account: Account, balance: Balance) -> Bookkeeping:
    return Bookkeeping(
        account.currency.symbol,
        cap=balance.cap / AMOUNT_OF_ONE,
        spent=balance.spent / AMOUNT_OF_ONE,
        reserved=balance.reserved / AMOUNT_OF_ONE,
    )
