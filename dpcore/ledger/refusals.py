"""The preconditions of the protocol's steps, and the errors that report a violated one."""

import json
from collections.abc import Collection
from datetime import datetime
from hashlib import sha256
from math import ceil

from dpcore.errors import BudgetRefused, LedgerDamaged, RunHeld, UsageError
from dpcore.ledger.checks import checked_text
from dpcore.ledger.holder import process_of, surely_gone
from dpcore.ledger.rows import (
    WHOLE,
    Account,
    AccountState,
    Block,
    BlockState,
    Event,
    Lease,
    Operation,
    Run,
    RunState,
    in_currency,
)
from dpcore.ledger.transaction import LedgerTransaction
from dpcore.privacy.accounting import Currency


def known_account(rows: LedgerTransaction, name: str) -> Account:
    """Return the account. Raise with the names of the known accounts if it does not exist."""
    account = rows.account(checked_text(name, what="an account's name"))
    if account is None:
        names = ", ".join(existing.name for existing in rows.accounts())
        hint = (
            f"known accounts: {names}; see: dpflow ledger show"
            if names
            else "no account is open yet; open one with: dpflow ledger open"
        )
        raise UsageError(f"there is no account '{name}'; {hint}; the ledger is {rows.place}")
    return account


def known_open_account(rows: LedgerTransaction, name: str) -> Account:
    """Return the account. Raise if it does not exist or is closed."""
    account = known_account(rows, name)
    refuse_if_closed(account)
    return account


def refuse_if_closed(account: Account) -> None:
    """Raise if the account is closed."""
    if account.state is AccountState.CLOSED:
        raise UsageError(f"account '{account.name}' is closed; open another one under a new name")


def known_blocks(rows: LedgerTransaction, account: Account, names: Collection[str] | None) -> tuple[Block, ...]:
    """Return the blocks that a reservation names. Raise unless it names some, all exist, and all are sealed."""
    if account.blocks_by is None:
        if names is not None:
            raise UsageError(f"account '{account.name}' is not kept by block; name no blocks")
        if not (whole := rows.blocks(account.name, (WHOLE,))):
            raise LedgerDamaged(f"account '{account.name}' has lost its balance; restore the ledger from a backup")
        return whole
    if names is None:
        raise UsageError(
            f"account '{account.name}' is kept by block ({account.blocks_by}); name every block that the run may touch"
        )
    blocks = rows.blocks(account.name, names)
    if unknown := sorted(set(names) - {block.name for block in blocks}):
        raise UsageError(f"account '{account.name}' has no block {listed(unknown)}; open it first")
    if growing := [block.name for block in blocks if block.state is BlockState.OPEN]:
        raise UsageError(
            f"block {listed(growing)} of account '{account.name}' may still grow; seal it before its first charge"
        )
    return blocks


def known_run(rows: LedgerTransaction, run_id: str) -> Run:
    """Return the run. Raise if it does not exist."""
    return _known(rows.run(checked_text(run_id, what="a run's id")), run_id)


def _known(run: Run | None, run_id: str) -> Run:
    if run is None:
        raise UsageError(
            f"there is no run '{run_id}' in this ledger; reserve its budget first, or list the known runs with: dpflow ledger show --all"
        )
    return run


def known_event(rows: LedgerTransaction, seq: int) -> Event:
    """Return an event that a row refers to. Raise LedgerDamaged if it is missing or invalid."""
    event = rows.event(seq)
    if event is None:
        raise LedgerDamaged(f"event {seq} of the ledger is missing; restore the ledger from a backup")
    try:
        json.loads(event.body)
        datetime.fromisoformat(event.at)
    except ValueError as error:
        raise LedgerDamaged(f"event {seq} of the ledger is unreadable; restore the ledger from a backup") from error
    return event


def refuse_unless_open(run: Run) -> None:
    """Raise unless the run is open, and so still holds a reservation."""
    if run.state is not RunState.OPEN:
        raise UsageError(f"run '{run.id}' is {run.state} and takes no more operations; start a new run")


def leased_run(rows: LedgerTransaction, lease: Lease) -> Run:
    """Return the open run of this lease. Raise if the lease is not its newest."""
    return _still_leased(rows.run(lease.run), lease)


def leased_step(rows: LedgerTransaction, lease: Lease, step: str) -> tuple[Run, Operation | None]:
    """Return the open run of this lease and the newest attempt of a step. Raise if the lease is not the run's newest."""
    run, newest, _ = rows.run_and_attempt(lease.run, step) or (None, None, None)
    return _still_leased(run, lease), newest


def _still_leased(stored: Run | None, lease: Lease) -> Run:
    run = _known(stored, lease.run)
    # Checked before the run's state: a worker that lost its run needs to know only that, whatever the other worker did since.
    if run.fence != lease.fence or run.holder is None:  # a run that was refunded and reserved again has no holder
        raise RunHeld(f"run '{run.id}' was taken over by another worker; stop here and let it finish the run")
    refuse_unless_open(run)
    return run


def refuse_if_worked_on(run: Run, *, touched: datetime, now: datetime) -> None:
    """Raise if the run's worker may be alive: its lease has not expired, and it is not known to have ended.

    If the clock was set back to before the run's last event, the lease counts as expired. Taking a run from a live worker costs
    only that worker's current step, because the fence rejects its writes.
    """
    until = run.leased_until(touched)
    if run.holder is not None and touched <= now < until and not surely_gone(run.holder):
        raise RunHeld(
            f"run '{run.id}' is held by {process_of(run.holder)}; if that worker is dead, "
            f"try again in {ceil((until - now).total_seconds())} seconds"
        )


def budget_refused(payer: str, *, currency: Currency, requested: int, remaining: int) -> BudgetRefused:
    """Return the error for a request above the remaining budget, with the requested, remaining and missing amounts."""
    return BudgetRefused(
        f"{payer} cannot pay {in_currency(requested, currency)}: {in_currency(remaining, currency)} remains, "
        f"{in_currency(requested - remaining, currency)} too little; ask for less, or ask the steward for more budget",
        requested=requested,
        remaining=remaining,
    )


def across_refused(account: Account, *, requested: int, remaining: int) -> BudgetRefused:
    """Return the error for a run that exceeds the cap across blocks."""
    payer = f"the cap across blocks of account '{account.name}'"
    return budget_refused(payer, currency=account.currency, requested=requested, remaining=remaining)


def undamaged(operation: Operation) -> Operation:
    """Return a committed operation. Raise if its output does not match the committed hash."""
    if operation.output is None or sha256(operation.output).hexdigest() != operation.sha256:
        raise LedgerDamaged(
            f"the output of step '{operation.step}' of run '{operation.run}' is not what was committed; "
            "restore the ledger from a backup"
        )
    return operation


def listed(names: Collection[str]) -> str:
    """Format names for a message: the first three, and how many more there are.

    >>> listed(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    shown = ", ".join(f"'{name}'" for name in list(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
