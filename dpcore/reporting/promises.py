"""The promises of the ledger: for each release by itself, and for each account with everything it pays for.

Every output that states an epsilon and a delta takes them from here: manifests, Parquet footers, cards, pages, `ledger show`, `ledger
theorems` and `ledger export`. The amount spent so far is bookkeeping, and is stated in the account's own currency.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from dpcore.ledger import Account
from dpcore.privacy.accounting import Cap, Currency, Promise, promise_of
from dpcore.privacy.protection import Neighbours
from dpcore.reporting.lineage import Part


@dataclass(frozen=True)
class AccountPromise:
    """The promise for everything that an account pays for, taken together.

    Attributes:
        one: For the neighbours that `formatting.step_of` describes. With blocks, it covers units whose rows lie in one block.
        across: For a unit with rows in several blocks; None if no cap limits that, or if there is no such unit.
        in_several: Whether a unit may have rows in several blocks.
        raised: Whether the cap was raised after the first charge.
    """

    one: Promise
    across: Promise | None
    in_several: bool
    raised: bool


def release_cap(
    parts: Sequence[Part], *, currency: Currency, unit: str, neighbours: Neighbours, in_one_block: bool = False
) -> Cap:
    """Return the amount that a release answers for, as the cap of a filter: the most that its runs can cost one unit together.

    A row lies in one block, and a replaced one may leave a block and enter another. Only the runs that reserved one of these blocks read
    it. In the ratio of the densities of all answers, the factors of the other runs cancel: they take the same rows and, at the same
    earlier answers, the same input. A person may have rows in every block.

    Amounts that were fixed after answers of earlier runs had been seen count as raises of what was fixed first (docs/decisions/0027).

    Args:
        parts: The runs that the release is made from.
        currency: The currency of their amounts.
        unit: The unit of protection.
        neighbours: The neighbouring relation.
        in_one_block: Whether to count only a unit whose rows all lie in one block; under replace-one, its replacement likewise.
    """
    readers: set[frozenset[Part]] = {
        frozenset(part for part in parts if block in part.blocks)
        for block in {name for part in parts for name in part.blocks}
    }
    if unit != "row" and not in_one_block:
        readers = {frozenset(parts)}
    changed = 1 if neighbours is Neighbours.ADD_REMOVE else 2
    amount = max(
        sum(part.amount for part in frozenset[Part]().union(*some))
        for some in combinations(readers, min(changed, len(readers)))
    )
    begun = min(part.fixed for part in parts)
    first = sum(part.amount for part in parts if part.fixed == begun)
    return Cap(currency, amount, first=first if first < amount else None)


def release_promise(account: Account, parts: Sequence[Part], *, delta: float | None = None, group: int = 1) -> Promise:
    """Return the promise of a release by itself: the epsilon of what its runs reserved, each before its first draw.

    The amount spent depends on the answers, so it does not enter the promise.

    Args:
        account: The account that pays.
        parts: The runs that the release is made from.
        delta: The delta at which to state the epsilon; None means the account's.
        group: The number of units protected together.
    """
    cap = release_cap(parts, currency=account.currency, unit=account.unit, neighbours=account.neighbours)
    return promise_of(cap, delta=account.delta if delta is None else delta, group=group)


def account_promise(
    account: Account, *, first_cap: int | None, across: Cap | None, group: int = 1, delta: float | None = None
) -> AccountPromise:
    """Return the promise of an account, which holds whatever its runs choose within its cap.

    Under replace-one, replacing one unit can change two blocks. Each block pays twice the price of a run, so that both together stay
    within one cap, and the promise of the cap holds (docs/decisions/0011).

    Args:
        account: The account.
        first_cap: Its cap when its first operation was charged; None if nothing was charged yet.
        across: The cap on all runs together, whatever their blocks, if the account has one.
        group: The number of units protected together.
        delta: The delta at which to state the epsilon; None means the account's.
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
