"""The checks that concern no single event: missing and extra rows, and the attempts of each step."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from dpcore.ledger.rows import OperationState
from dpcore.ledger.scan import AttemptRow, LedgerScan
from dpcore.ledger.verification.findings import at_row, differing, named
from dpcore.ledger.verification.replay import Replay

Row = TypeVar("Row")


def require_tables(scan: LedgerScan, replay: Replay) -> None:
    """Raise unless the accounts, blocks and allowances are exactly those that the events lead to."""
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
            raise at_row(f"{table} {_shown(key(row))}", "exists, but no event records it")
        if row != told:
            raise at_row(f"{table} {_shown(key(row))}", f"differs from the events in: {differing(row, told)}")
    for name in untold:
        raise at_row(f"{table} {_shown(name)}", "has no row")


def _shown(key: Hashable) -> str:
    return ", ".join(map(named, key if isinstance(key, tuple) else (key,)))


def require_attempts(scan: LedgerScan, *, operations: int) -> None:
    """Raise unless each step's attempts are numbered in the order of their charges, and only the last one is committed.

    The events were already compared with these rows, so a check of the rows also covers the events.
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
        raise at_row("the table of operations", "changed between two reads")


def _problem(row: AttemptRow, *, before: AttemptRow | None) -> str | None:
    if row.attempt != (before.attempt + 1 if before else 1):
        return "is not numbered next after the previous attempt"
    if before and not (before.committed is None and before.charged < row.charged):
        return "was charged before the previous attempt, or after its step was committed"
    if row.committed is None:
        whole = row.state == OperationState.CHARGED and row.sha256 is None and bool(row.empty)
    else:
        whole = row.state == OperationState.COMMITTED and row.charged < row.committed
    return None if whole else "has columns that disagree on whether it is committed"
