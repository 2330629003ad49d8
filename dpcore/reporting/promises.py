"""The promises of the ledger: for each release by itself, and for each account with everything it pays for.

Every output that states an epsilon and a delta takes them from here: manifests, Parquet footers, cards, pages, `ledger show`, `ledger
theorems` and `ledger export`. The amount spent so far is bookkeeping, and is stated in the account's own currency.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dpcore.ledger import Account, Run
from dpcore.privacy.accounting import Cap, Promise, promise_of
from dpcore.reporting.session_claims import Claim

_FROM_SESSION = re.compile(r"release of session (\S+) from run (\S+) after \d+ purchases")


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


def session_release_claim(*, session: str, first: str, purchases: int) -> str:
    """Return the claim of a run that publishes what a session knows, by the session's run and the run of its first release.

    >>> made_from(session_release_claim(session="s", first="s-first", purchases=3))
    ('s-first', 's')
    """
    return f"release of session {session} from run {first} after {purchases} purchases"


def made_from(claim: str) -> tuple[str, ...]:
    """Return the earlier runs whose answers a run's release is made from, by the run's claim in the ledger. Most runs have none."""
    found = _FROM_SESSION.fullmatch(claim)
    return (found[2], found[1]) if found else ()


def began_with(*, session: Run, first: Run) -> bool:
    """Return whether a run is that of a session, and says itself that it began with the release of this first run."""
    claim = Claim.read(session.claim)
    return claim is not None and claim.first == first.id


def release_cap(account: Account, run: Run, *, earlier: Sequence[Run] = ()) -> Cap:
    """Return the amount that a run's release answers for, as the cap of a filter.

    A session's reservation and that of its first release are both fixed before the first draw of either.
    """
    return Cap(account.currency, run.reserved + sum(each.reserved for each in earlier))


def release_promise(
    account: Account, run: Run, *, delta: float | None = None, group: int = 1, earlier: Sequence[Run] = ()
) -> Promise:
    """Return the promise of a run's release by itself: the epsilon of the amount that the run reserved before its first draw.

    The amount spent depends on the answers, so it does not enter the promise.

    Args:
        account: The account that pays.
        run: The run, which has reserved its amount.
        delta: The delta at which to state the epsilon; None means the account's.
        group: The number of units protected together.
        earlier: Other runs whose answers the release was also made from, in their order. Their reservations are added.
    """
    cap = release_cap(account, run, earlier=earlier)
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
