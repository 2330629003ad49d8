"""Shares of a run: how much of its reservation each of several analysts may spend, and the token by which each is known.

A share is a cap, not a reservation: shares may add up to more than the run has. The run's own reservation bounds all of them together. A step
is charged for an analyst by its name, which ends in `@NAME`. So the chain says who has spent what, and a step in an analyst's name can't be
charged without a share.
"""

import re
from dataclasses import dataclass

from dpcore.errors import UsageError
from dpcore.ledger import checks
from dpcore.ledger.chain import is_sha256
from dpcore.ledger.refusals import budget_refused, known_account, known_run, refuse_unless_open
from dpcore.ledger.rows import EventKind, Run
from dpcore.ledger.transaction import LedgerTransaction
from dpcore.ledger.withdrawals import Withdrawals
from dpcore.marginals.measurements import analyst_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Share:
    """What one analyst may spend of a run's reservation.

    Attributes:
        run: The run.
        analyst: The analyst's name.
        cap: The most that all charges in the analyst's name may add up to.
        token: The SHA-256 of the analyst's token; None if the analyst was removed.
        spent: The sum of these charges, with those whose answer was lost.
    """

    run: str
    analyst: str
    cap: int
    token: str | None
    spent: int

    @property
    def remaining(self) -> int:
        """What the analyst can still spend, as far as the run's reservation goes."""
        return 0 if self.token is None else max(0, self.cap - self.spent)


class Shares(Withdrawals):
    """The shares of runs that several analysts use."""

    def share(self, run_id: str, *, analyst: str, cap: int, token: str | None) -> None:
        """Set an analyst's cap and token, in place of earlier ones. What the analyst has spent still counts.

        Args:
            run_id: The run. It must be open, unless the analyst is removed.
            analyst: The analyst's name.
            cap: The most that the analyst may spend of the run's reservation.
            token: The SHA-256 of the analyst's token. None removes the analyst.
        """
        checked_analyst(analyst)
        checks.checked_amount(cap)
        if token is not None and not is_sha256(token):
            raise UsageError("a token is recorded as its SHA-256 only; report this")
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if token is not None:  # a token can be revoked at any time: a closed session still gives free answers
                refuse_unless_open(run)
            body = {"run": run_id, "analyst": analyst, "cap": cap, "token": token}
            rows.record(EventKind.SHARED, account=run.account, run=None, body=body)
        self._remember()

    def shares(self, run_id: str) -> dict[str, Share]:
        """Return the share of each analyst that the run ever had, by name."""
        with self.reading() as rows:
            return _shares(rows, known_run(rows, run_id))


def checked_analyst(name: str) -> str:
    """Return an analyst's name. Raise unless it can be told from the rest of a step's name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "an analyst's name has at most 64 letters, digits, dots, dashes and underscores; choose another"
        )
    return name


def require_share(rows: LedgerTransaction, run: Run, *, step: str, amount: int) -> None:
    """Raise if a step is charged for an analyst who has too little left. Called in the transaction that charges it."""
    analyst = analyst_of(step)
    if analyst is None:
        return
    share = _shares(rows, run).get(analyst)
    if share is None or share.token is None:
        raise UsageError(f"analyst '{analyst}' has no share of run '{run.id}'; ask the steward")
    if amount > share.remaining:
        currency = known_account(rows, run.account).currency
        who = f"the share of analyst '{analyst}' in run '{run.id}'"
        raise budget_refused(who, currency=currency, requested=amount, remaining=share.remaining)


def _shares(rows: LedgerTransaction, run: Run) -> dict[str, Share]:
    told = {}
    for event in rows.events_of_kind(EventKind.SHARED):
        details = event.details
        if details["run"] == run.id:
            told[details["analyst"]] = details
    spent = dict.fromkeys(told, 0)
    for step, amount in rows.prices(run.id):
        analyst = analyst_of(step)
        if analyst in spent:
            spent[analyst] += amount
    return {
        name: Share(run.id, name, cap=each["cap"], token=each["token"], spent=spent[name])
        for name, each in sorted(told.items())
    }
