"""Reserve the budget of a run: choose its blocks, check that each can pay, and open and seal each before it is charged."""

from collections.abc import Collection
from datetime import date

from dpcore.errors import BlocksCovered, BudgetRefused, UsageError
from dpcore.ledger import Account, Balance, BlockState, Ledger, Run, RunState, claim_in
from dpcore.ledger.refusals import refuse_if_closed
from dpcore.runs.paying import check_remaining, in_epsilon
from dpcore.spec import Declaration
from dpcore.universe.blocks import checked_day, choose


def day_to_read(declaration: Declaration, as_of: date | None) -> date:
    """Return the day as of which a run reads: `as_of`, or today in UTC. Raise if it is in the future, or if the spec has no blocks."""
    if as_of is not None and declaration.calendar is None:
        raise UsageError("the spec has no `blocks`, so --as-of has no meaning; leave --as-of out")
    return checked_day(as_of)


def blocks_to_read(ledger: Ledger, declaration: Declaration, *, as_of: date) -> tuple[str, ...] | None:
    """Return the blocks that a run of that day reads, in chronological order; None if the whole table is one block.

    Raises:
        UsageError: If there is nothing to read yet. The message says when there will be.
    """
    calendar, blocks, series = declaration.calendar, declaration.spec.blocks, declaration.series
    if calendar is None or blocks is None:
        return None
    covered = ledger.covered(declaration.spec.dataset, series=series) if series and blocks.window == "new" else {}
    try:
        chosen = choose(calendar, window=blocks.window, as_of=as_of, covered=covered)
    except UsageError as error:
        unfinished = sorted({run.id for run in covered.values() if run.state is RunState.OPEN})
        if not unfinished:
            raise
        raise UsageError(
            f"{error}; run '{unfinished[0]}' of the series is not finished: if no worker is running it, use --resume {unfinished[0]}"
        ) from None
    names = tuple(block.name for block in chosen)
    declaration.covering(names)  # raises for a block outside the universe
    return names


def scarcest(ledger: Ledger, account: Account, *, names: Collection[str] | None) -> tuple[str | None, Balance]:
    """Return the name and balance of the run's block with the least budget left. The name is None if the whole table is one block.

    A block that is not opened yet has the account's whole cap.
    """
    if names is None:
        return None, ledger.balance(account.name)
    balances = {block.name: balance for block, balance in ledger.blocks(account.name)}
    pairs = ((name, balances.get(name, Balance(account.cap, 0, 0))) for name in names)
    return min(pairs, key=lambda pair: pair[1].remaining)


def check_payable(
    ledger: Ledger, declaration: Declaration, *, account: Account, amount: int, names: Collection[str] | None
) -> None:
    """Raise if the run would reserve more than remains in one of its blocks or across blocks. Change nothing."""
    block, balance = scarcest(ledger, account, names=names)
    check_remaining(ledger.account(account.name), declaration, amount=amount, remaining=balance.remaining, block=block)


def reserve_run(  # noqa: PLR0913  who pays, how much, for what, as of when
    ledger: Ledger, declaration: Declaration, *, run_id: str, account: Account, amount: int, claim: str, as_of: date
) -> Run:
    """Reserve a run's budget in every block that it reads. Open and seal missing blocks first.

    A run that was reserved before keeps its blocks, whatever the day is now. If several runs ask at once for the new blocks of a series,
    one gets them: the ledger checks again when it grants, and the other runs choose again.
    """
    spec, series = declaration.spec, declaration.series

    def ask(*, blocks: Collection[str] | None, new_to: str | None) -> Run:
        try:
            return ledger.reserve(
                run_id,
                account=account.name,
                amount=amount,
                claim=claim_in(series, claim),
                blocks=blocks,
                analyst=spec.analyst,
                purpose=spec.purpose,
                new_to=new_to,
            )
        except BudgetRefused as refused:
            raise in_epsilon(refused, declaration, currency=account.currency, amount=amount) from None

    if spec.blocks is None:
        return ask(blocks=None, new_to=None)
    earlier = next((run for run in ledger.runs(account.name) if run.id == run_id), None)
    while True:
        names = ledger.blocks_of(run_id) if earlier else blocks_to_read(ledger, declaration, as_of=as_of)
        if earlier is None or earlier.state is RunState.REFUNDED:
            refuse_if_closed(account)
            check_payable(ledger, declaration, account=account, amount=amount, names=names)
            _make_ready(ledger, account, names or ())
        try:
            return ask(blocks=names, new_to=series if spec.blocks.window == "new" else None)
        except BlocksCovered:
            if earlier is not None:
                raise


def _make_ready(ledger: Ledger, account: Account, names: Collection[str]) -> None:
    """Open and seal the blocks where needed. By the calendar all of them are complete. Another worker may do the same concurrently."""
    states = _states(ledger, account)
    while missing := [name for name in names if name not in states]:
        before = states
        try:
            ledger.open_blocks(account.name, missing)
        except UsageError:
            if _states(ledger, account) == before:
                raise
        states = _states(ledger, account)
    if growing := [name for name in names if states[name] is not BlockState.SEALED]:
        ledger.seal_blocks(account.name, growing)


def _states(ledger: Ledger, account: Account) -> dict[str, BlockState]:
    return {block.name: block.state for block, _ in ledger.blocks(account.name)}
