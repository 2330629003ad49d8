"""The part of a ledger's check that no single event stands for: rows too many or too few, and the attempts of each step."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from dpcore.ledger.rows import OperationState
from dpcore.ledger.scan import AttemptRow, LedgerScan
from dpcore.ledger.verification.findings import at_row, differing, named
from dpcore.ledger.verification.replay import Replay

Row = TypeVar("Row")


def require_tables(scan: LedgerScan, replay: Replay) -> None:
    """Hold accounts, blocks and allowances against what the events led to, in both directions."""
    _require_rows("account", scan.all_accounts(), replay.accounts, key=lambda row: row.name)
    _require_rows("block", scan.all_blocks(), replay.blocks(), key=lambda row: (row.account, row.name))
    _require_rows(
        "allowance", scan.all_allowances(), replay.allowances(), key=lambda row: (row.account, row.kind, row.name)
    )


def _require_rows(
    table: str, rows: Iterable[Row], expected: Mapping[Any, Row], *, key: Callable[[Row], Hashable]
) -> None:
    untold = dict(expected)
    for row in rows:
        told = untold.pop(key(row), None)
        if told is None:
            raise at_row(f"{table} {_shown(key(row))}", "is there, and no event tells of it")
        if row != told:
            raise at_row(f"{table} {_shown(key(row))}", f"is not what the events tell, in: {differing(row, told)}")
    for name in untold:
        raise at_row(f"{table} {_shown(name)}", "has lost its row")


def _shown(key: Hashable) -> str:
    return ", ".join(map(named, key if isinstance(key, tuple) else (key,)))


def require_attempts(scan: LedgerScan, *, operations: int) -> None:
    """Refuse a step whose attempts are not numbered in the order of their charges, or of which not just the last is committed.

    The events were held against the same rows, so what is true of the rows' numbers is true of the events.
    """
    before: AttemptRow | None = None
    found = 0
    for row in scan.attempts():
        found += 1
        if before is not None and (before.run, before.step) != (row.run, row.step):
            before = None
        if problem := _problem(row, before=before):
            raise at_row(f"attempt {row.attempt} of step {named(row.step)} of run {named(row.run)}", problem)
        before = row
    if found != operations:
        raise at_row("the table of operations", "does not read the same twice")


def _problem(row: AttemptRow, *, before: AttemptRow | None) -> str | None:
    if row.attempt != (before.attempt + 1 if before else 1):
        return "does not count on from the attempt before it"
    if before and not (before.committed is None and before.charged < row.charged):
        return "was charged before the attempt that it follows, or after the commit of its step"
    if row.committed is None:
        whole = row.state == OperationState.CHARGED and row.sha256 is None and bool(row.empty)
    else:
        whole = row.state == OperationState.COMMITTED and row.charged < row.committed
    return None if whole else "is committed in one column of its row and not in another"
