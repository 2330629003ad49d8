"""What the ledger promises: each release by itself, and each account with everything that it pays for.

Every output that states an epsilon and a delta takes them from here: manifests, Parquet footers, cards, pages, `ledger show`, `ledger
theorems` and `ledger export`. What was spent so far is bookkeeping, and is told in the account's own currency.
"""

from dataclasses import dataclass

from dpcore.ledger import Account, Run
from dpcore.privacy.accounting import Cap, Promise, promise_of


@dataclass(frozen=True)
class AccountPromise:
    """What holds for everything that an account pays for, taken together.

    Attributes:
        one: For one neighbour step as `wording.step_of` tells it. In an account by blocks that is a unit whose rows lie in one block.
        across: For a unit with rows in several blocks; None if no cap limits that, or if there is no such unit.
        in_several: Whether a unit may have rows in several blocks.
        raised: Whether the cap was raised after something had been charged.
    """

    one: Promise
    across: Promise | None
    in_several: bool
    raised: bool


def release_promise(account: Account, run: Run, *, delta: float | None = None, group: int = 1) -> Promise:
    """Return what the release of a run promises by itself: the epsilon of what the run reserved before its first draw.

    What the run has spent of that, an answer of its own, changes nothing.

    Args:
        account: Who pays.
        run: The run, which has reserved.
        delta: At which the epsilon is told; None: the account's.
        group: For how many units of protection together.
    """
    cap = Cap(account.currency, run.reserved)
    return promise_of(cap, delta=account.delta if delta is None else delta, group=group)


def account_promise(
    account: Account, *, first_cap: int | None, across: Cap | None, group: int = 1, delta: float | None = None
) -> AccountPromise:
    """Return what an account promises, whatever its runs choose within its cap.

    Under replace-one each block pays twice the price of a run, so that the two blocks that one step touches stay within one cap together
    (docs/decisions/0011): what the cap promises holds for the step.

    Args:
        account: The account.
        first_cap: Its cap when its first operation was charged; None: none was yet.
        across: The cap on all runs together, whatever their blocks, if the account has one.
        group: For how many units of protection together.
        delta: At which the epsilon is told; None: the account's.
    """
    at = account.delta if delta is None else delta
    cap = Cap(account.currency, account.cap, first=first_cap)
    in_several = account.blocks_by is not None and account.unit != "row"
    return AccountPromise(
        one=promise_of(cap, delta=at, group=group),
        across=promise_of(across, delta=at, group=group) if in_several and across is not None else None,
        in_several=in_several,
        raised=cap.raised,
    )
