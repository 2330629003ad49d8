"""The analysts of a session: each has a token and a share of the session's budget, both recorded in the ledger."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpcore.errors import UsageError
from dpcore.ledger import Account, Ledger, Run
from dpcore.ledger.rows import Share
from dpcore.privacy.accounting import AMOUNT_OF_ONE, budget_of
from dpcore.session.bought import Bought
from dpcore.session.opening import joined
from dpcore.session.overview import ledger_with
from dpcore.session.price import as_epsilon, in_epsilon, plain_amounts


@dataclass(frozen=True)
class Issued:
    """A new token of an analyst. It is shown once: the ledger holds its hash only."""

    session: str
    analyst: str
    token: str
    cap: float
    currency: str
    epsilon: float


def hash_of(token: str) -> str:
    """Return what the ledger holds of a token. A token is random and long, so a plain hash can't be inverted."""
    return sha256(token.encode()).hexdigest()


def add_analyst(
    spec: str | Path,
    analyst: str,
    *,
    epsilon: float | None = None,
    share: float | None = None,
    session: str | None = None,
) -> Issued:
    """Give an analyst a new token and a cap. An earlier token of the same analyst stops working; what was spent still counts.

    Args:
        spec: The spec's path.
        analyst: The analyst's name.
        epsilon: The cap, as an epsilon at the spec's delta. Give this or `share`.
        share: The cap, as a share of the session's budget, above 0 and at most 1.
        session: The session's id; None for the newest open one.
    """
    if (epsilon is None) == (share is None):
        raise UsageError("say how much the analyst may spend: either --epsilon, or --share of the session's budget")
    if share is not None and not 0 < share <= 1:
        raise UsageError("the share of an analyst must be above 0 and at most 1")
    with ledger_with(spec) as (ledger, declaration):
        run = joined(ledger, declaration, session)
        account = ledger.account(run.account)
        if epsilon is not None:
            _, cap = budget_of(epsilon, delta=declaration.spec.privacy.delta, currency=account.currency)
        else:
            cap = int(run.reserved * (share or 0.0))
        if cap > run.reserved:
            raise UsageError(
                f"session {run.id} has {in_epsilon(run.reserved, account)} in all, and a cap of {in_epsilon(cap, account)} "
                "would be more; give the analyst at most --share 1"
            )
        token = secrets.token_urlsafe(32)
        ledger.share(run.id, analyst=analyst, cap=cap, token=hash_of(token))
    return Issued(run.id, analyst, token, cap / AMOUNT_OF_ONE, account.currency.symbol, as_epsilon(cap, account))


def remove_analyst(spec: str | Path, analyst: str, *, session: str | None = None) -> dict[str, Any]:
    """Remove an analyst. From now on nothing can be charged in this name."""
    with ledger_with(spec) as (ledger, declaration):
        run = joined(ledger, declaration, session)
        share = ledger.shares(run.id).get(analyst)
        if share is None or share.token is None:
            raise UsageError(
                f"session {run.id} has no analyst '{analyst}'; see: dpflow analyst show {declaration.path}"
            )
        ledger.share(run.id, analyst=analyst, cap=share.cap, token=None)
        return _plain(share, ledger.account(run.account)) | {"removed": True}


def listed_analysts(spec: str | Path, *, session: str | None = None) -> dict[str, Any]:
    """Return a session and its analysts, with caps and what each has spent, as plain JSON values."""
    with ledger_with(spec) as (ledger, declaration):
        run = joined(ledger, declaration, session)
        account = ledger.account(run.account)
        analysts = [_plain(share, account) for share in ledger.shares(run.id).values()]
        return {"session": run.id, "currency": account.currency.symbol, "analysts": analysts}


def budget_for(ledger: Ledger, run: Run, analyst: str) -> dict[str, Any]:
    """Return what an analyst and the whole session have left, as plain JSON values."""
    share = ledger.shares(run.id).get(analyst)
    if share is None:
        raise UsageError(f"session {run.id} has no analyst '{analyst}'; ask the steward")
    account = ledger.account(run.account)
    session = plain_amounts(account, reserved=run.reserved, spent=run.spent, remaining=run.remaining)
    return {**_plain(share, account), "session": {"id": run.id, **session}}


def bought_by(ledger: Ledger, session: str, analyst: str) -> Iterator[tuple[Bought, dict[str, Any]]]:
    """Yield what an analyst has bought, oldest first, each with its question, cost and level as plain JSON values."""
    account = ledger.account(ledger.run(session).account)
    for operation in ledger.transcript(session):
        if operation.analyst == analyst:
            bought = Bought.of(operation)
            paid = {"cost": operation.amount / AMOUNT_OF_ONE, "epsilon": as_epsilon(operation.amount, account)}
            yield bought, {"query": bought.question, **paid, "level": bought.within.level}


def _plain(share: Share, account: Account) -> dict[str, Any]:
    """Return a share as plain JSON values, in the account's currency."""
    return {
        "analyst": share.analyst,
        **plain_amounts(account, cap=share.cap, spent=share.spent, remaining=share.remaining),
        "currency": account.currency.symbol,
        "removed": share.token is None,
    }
