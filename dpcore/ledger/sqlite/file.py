"""The SQLite file of a ledger: create it, recognise it, and migrate it from an earlier version."""

import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger.sqlite.outputs import sync_folder
from dpcore.ledger.sqlite.schema import APPLICATION_ID, BASE, MIGRATIONS, NAMES, RULES, TABLES, VERSION

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
            marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {BASE};"
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


def bring_up_to_date(connection: sqlite3.Connection, path: Path, *, immutable: bool = False) -> None:
    """Migrate a file of an older version. Raise if it is not a ledger, is incomplete, or was written by a newer version.

    A file opened as immutable has no journal mode to check.
    """
    if _number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise LedgerDamaged(f"the file at {path} is not a dpflow ledger; check DPFLOW_LEDGER_URL or restore a backup")
    if not immutable and connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        raise LedgerDamaged(f"the ledger at {path} lost its write-ahead journal mode; restore it from a backup")
    version = _number(connection, "PRAGMA user_version")
    if version > VERSION:
        raise LedgerError(
            f"the ledger at {path} was written by a newer dpflow (version {version}, this one reads {VERSION}): upgrade"
        )
    if version < VERSION:
        _migrate(connection, path)
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


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate the file to this version in one transaction. Another process may have done so meanwhile."""
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for version in range(_number(connection, "PRAGMA user_version"), VERSION):
            for statement in _statements(_migration(version, path)):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk may already have rolled it back
            connection.execute("ROLLBACK")
        raise


def _migration(version: int, path: Path) -> str:
    if version not in MIGRATIONS:
        raise LedgerDamaged(f"the ledger at {path} has an unknown version; restore it from a backup")
    return MIGRATIONS[version]


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements: `executescript` would commit the open transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _number(connection: sqlite3.Connection, query: str) -> int:
    (number,) = connection.execute(query).fetchone()
    return int(number)
