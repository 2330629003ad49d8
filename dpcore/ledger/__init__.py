"""Durable charges in one place: a ledger refuses before anything is drawn, and forgets nothing that was."""

import os
from pathlib import Path

from dpcore.errors import UsageError
from dpcore.ledger.chain import GENESIS
from dpcore.ledger.ledger import Ledger
from dpcore.ledger.refusals import budget_refused
from dpcore.ledger.rows import Account, Event, EventKind, Operation, OperationState, Run, RunState, in_currency
from dpcore.ledger.sqlite import SqliteLedger

__all__ = [
    "DEFAULT_URL",
    "GENESIS",
    "Account",
    "Event",
    "EventKind",
    "Ledger",
    "Operation",
    "OperationState",
    "Run",
    "RunState",
    "budget_refused",
    "in_currency",
    "open_ledger",
]

DEFAULT_URL = "sqlite:///.dpflow/ledger.sqlite"
_SQLITE = "sqlite:///"


def open_ledger(url: str | None = None, *, create: bool = False) -> Ledger:
    """Open the ledger at `url`, or at `DPFLOW_LEDGER_URL`, or in `.dpflow/` of the working folder.

    Args:
        url: `sqlite:///` and a path: relative to the working folder, or absolute with one more slash.
        create: Make the ledger if there is none; without it nothing is ever created.
    """
    url = url or os.environ.get("DPFLOW_LEDGER_URL") or DEFAULT_URL
    path = url.removeprefix(_SQLITE)
    if path == url:
        # The rest of the address may hold a password.
        scheme = url.partition(":")[0] if ":" in url else "it has no scheme"
        raise UsageError(f"only ledgers at sqlite:///PATH are supported now, not {scheme}; set DPFLOW_LEDGER_URL so")
    if not path or path == ":memory:" or "\0" in path:
        raise UsageError("a ledger is kept in a file: name it, as in sqlite:///.dpflow/ledger.sqlite")
    return SqliteLedger(Path(path), create=create)
