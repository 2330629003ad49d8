"""A step on the ledger: reserve, lease and charge it in one transaction; keep its value and settle it in another.

Each attempt is a run of the ledger of its own: `mean_age-3f2a/1` and, after an attempt that died, `mean_age-3f2a/2`, which pays again. A
flow's reserve is a chain of runs as well, of which only the last holds budget: a task that draws from it refunds that run, and reserves its
own price and the rest anew, in the transaction that charges it. So nobody else can take what was reserved, every attempt has a lease of its
own, and the ledger needs no event for any of this.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from dpcore.budget.identity import Step
from dpcore.errors import RunHeld, UsageError
from dpcore.ledger import Lease, Ledger, Operation, Run, RunState, budget_refused
from dpcore.ledger.holder import this_worker

VALUE = "value"
"""The name of the one operation of each run."""

_active: dict[tuple[int, str, str], object] = {}
"""The steps that this process is working on, each with who began it: the ledger cannot tell threads apart."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is reserved, and by which account, in which blocks and in whose name it is paid."""

    account: str
    amount: int
    blocks: tuple[str, ...] | None
    analyst: str | None
    purpose: str | None


def begin(  # noqa: PLR0913  who pays, for what, how much, and out of what
    ledger: Ledger,
    step: Step,
    order_of: Callable[[], Order],
    *,
    mechanism: Mapping[str, object],
    seconds: int,
    reserve: str | None,
    approve: Callable[[int], None],
) -> Operation:
    """Charge for a new attempt at a step, or return the operation that was kept.

    Args:
        ledger: The ledger.
        step: The step.
        order_of: Returns what it takes.
        mechanism: The description of its guarantee.
        seconds: How long its worker has it for itself.
        reserve: The flow run's reserve, from which it draws if that is open.
        approve: Raises if an amount that is taken from the account itself needs an approval.

    Raises:
        BudgetRefused: If the reserve of the flow run, or without one the account, cannot pay. Nothing has changed.
        RunHeld: If another worker, or another task of this process, may be working on the step.
    """
    key = _key(ledger, step.name)
    if _active.setdefault(key, token := object()) is not token:
        raise RunHeld(f"step '{step.name}' is running in another task of this process; wait for that one")
    try:
        with ledger.together():
            number, kept = _next_attempt(ledger, step)
            if kept is None:
                order = order_of()
                drawn = None if reserve is None else _drawn(ledger, reserve, order)
                if drawn is None:
                    approve(order.amount)
                order = drawn or order
                run = _reserve(ledger, f"{step.name}/{number}", step.claim, order)
                lease = ledger.lease(run.id, seconds=seconds)
                charged = ledger.charge(lease, step=VALUE, amount=order.amount, mechanism=mechanism)
    except BaseException:
        _done(key)
        raise
    if kept is not None:
        _done(key)
        return kept
    return charged


def keep(ledger: Ledger, operation: Operation, value: bytes) -> None:
    """Keep the value of a charged attempt, and end its run.

    Raises:
        RunHeld: If another worker has taken the step over. Its value counts, and this one must not be used.
    """
    with ledger.together(remember=False):  # as after any commit: what was charged is remembered already
        ledger.commit(operation, value)
        ledger.settle(operation.run, release=None, lease=Lease(operation.run, operation.fence))


def end(ledger: Ledger, operation: Operation) -> None:
    """End an attempt that has kept nothing. It stays paid."""
    ledger.settle(operation.run, release=None, lease=Lease(operation.run, operation.fence))


def leave(place: str, operation: Operation) -> None:
    """Let other tasks of this process begin the step."""
    _done((os.getpid(), place, operation.run.rpartition("/")[0]))


def _key(ledger: Ledger, name: str) -> tuple[int, str, str]:
    return os.getpid(), ledger.place, name


def _done(key: tuple[int, str, str]) -> None:
    _active.pop(key, None)


def _next_attempt(ledger: Ledger, step: Step) -> tuple[int, Operation | None]:
    """Return the number of the next attempt, and the operation that was kept, if there is one. End an attempt whose worker died."""
    for number in count(1):
        run = _run(ledger, f"{step.name}/{number}")
        if run is None:
            return number, None
        if run.claim != step.claim:
            raise UsageError(
                f"the name '{step.name}' belongs to another step or to other arguments; give this one a name of its own"
            )
        if (kept := ledger.operation(run.id, VALUE)) is not None:
            return number, kept
        if run.state is RunState.OPEN:
            # This process knows that none of its tasks is working on it.
            lease = ledger.lease(run.id) if run.holder == this_worker() else None
            ledger.settle(run.id, release=None, lease=lease)
    raise AssertionError  # count() has no end


def open_reserve(ledger: Ledger, reserve: str, order: Order, *, claim: str) -> None:
    """Reserve for a whole flow run; for a retried one, what it had left.

    Raises:
        BudgetRefused: If the account cannot pay. Nothing has changed.
    """
    with ledger.together():
        number, last = _last(ledger, reserve)
        if last is not None and last.claim != claim:
            raise UsageError(
                f"this flow run has reserved something else in account '{order.account}'; make one reserve for each flow run and account"
            )
        if last is None or last.state is RunState.SETTLED:
            amount = order.amount if last is None else last.reserved
            _reserve(ledger, f"{reserve}/{number + 1}", claim, replace(order, amount=amount))


def close_reserve(ledger: Ledger, reserve: str) -> None:
    """Return what a reserve has left to the account. A retry of the flow run can reserve it again."""
    with ledger.together():
        _, last = _last(ledger, reserve)
        if last is not None and last.state is RunState.OPEN:
            ledger.settle(last.id, release=None, lease=None)


def _drawn(ledger: Ledger, reserve: str, order: Order) -> Order | None:
    """Take the amount out of the flow run's reserve. Return the order with what it has from there; None if no reserve is open."""
    number, last = _last(ledger, reserve)
    if last is None or last.state is RunState.SETTLED:
        return None
    account = ledger.account(order.account)
    if order.amount > last.remaining:  # nothing remains of one that was drawn to the end
        payer = f"the reserve of this flow run in account '{account.name}'"
        raise budget_refused(payer, currency=account.currency, requested=order.amount, remaining=last.remaining)
    blocks = None if account.blocks_by is None else ledger.blocks_of(last.id)
    if order.blocks is not None and not set(order.blocks) <= set(blocks or ()):
        raise UsageError(
            f"a block of this step is not in the flow run's reserve in account '{account.name}'; reserve it as well"
        )
    ledger.refund(last.id, lease=None)
    whole = replace(order, blocks=blocks, analyst=last.analyst, purpose=last.purpose)
    if rest := last.remaining - order.amount:
        _reserve(ledger, f"{reserve}/{number + 1}", last.claim, replace(whole, amount=rest))
    return replace(whole, blocks=order.blocks or blocks)


def _last(ledger: Ledger, reserve: str) -> tuple[int, Run | None]:
    """Return the last run of a reserve's chain and its number; 0 and None if there is none. Takes a number of lookups like its logarithm."""
    low, high = 0, 1
    while _run(ledger, f"{reserve}/{high}") is not None:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _run(ledger, f"{reserve}/{middle}") is None else (middle, high)
    return low, _run(ledger, f"{reserve}/{low}")


def _run(ledger: Ledger, run_id: str) -> Run | None:
    with ledger.reading() as rows:
        return rows.run(run_id)


def _reserve(ledger: Ledger, run_id: str, claim: str, order: Order) -> Run:
    return ledger.reserve(
        run_id,
        account=order.account,
        amount=order.amount,
        claim=claim,
        blocks=order.blocks,
        analyst=order.analyst,
        purpose=order.purpose,
    )
