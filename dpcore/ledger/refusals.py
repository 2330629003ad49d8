"""The rules that every step of the protocol looks up first, and the sentences with which a ledger refuses."""

from hashlib import sha256

from dpcore.accounting import Currency
from dpcore.errors import BudgetRefused, LedgerDamaged, UsageError
from dpcore.ledger.rows import Account, Operation, Run, RunState, in_currency
from dpcore.ledger.transaction import LedgerTransaction


def known_account(rows: LedgerTransaction, name: str) -> Account:
    """Return the account, or refuse with the names of those that exist."""
    account = rows.account(name)
    if account is None:
        names = ", ".join(known.name for known in rows.accounts())
        known = f"known accounts: {names}" if names else "no account is open yet; open one with: dpflow ledger open"
        raise UsageError(f"there is no account '{name}'; {known}")
    return account


def known_run(rows: LedgerTransaction, run_id: str) -> Run:
    """Return the run, or refuse."""
    run = rows.run(run_id)
    if run is None:
        raise UsageError(f"there is no run '{run_id}' in this ledger; reserve its budget first")
    return run


def refuse_unless_open(run: Run) -> None:
    """Refuse to change a run that holds no reservation any more."""
    if run.state is not RunState.OPEN:
        raise UsageError(f"run '{run.id}' is {run.state} and takes no more operations; start a new run")


def budget_refused(payer: str, *, currency: Currency, requested: int, remaining: int) -> BudgetRefused:
    """Return the refusal of a price above what remains, with the three numbers that tell how to go on."""
    return BudgetRefused(
        f"{payer} cannot pay {in_currency(requested, currency)}: {in_currency(remaining, currency)} remains, "
        f"{in_currency(requested - remaining, currency)} too little; ask for less, or ask the steward for more budget",
        requested=requested,
        remaining=remaining,
    )


def undamaged(operation: Operation, *, digest: str) -> Operation:
    """Return a committed operation whose output is what was stored, or say that it is not."""
    if operation.output is None or sha256(operation.output).hexdigest() != digest:
        raise LedgerDamaged(
            f"the output of step '{operation.step}' of run '{operation.run}' is not what was committed; "
            "restore the ledger from a backup"
        )
    return operation
