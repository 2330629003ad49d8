"""One step of a task while it runs: begin it, keep its value, or leave it paid."""

from concurrent.futures import Future
from typing import Any

from dpcore.budget import steps
from dpcore.budget.connection import InUse, wait, with_ledger
from dpcore.budget.identity import Step, digest_of
from dpcore.budget.terms import Terms, require_approval
from dpcore.budget.values import from_bytes, to_bytes
from dpcore.errors import DpflowError, UsageError
from dpcore.ledger import Ledger, Operation, OperationState
from dpcore.places import Places, current_places


class Spending:
    """A step that was charged, or the value that was kept of it before.

    Attributes:
        kept: Whether there is a value, so that nothing has to run.
        value: The value, as the ledger has it: tuples have become lists.
    """

    def __init__(self, operation: Operation, *, place: str, places: Places) -> None:
        self._operation = operation
        self._place, self.places = place, places
        self.kept = False
        self.value: Any = None
        if operation.state is OperationState.COMMITTED:
            self._keep(operation.output or b"")

    def keep(self, value: object) -> Any:
        """Keep a value durably, once. Return it as the ledger has it.

        Everybody who may read the ledger may read it: it must be public, as a differentially private result is.

        Raises:
            RunHeld: If another worker has taken the step over. Do not use the value.
            UsageError: If the value cannot be stored, or one is kept already.
        """
        self.store(value, waits=True).result()
        return self.value

    def store(self, value: object, *, waits: bool) -> Future[None]:
        """Begin to keep a value."""
        if self.kept:
            raise UsageError("this step has a value already; use it, or give what is new a step of its own")
        written = to_bytes(value)

        def stored(ledger: Ledger) -> None:
            steps.keep(ledger, self._operation, written)
            self._keep(written)

        return with_ledger(stored, places=self.places, waits=waits)

    def leave(self) -> None:
        """End a step. Without a value it stays paid, and the next attempt pays again."""
        if self.kept:
            steps.leave(self._place, self._operation)
            return
        try:
            wait(with_ledger(self.end, places=self.places))
        except InUse:
            steps.leave(self._place, self._operation)
        except DpflowError:
            return  # what the body raised matters more, and the next attempt ends this one

    def end(self, ledger: Ledger) -> None:
        """End an attempt that has no value."""
        try:
            if not self.kept:
                steps.end(ledger, self._operation)
        finally:
            steps.leave(self._place, self._operation)

    def _keep(self, written: bytes) -> None:
        self.kept, self.value = True, from_bytes(written)


def begin(account: str, step: Step, terms: Terms, *, waits: bool) -> Future[Spending]:
    """Charge for a step before its body runs, or find its value."""
    places = current_places()  # also for what follows: a body may change the working folder

    def charged(ledger: Ledger) -> Spending:
        operation = steps.begin(
            ledger,
            step,
            lambda: terms.order(ledger.account(account)),
            mechanism=terms.mechanism.describe(),
            seconds=terms.lease_seconds,
            reserve=None if step.scope is None else reserve_of(account, step.scope),
            approve=lambda amount: None if terms.approved else require_approval(ledger.account(account), amount),
        )
        return Spending(operation, place=ledger.place, places=places)

    return with_ledger(charged, places=places, waits=waits)


def abandon(begun: Future[Spending]) -> None:
    """End a step, as soon as it is charged, for a caller who has stopped waiting for that."""

    def ended(charged: Future[Spending]) -> None:
        if not charged.cancelled() and charged.exception() is None and not charged.result().kept:
            with_ledger(charged.result().end, places=charged.result().places)

    begun.cancel()
    begun.add_done_callback(ended)


def reserve_of(account: str, scope: str) -> str:
    """Return the name of a flow run's reserve in an account."""
    return f"reserve-{digest_of([account, scope])[:20]}"
