"""Show the sessions of a spec, and close one. Neither needs the data or the model."""

from pathlib import Path
from typing import Any

import numpy as np

from dpcore.ledger import Account, Ledger, Run, open_ledger
from dpcore.places import places_of_spec
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.reporting.session_claims import Claim, sessions
from dpcore.session.bought import Bought
from dpcore.session.offer import half_widths
from dpcore.session.opening import bought_first, joined, meaning_of
from dpcore.session.price import as_epsilon
from dpcore.session.turns import alone
from dpcore.spec import load_spec

CLOSING_SECONDS = 15.0
"""How long closing a session waits for other threads of this process."""


def described(ledger: Ledger, run: Run) -> dict[str, Any]:
    """Return what a session has reserved, spent and bought, as plain JSON values."""
    claim, answers, account = Claim.read(run.claim), ledger.transcript(run.id), ledger.account(run.account)
    not_stored = run.spent - sum(each.amount for each in answers)
    return {
        "session": run.id,
        "state": _state(ledger, run),
        "account": run.account,
        "currency": account.currency.symbol,
        "reserved": run.reserved / AMOUNT_OF_ONE,
        "spent": run.spent / AMOUNT_OF_ONE,
        "remaining": run.remaining / AMOUNT_OF_ONE,
        "epsilon": {
            **{name: as_epsilon(getattr(run, name), account) for name in ("reserved", "spent", "remaining")},
            "not_stored": as_epsilon(not_stored, account),
        },
        "not_stored": not_stored / AMOUNT_OF_ONE,
        "first": claim.first if claim else None,
        "bought": [
            _bought(Bought.from_bytes(each.output or b"", step=each.step), each.amount, account) for each in answers
        ],
    }


def _state(ledger: Ledger, run: Run) -> str:
    """Return open, closed, or opening: such a session has no first release yet. It is being opened, or its process was killed."""
    if run.state != "open":
        return "closed"
    first = bought_first(ledger, run)
    return "opening" if first is None or first.state == "open" else "open"


def _bought(bought: Bought, amount: int, account: Account) -> dict[str, Any]:
    return {
        "question": " ".join(bought.question.split()),
        "cost": amount / AMOUNT_OF_ONE,
        "epsilon": as_epsilon(amount, account),
        "half_width": float(max(np.nanmax(half_widths(each), initial=0.0) for each in bought.numbers)),
        "level": bought.level,
    }


def listed(spec: str | Path, *, session: str | None = None) -> list[dict[str, Any]]:
    """Return the sessions of a spec, oldest first, or the one with this id."""
    declaration = load_spec(spec)
    with open_ledger(places=places_of_spec(declaration.path)) as ledger:
        if session is not None:
            return [described(ledger, joined(ledger, declaration, session))]
        meaning = meaning_of(declaration)
        every = sessions(ledger, declaration.spec.dataset)
        return [described(ledger, run) for run, claim in every.items() if claim.digest == meaning]


def open_under_other_specs(spec: str | Path) -> list[str]:
    """Return the open sessions of a spec's dataset that were opened with another spec, or with an earlier version of this one."""
    declaration = load_spec(spec)
    with open_ledger(places=places_of_spec(declaration.path)) as ledger:
        meaning = meaning_of(declaration)
        every = sessions(ledger, declaration.spec.dataset)
        return [run.id for run, claim in every.items() if claim.digest != meaning and run.state == "open"]


def close(spec: str | Path, *, session: str | None = None) -> dict[str, Any]:
    """Close a session of a spec: the newest open one, or the one with this id."""
    declaration = load_spec(spec)
    with open_ledger(places=places_of_spec(declaration.path)) as ledger:
        return end_session(ledger, joined(ledger, declaration, session))


def end_session(ledger: Ledger, run: Run) -> dict[str, Any]:
    """Settle a session's run, so that what it has not spent returns to its account. If its first release is unfinished, end that run, too.

    Raises:
        RunHeld: If another thread or process is buying an answer or the first release right now.
    """
    returned = 0
    with alone(run.id, seconds=CLOSING_SECONDS):
        for each in (bought_first(ledger, run), ledger.run(run.id)):
            if each is not None and each.state == "open":
                lease = ledger.lease(each.id)
                returned += ledger.leased(lease).remaining
                ledger.settle(each.id, release=None, lease=lease)
    account = ledger.account(run.account)
    told = {"returned": returned / AMOUNT_OF_ONE, "epsilon": as_epsilon(returned, account)}
    return {"session": run.id, **told, "currency": account.currency.symbol}
