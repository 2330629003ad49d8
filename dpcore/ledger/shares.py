"""Shares of a run: how much of its reservation each of several analysts may spend, and the token by which each is known.

A share is a cap, not a reservation: shares may add up to more than the run has. The run's own reservation bounds all of them together. A charge
names the analyst who pays, and adds to what the analyst's share has spent, in the same transaction.
"""

import re

from dpcore.errors import UsageError
from dpcore.ledger import checks
from dpcore.ledger.chain import is_sha256
from dpcore.ledger.refusals import budget_refused, known_account, known_run, refuse_unless_open
from dpcore.ledger.rows import EventKind, Run, Share
from dpcore.ledger.transaction import LedgerTransaction
from dpcore.ledger.withdrawals import Withdrawals

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Shares(Withdrawals):
    """The shares of runs that several analysts use."""

    def share(self, run_id: str, *, analyst: str, cap: int, token: str | None) -> None:
        """Set an analyst's cap and token, in place of earlier ones. What the analyst has spent still counts.

        Args:
            run_id: The run. It must be open, unless the analyst is removed.
            analyst: The analyst's name.
            cap: The most that the analyst may spend of the run's reservation, and no less than was spent.
            token: The SHA-256 of the analyst's token. None removes the analyst.
        """
        if not _NAME.fullmatch(analyst):
            raise UsageError(
                "an analyst's name has at most 64 letters, digits, dots, dashes and underscores; choose another"
            )
        checks.checked_amount(cap)
        if token is not None and not is_sha256(token):
            raise UsageError("a token is recorded as its SHA-256 only; report this")
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if token is not None:  # a token can be revoked at any time: a closed session still gives free answers
                refuse_unless_open(run)
            earlier = rows.share(run_id, analyst)
            spent = earlier.spent if earlier else 0
            if cap < spent:
                raise UsageError(
                    f"analyst '{analyst}' has already spent more than that of run '{run_id}'; give at least as much, or remove the analyst"
                )
            body = {"run": run_id, "analyst": analyst, "cap": cap, "token": token}
            event = rows.record(EventKind.SHARED, account=run.account, run=None, body=body)
            rows.put_share(Share(run_id, analyst, cap, token, spent=spent, last=event.seq))
        self._remember()

    def shares(self, run_id: str) -> dict[str, Share]:
        """Return the share of each analyst that the run ever had, by name."""
        with self.reading() as rows:
            return {share.analyst: share for share in rows.shares(known_run(rows, run_id).id)}


def require_share(rows: LedgerTransaction, run: Run, *, analyst: str, amount: int) -> None:
    """Raise if an analyst who is charged has too little left. Called in the transaction that charges."""
    share = rows.share(run.id, analyst)
    if share is None or share.token is None:
        raise UsageError(f"analyst '{analyst}' has no share of run '{run.id}'; ask the steward")
    if amount > share.remaining:
        currency = known_account(rows, run.account).currency
        who = f"the share of analyst '{analyst}' in run '{run.id}'"
        raise budget_refused(who, currency=currency, requested=amount, remaining=share.remaining)
