"""Durable charges in one place: a ledger refuses before anything is drawn, and forgets nothing that was."""

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from dpcore.errors import UsageError
from dpcore.ledger.chain import GENESIS
from dpcore.ledger.ledger import LEASE_SECONDS, Ledger
from dpcore.ledger.refusals import budget_refused
from dpcore.ledger.rows import (
    WHOLE,
    Account,
    AccountState,
    Allowance,
    AllowanceKind,
    Balance,
    Block,
    BlockState,
    Event,
    EventKind,
    Lease,
    Operation,
    OperationState,
    Run,
    RunState,
    in_currency,
)
from dpcore.ledger.series import claim_in
from dpcore.ledger.sqlite import SqliteStore
from dpcore.ledger.store import Store

__all__ = [
    "DEFAULT_URL",
    "GENESIS",
    "LEASE_SECONDS",
    "WHOLE",
    "Account",
    "AccountState",
    "Allowance",
    "AllowanceKind",
    "Balance",
    "Block",
    "BlockState",
    "Event",
    "EventKind",
    "Lease",
    "Ledger",
    "Operation",
    "OperationState",
    "Run",
    "RunState",
    "budget_refused",
    "claim_in",
    "in_currency",
    "open_ledger",
]

DEFAULT_URL = "sqlite:///.dpflow/ledger.sqlite"
_SQLITE = "sqlite:///"


def open_ledger(url: str | None = None, *, create: bool = False, clock: Callable[[], datetime] | None = None) -> Ledger:
    """Open the ledger at `url`, or at `DPFLOW_LEDGER_URL`, or in `.dpflow/` of the working folder.

    Args:
        url: `postgresql://USER@HOST/DATABASE`; or `sqlite:///` and a path: relative to the working folder, or absolute with
            one more slash.
        create: Make the ledger if there is none; without it nothing is ever created.
        clock: What the time is; the database's or this machine's clock unless given.
    """
    url = url or os.environ.get("DPFLOW_LEDGER_URL") or DEFAULT_URL
    return Ledger(_store(url, create=create), clock=clock)


def _store(url: str, *, create: bool) -> Store:
    scheme = url.partition(":")[0]
    if scheme.lower() in {"postgresql", "postgres", "postgresql+psycopg"}:
        from dpcore.ledger.postgres import PostgresStore  # noqa: PLC0415  its driver takes a while to load

        return PostgresStore(url, create=create)
    path = url.removeprefix(_SQLITE)
    if path == url:
        # The rest of the address may hold a password.
        named = f"not {scheme}" if ":" in url else "and this has no scheme"
        raise UsageError(
            f"a ledger is at sqlite:///PATH or postgresql://USER@HOST/DATABASE, {named}; set DPFLOW_LEDGER_URL so"
        )
    if not path or path == ":memory:" or "\0" in path:
        raise UsageError("a ledger is kept in a file: name it, as in sqlite:///.dpflow/ledger.sqlite")
    return SqliteStore(Path(path), create=create)
