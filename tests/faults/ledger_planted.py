"""Ledgers with a fault in them, to see that the harness finds it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpcore.ledger import Lease, Ledger, Operation, OperationState, open_ledger
from dpcore.ledger.store import Store

Opener = Callable[[str], Ledger]


def sound(url: str) -> Ledger:
    """Open the ledger as it is."""
    return open_ledger(url, create=True)


class PaysAfterDrawing(Ledger):
    """Records an operation's price only together with its output."""

    def charge(self, lease: Lease, *, step: str, amount: int, mechanism: Mapping[str, Any]) -> Operation:
        """Promise to pay."""
        return Operation(lease.run, step, 1, OperationState.CHARGED, amount, mechanism, lease.fence, None, None)

    def commit(self, operation: Operation, output: bytes) -> Operation:
        """Pay, and store the output."""
        lease = Lease(operation.run, operation.fence)
        charged = super().charge(lease, step=operation.step, amount=operation.amount, mechanism=operation.mechanism)
        return super().commit(charged, output)


def pays_after_drawing(url: str) -> Ledger:
    """Open a ledger that takes the price when it stores the output."""
    return PaysAfterDrawing(_store(sound(url)))


def answers_before_storing(url: str) -> Ledger:
    """Open a ledger that returns before its transaction has ended; the next one, or the end, does that for it."""
    ledger = sound(url)
    store = _store(ledger)
    execute, close, late = store.execute, store.close, []

    def catch_up() -> None:
        while late:
            execute(late.pop())

    def later(statement: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        if statement == "COMMIT":
            late.append(statement)
            return ()
        catch_up()
        return execute(statement, parameters)

    def close_later() -> None:
        catch_up()
        close()

    store.execute, store.close = later, close_later
    return ledger


def changes_piece_by_piece(url: str) -> Ledger:
    """Open a ledger whose changes are not transactions: each statement counts by itself."""
    ledger = sound(url)
    store = _store(ledger)
    execute = store.execute

    def alone(statement: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        return () if statement == "COMMIT" or statement.startswith("BEGIN") else execute(statement, parameters)

    store.execute = alone
    return ledger


def _store(ledger: Ledger) -> Store:
    store: Store = ledger._store
    return store


PLANTED: Mapping[str, Opener] = {
    "pays-after-drawing": pays_after_drawing,
    "answers-before-storing": answers_before_storing,
    "changes-piece-by-piece": changes_piece_by_piece,
}
