"""The tables of a ledger in SQLite, how a new file gets them, and how an old file is recognised.

The rules of the protocol that a table can state are stated here again, so that the database itself refuses to overspend.
"""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from dpcore.errors import LedgerDamaged, LedgerError

APPLICATION_ID = 0x6470666C
"""Marks the file as ours ("dpfl") for whoever looks at its header."""
VERSION = 1

TABLES = """
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    currency TEXT NOT NULL,
    cap INTEGER NOT NULL CHECK (cap > 0),
    epsilon REAL NOT NULL CHECK (epsilon > 0),
    delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
    unit TEXT NOT NULL,
    neighbours TEXT NOT NULL,
    spent INTEGER NOT NULL CHECK (spent >= 0),
    reserved INTEGER NOT NULL CHECK (reserved >= 0),
    opened_at TEXT NOT NULL,
    CHECK (spent + reserved <= cap)
) STRICT;

CREATE TABLE event (
    seq INTEGER PRIMARY KEY CHECK (seq > 0),
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL REFERENCES account (name),
    run TEXT,
    body TEXT NOT NULL,
    previous TEXT NOT NULL CHECK (length(previous) = 64),
    hash TEXT NOT NULL CHECK (length(hash) = 64)
) STRICT;

CREATE TABLE run (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL REFERENCES account (name),
    reserved INTEGER NOT NULL CHECK (reserved > 0),
    spent INTEGER NOT NULL CHECK (spent >= 0),
    state TEXT NOT NULL CHECK (state IN ('open', 'settled', 'released')),
    claim TEXT NOT NULL,
    data_version TEXT,
    opened_at TEXT NOT NULL,
    release TEXT,
    CHECK (spent <= reserved),
    CHECK (state <> 'released' OR spent = 0)
) STRICT;
CREATE INDEX run_by_account ON run (account, number);

CREATE TABLE operation (
    run TEXT NOT NULL REFERENCES run (id),
    step TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    state TEXT NOT NULL CHECK (state IN ('started', 'committed')),
    amount INTEGER NOT NULL CHECK (amount > 0),
    mechanism TEXT NOT NULL,
    started INTEGER NOT NULL REFERENCES event (seq),
    committed INTEGER REFERENCES event (seq),
    sha256 TEXT CHECK (length(sha256) = 64),
    output BLOB,
    PRIMARY KEY (run, step, attempt),
    CHECK ((state = 'committed') = (committed IS NOT NULL)),
    CHECK ((state = 'committed') = (sha256 IS NOT NULL)),
    CHECK ((state = 'committed') = (output IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX operation_once ON operation (run, step) WHERE state = 'committed';
CREATE INDEX operation_in_order ON operation (run, committed) WHERE state = 'committed';

CREATE TRIGGER event_in_order BEFORE INSERT ON event
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM event)
BEGIN SELECT raise(ABORT, 'events are numbered without gaps'); END;
CREATE TRIGGER event_kept_as_written BEFORE UPDATE ON event
BEGIN SELECT raise(ABORT, 'events are never changed'); END;
CREATE TRIGGER event_kept BEFORE DELETE ON event
BEGIN SELECT raise(ABORT, 'events are never deleted'); END;
CREATE TRIGGER operation_kept_as_committed BEFORE UPDATE ON operation WHEN OLD.state = 'committed'
BEGIN SELECT raise(ABORT, 'committed operations are never changed'); END;
CREATE TRIGGER operation_kept BEFORE DELETE ON operation
BEGIN SELECT raise(ABORT, 'operations are never deleted'); END;
"""

_NAMES = {
    *("account", "event", "run", "operation", "run_by_account", "operation_once", "operation_in_order"),
    *("event_in_order", "event_kept_as_written", "event_kept", "operation_kept_as_committed", "operation_kept"),
}


def create_file(path: Path) -> None:
    """Make a new ledger at `path`, or leave the one that another process has just made there.

    The file is made complete under another name and then linked: whatever lies at `path` was once a whole ledger, so an
    empty file there is never mistaken for a new one.
    """
    # In this order: whoever makes the ledger at the same moment links the file before its journal comes into being.
    if path.with_name(f"{path.name}-wal").exists() and not path.exists():
        raise LedgerDamaged(f"the ledger at {path} is gone, but its journal is still there; restore it from a backup")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(opened)
    new = Path(name)
    try:
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
            connection.executescript(f"BEGIN; {TABLES} {marks} COMMIT;")
            connection.execute("PRAGMA journal_mode = WAL")
        try:
            path.hardlink_to(new)
        except FileExistsError:
            return
        _sync_folder(path.parent)
    finally:
        new.unlink()


def check_file(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is no ledger, lacks a part of one, or was written by a newer version."""
    if _number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise LedgerDamaged(f"the file at {path} is not a dpflow ledger; check DPFLOW_LEDGER_URL or restore a backup")
    version = _number(connection, "PRAGMA user_version")
    if version > VERSION:
        raise LedgerError(
            f"the ledger at {path} was written by a newer dpflow (version {version}, this one reads {VERSION}): upgrade"
        )
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if version < VERSION or not names >= _NAMES:
        raise LedgerDamaged(f"the ledger at {path} lacks some of its tables or rules; restore it from a backup")
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        raise LedgerDamaged(f"the ledger at {path} lost its write-ahead journal mode; restore it from a backup")


def _number(connection: sqlite3.Connection, query: str) -> int:
    (number,) = connection.execute(query).fetchone()
    return int(number)


def _sync_folder(folder: Path) -> None:
    """Make a new name in the folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
