"""Show the sessions of a spec, and close one. Neither needs the data or the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dpcore.ledger import Account, Ledger, Operation, Run, RunState, open_ledger
from dpcore.places import places_of_spec
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.reporting.session_claims import sessions
from dpcore.session.bought import Bought
from dpcore.session.opening import claim_of, first_run, joined, sessions_of
from dpcore.session.price import as_epsilon, plain_amounts
from dpcore.session.quote import half_widths
from dpcore.session.turns import alone
from dpcore.spec import Declaration, load_spec

CLOSING_SECONDS = 15.0
"""How long closing a session waits for other threads of this process."""


@contextmanager
def ledger_with(spec: str | Path) -> Iterator[tuple[Ledger, Declaration]]:
    """Open the ledger of a spec, and yield it with the spec's declaration."""
    declaration = load_spec(spec)
    with open_ledger(places=places_of_spec(declaration.path)) as ledger:
        yield ledger, declaration


def listed(spec: str | Path, *, session: str | None = None) -> list[dict[str, Any]]:
    """Return the sessions of a spec, oldest first, or the one with this id."""
    with ledger_with(spec) as (ledger, declaration):
        runs = sessions_of(ledger, declaration) if session is None else [joined(ledger, declaration, session)]
        return [described(ledger, run) for run in runs]


def open_under_other_specs(spec: str | Path) -> list[str]:
    """Return the open sessions of a spec's dataset that were opened with another spec, or with an earlier version of this one."""
    with ledger_with(spec) as (ledger, declaration):
        own = {run.id for run in sessions_of(ledger, declaration)}
        of_account = sessions(ledger, declaration.spec.dataset)
        return [run.id for run in of_account if run.id not in own and run.state is RunState.OPEN]


def described(ledger: Ledger, run: Run) -> dict[str, Any]:
    """Return what a session has reserved, spent and bought, as plain JSON values."""
    answers, account = ledger.transcript(run.id), ledger.account(run.account)
    not_stored = run.spent - sum(operation.amount for operation in answers)
    return {
        "session": run.id,
        "state": _state(ledger, run),
        "account": run.account,
        "currency": account.currency.symbol,
        **plain_amounts(
            account, reserved=run.reserved, spent=run.spent, remaining=run.remaining, not_stored=not_stored
        ),
        "first": claim_of(run).first,
        "bought": [_bought(operation, account) for operation in answers],
    }


def _state(ledger: Ledger, run: Run) -> str:
    """Return open, closed, or opening: such a session has no first release yet. It is being opened, or its process was killed."""
    if run.state is not RunState.OPEN:
        return "closed"
    first = first_run(ledger, run)
    return "opening" if first is None or first.state is RunState.OPEN else "open"


def _bought(operation: Operation, account: Account) -> dict[str, Any]:
    bought = Bought.of(operation)
    return {
        "question": " ".join(bought.question.split()),
        "cost": operation.amount / AMOUNT_OF_ONE,
        "epsilon": as_epsilon(operation.amount, account),
        "half_width": float(max(np.nanmax(half_widths(number), initial=0.0) for number in bought.numbers)),
        "level": bought.within.level,
    }


def close(spec: str | Path, *, session: str | None = None) -> dict[str, Any]:
    """Close a session of a spec: the newest open one, or the one with this id."""
    with ledger_with(spec) as (ledger, declaration):
        return end_session(ledger, joined(ledger, declaration, session))


def end_session(ledger: Ledger, run: Run) -> dict[str, Any]:
    """Settle a session's run, so that what it has not spent returns to its account. If its first release is unfinished, end that run, too.

    Raises:
        RunHeld: If another thread or process is buying an answer or the first release right now.
    """
    returned = 0
    with alone(run.id, seconds=CLOSING_SECONDS):
        for ending in (first_run(ledger, run), ledger.run(run.id)):
            if ending is not None and ending.state is RunState.OPEN:
                lease = ledger.lease(ending.id)
                returned += ledger.leased(lease).remaining
                ledger.settle(ending.id, release=None, lease=lease)
    account = ledger.account(run.account)
    epsilon, currency = as_epsilon(returned, account), account.currency.symbol
    return {"session": run.id, "returned": returned / AMOUNT_OF_ONE, "epsilon": epsilon, "currency": currency}
