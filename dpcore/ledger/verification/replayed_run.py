"""Replay one run from its events alone, and reject any event that the protocol does not allow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from dpcore.ledger.findings import require
from dpcore.ledger.rows import WHOLE, Event, EventKind, Run, RunState

Details: TypeAlias = Mapping[str, Any]
"""The parsed body of an event."""


@dataclass
class ReplayedRun:
    """A run after its events so far. `spent` and `last`, which change with every operation, are kept outside the frozen row."""

    run: Run
    request: Details
    spent: int
    last: int

    @property
    def row(self) -> Run:
        """The row that the run must have."""
        return replace(self.run, spent=self.spent, last=self.last)

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks that it reserved."""
        return tuple(self.request["blocks"] or (WHOLE,))

    def change(self, event: Event, details: Details) -> None:
        """Apply an event. Raise if the protocol does not allow it here."""
        require(event, self.run.account == event.account, "is of a run of another account")
        require(event, self.run.state is RunState.OPEN, "changes a run that has ended")
        self._CHANGES[event.kind](self, event, details)
        self.last = event.seq

    def _lease(self, event: Event, details: Details) -> None:
        require(event, details["fence"] == self.run.fence + 1, "does not have the next fence of its run")
        holder, seconds = details["holder"], details["seconds"]
        self.run = replace(self.run, fence=details["fence"], holder=holder, lease_seconds=seconds)

    def _record_data_version(self, event: Event, details: Details) -> None:
        require(event, self.run.data_version is None, "binds its run to a second version of the data")
        self.run = replace(self.run, data_version=details["version"])

    def _charge(self, event: Event, details: Details) -> None:
        require(event, details["fence"] == self.run.fence, "comes from a worker whose run was taken over")
        require(event, details["amount"] <= self.run.reserved - self.spent, "takes more than its run has left")
        self.spent += details["amount"]

    def _commit(self, event: Event, details: Details) -> None:
        """Change nothing: a commit is compared with its operation's row, since operations may be too many to keep in memory."""

    def _settle(self, event: Event, details: Details) -> None:
        require(event, details["spent"] == self.spent, "does not state what its run has spent")
        require(event, details["returned"] == self.run.reserved - self.spent, "does not return the uncharged amount")
        both = (details["manifest"] is None) == (details["manifest_sha256"] is None)
        require(event, both, "names a manifest without its hash, or a hash without its manifest")
        self.run = replace(self.run, state=RunState.SETTLED, release=details["release"])

    def _refund(self, event: Event, details: Details) -> None:
        require(event, self.spent == 0, "refunds a run that was charged")
        require(event, details["returned"] == self.run.reserved, "does not return the reserved amount")
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
    """Return the run that a reservation starts, or restarts after a refund. Raise if the protocol does not allow it."""
    if earlier is not None:
        require(event, earlier.run.state is RunState.REFUNDED, "reserves a run that is open or settled")
        same = earlier.run.account == event.account and earlier.request == request
        require(event, same, "reuses the id of a run for another request")
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
