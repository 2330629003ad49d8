"""Withdrawals of releases: recorded in the chain, without any effect on amounts.

A withdrawal names the run of its release. The run's row stays as it was settled, because a withdrawal refunds nothing.
"""

from dpcore.errors import UsageError
from dpcore.ledger import checks
from dpcore.ledger.refusals import known_account, known_run
from dpcore.ledger.rows import Event, EventKind, RunState
from dpcore.ledger.steward import Stewardship
from dpcore.ledger.transaction import LedgerTransaction


class Withdrawals(Stewardship):
    """The record of releases whose data was removed, by a steward or by retention."""

    def withdraw(self, run_id: str, *, reason: str, keep: int | None = None) -> Event:
        """Record that the release of a settled run is withdrawn, and return the event. Nothing is refunded.

        A release is withdrawn once: repeating it returns the first event. Only a steward's withdrawal of a release that retention has
        removed is recorded again, with the steward's reason.

        Args:
            run_id: The run that made the release.
            reason: The reason to record. It is published.
            keep: How many newer releases retention keeps; None for a steward's withdrawal, which a runner's login may not record.

        Raises:
            UsageError: If the run is unknown or has no release, or the release is one of the newest that retention keeps.
        """
        checks.checked_text(reason, what="a reason")
        if keep is not None:
            checks.checked_amount(keep)
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if run.state is not RunState.SETTLED or run.release is None:
                raise UsageError(f"run '{run_id}' has no published release; name one that `dpflow releases` lists")
            withdrawn = _withdrawals(rows, run.account)
            earlier = withdrawn.get(run_id)
            if earlier is not None and (keep is not None or earlier.kind is EventKind.WITHDRAWN):
                return earlier
            newer = [each for each in rows.runs(run.account) if each.release and each.first > run.first]
            if keep is not None and sum(each.id not in withdrawn for each in newer) < keep:
                raise UsageError(
                    f"retention keeps release '{run.release}': it is among the newest {keep} of its account"
                )
            kind, kept = (EventKind.WITHDRAWN, {}) if keep is None else (EventKind.REMOVED, {"keep": keep})
            body = {"release": run.release, "reason": reason, **kept}
            event = rows.record(kind, account=run.account, run=run_id, body=body)
        self._remember()
        return event

    def withdrawals(self, account: str) -> dict[str, Event]:
        """Return the withdrawal of each of an account's withdrawn releases, by the id of its run: the steward's if there is one."""
        with self.reading() as rows:
            return _withdrawals(rows, known_account(rows, account).name)


def _withdrawals(rows: LedgerTransaction, account: str) -> dict[str, Event]:
    events = rows.events_of_kind(EventKind.REMOVED, EventKind.WITHDRAWN)
    stewards_last = sorted(events, key=lambda event: event.kind is EventKind.WITHDRAWN)
    return {str(event.run): event for event in stewards_last if event.account == account}
