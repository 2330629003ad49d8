"""The SQLite file of a ledger: create it, recognise it, and compare its rules with those of a new one."""

import os
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from dpcore.errors import LedgerDamaged
from dpcore.ledger.sqlite.outputs import sync_folder
from dpcore.ledger.sqlite.schema import APPLICATION_ID, NAMES, RULES, TABLES
from dpcore.ledger.store import VERSION, require_version

_STATISTICS = {
    ("table", "sqlite_stat1", "sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
    ("table", "sqlite_stat4", "sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
}
"""The tables that ANALYZE adds to a file. No rule depends on them."""


def create_file(path: Path) -> None:
    """Create a new ledger at `path`, or keep the one that another process has just created there.

    The file is completed under another name and then linked to `path`. Every file at `path` was therefore once a complete
    ledger, and an empty file there is never mistaken for a new one.
    """
    # Test the journal first: a process that creates the ledger concurrently links the file before its journal exists.
    if path.with_name(f"{path.name}-wal").exists() and not path.exists():
        raise LedgerDamaged(f"the ledger at {path} is gone, but its journal is still there; restore it from a backup")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened, name = tempfile.mkstemp(dir=path.parent, prefix=temporary_prefix(path))
    os.close(opened)
    new = Path(name)
    try:
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
            connection.executescript(f"BEGIN; {TABLES} {RULES} {marks} COMMIT;")
            connection.execute("PRAGMA journal_mode = WAL")
        try:
            path.hardlink_to(new)
        except FileExistsError:
            return
        sync_folder(path.parent)
    finally:
        new.unlink(missing_ok=True)  # a process that opened the ledger meanwhile may have removed it


def temporary_prefix(path: Path) -> str:
    """Return the prefix of the temporary names under which a new ledger is created."""
    return f".{path.name}-"


def require_ledger(connection: sqlite3.Connection, path: Path, *, immutable: bool = False) -> None:
    """Raise if a file is not a ledger, is incomplete, or has another version. A file opened as immutable has no journal mode to check."""
    if _number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise LedgerDamaged(f"the file at {path} is not a dpflow ledger; check DPFLOW_LEDGER_URL or restore a backup")
    if not immutable and connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        raise LedgerDamaged(f"the ledger at {path} lost its write-ahead journal mode; restore it from a backup")
    require_version(_number(connection, "PRAGMA user_version"), place=str(path))
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not names >= NAMES:
        raise LedgerDamaged(f"the ledger at {path} lacks some of its tables or rules; restore it from a backup")


def rules_changed(connection: sqlite3.Connection) -> str | None:
    """Return the name of a table, index or trigger that is missing, extra or different from a new file's, or None."""
    rules = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    more = " UNION ALL SELECT 'temporary ' || type, name, tbl_name, sql FROM temp.sqlite_master"
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(f"{TABLES} {RULES}")
        expected = Counter(fresh.execute(rules))
    there = Counter(row for row in connection.execute(rules + more) if row not in _STATISTICS)
    for kind, name, *_ in sorted((expected - there) + (there - expected), key=str):
        return f"{kind} {name if str(name).isprintable() else 'without a readable name'}"
    return None


def _number(connection: sqlite3.Connection, query: str) -> int:
    (number,) = connection.execute(query).fetchone()
    return int(number)
