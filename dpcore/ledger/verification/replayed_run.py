"""One run, from the events alone: what the protocol lets happen to it between its reservation and its end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from dpcore.ledger.rows import WHOLE, Event, EventKind, Run, RunState
from dpcore.ledger.verification.findings import require

Details: TypeAlias = Mapping[str, Any]
"""What the body of an event says, in full."""


@dataclass
class ReplayedRun:
    """A run as it is after its events so far. `spent` and `last`, which change with every operation, are kept beside the rest."""

    run: Run
    request: Details
    spent: int
    last: int

    @property
    def row(self) -> Run:
        """What the run's row must be."""
        return replace(self.run, spent=self.spent, last=self.last)

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks that it was granted."""
        return tuple(self.request["blocks"] or (WHOLE,))

    def change(self, event: Event, details: Details) -> None:
        """Make the change that an event tells of, or refuse it."""
        require(event, self.run.account == event.account, "is of a run of another account")
        require(event, self.run.state is RunState.OPEN, "changes a run that has ended")
        self._CHANGES[event.kind](self, event, details)
        self.last = event.seq

    def _lease(self, event: Event, details: Details) -> None:
        require(event, details["fence"] == self.run.fence + 1, "does not count the leases of its run on")
        holder, seconds = details["holder"], details["seconds"]
        self.run = replace(self.run, fence=details["fence"], holder=holder, lease_seconds=seconds)

    def _record_data_version(self, event: Event, details: Details) -> None:
        require(event, self.run.data_version is None, "binds its run to a second version of the data")
        self.run = replace(self.run, data_version=details["version"])

    def _charge(self, event: Event, details: Details) -> None:
        require(event, details["fence"] == self.run.fence, "comes from a worker that had lost its run")
        require(event, details["amount"] <= self.run.reserved - self.spent, "takes more than its run has left")
        self.spent += details["amount"]

    def _commit(self, event: Event, details: Details) -> None:
        """Change nothing: what a commit must fit is an operation, of which there may be too many to remember."""

    def _settle(self, event: Event, details: Details) -> None:
        require(event, details["spent"] == self.spent, "does not say what its run has spent")
        require(event, details["returned"] == self.run.reserved - self.spent, "does not return what was never charged")
        both = (details["manifest"] is None) == (details["manifest_sha256"] is None)
        require(event, both, "names a manifest without its hash, or a hash without its manifest")
        self.run = replace(self.run, state=RunState.SETTLED, release=details["release"])

    def _refund(self, event: Event, details: Details) -> None:
        require(event, self.spent == 0, "gives back a run that was charged")
        require(event, details["returned"] == self.run.reserved, "does not return what was reserved")
        self.run = replace(self.run, state=RunState.REFUNDED)

    _CHANGES: ClassVar[Mapping[str, Callable[["ReplayedRun", Event, Details], None]]] = {
        EventKind.LEASED: _lease,
        EventKind.DATA_VERSION: _record_data_version,
        EventKind.CHARGED: _charge,
        EventKind.COMMITTED: _commit,
        EventKind.SETTLED: _settle,
        EventKind.REFUNDED: _refund,
    }


def reserved(event: Event, request: Details, *, earlier: ReplayedRun | None) -> ReplayedRun:
    """Return the run that a reservation begins, or begins anew, or refuse it."""
    if earlier is not None:
        require(event, earlier.run.state is RunState.REFUNDED, "reserves what is reserved, or was settled")
        same = earlier.run.account == event.account and earlier.request == request
        require(event, same, "reserves under a name that stands for something else")
    run = Run(
        id=str(event.run),
        account=event.account,
        reserved=request["amount"],
        spent=0,
        state=RunState.OPEN,
        claim=request["claim"],
        analyst=request["analyst"],
        purpose=request["purpose"],
        data_version=None,
        opened_at=earlier.run.opened_at if earlier else event.at,
        release=None,
        fence=earlier.run.fence if earlier else 0,
        holder=None,
        lease_seconds=0,
        first=event.seq,
        last=event.seq,
    )
    return ReplayedRun(run, request, spent=0, last=event.seq)
