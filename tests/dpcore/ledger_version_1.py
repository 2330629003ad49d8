"""A ledger as the first version wrote it: fewer columns, fewer words in each event, no leases."""

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpcore.accounting import Currency
from dpcore.ledger.chain import GENESIS, canonical, link
from tests.dpcore.ledger_story import NOISE, price

APPLICATION_ID = 0x6470666C
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
"""As it was; never to be changed."""

AT = "2026-01-02T03:04:{:02}.000006+00:00"
PRICE = price(Currency.ZCDP)
MECHANISM = NOISE[Currency.ZCDP].describe()
TERMS = {
    "cap": 100 * PRICE,
    "currency": "zcdp",
    "delta": 1e-9,
    "epsilon": 20.0,
    "neighbours": "add-remove",
    "unit": "person",
}
DIGESTS = {output: sha256(output).hexdigest() for output in (b"one", b"two")}

EVENTS: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    ("account-opened", None, TERMS),
    ("reserved", "settled", {"amount": 5 * PRICE, "claim": "claim of settled"}),
    ("data-version", "settled", {"version": "version-1"}),
    ("started", "settled", {"step": "round-1", "attempt": 1, "amount": PRICE, "mechanism": MECHANISM}),
    ("reserved", "again", {"amount": 2 * PRICE, "claim": "claim of again"}),
    ("started", "settled", {"step": "round-1", "attempt": 2, "amount": PRICE, "mechanism": MECHANISM}),
    ("committed", "settled", {"step": "round-1", "attempt": 2, "sha256": DIGESTS[b"one"], "size": 3}),
    ("released", "again", {"returned": 2 * PRICE}),
    ("settled", "settled", {"spent": 2 * PRICE, "returned": 3 * PRICE, "release": "release-1"}),
    ("reserved", "open", {"amount": 2 * PRICE, "claim": "claim of open"}),
    ("started", "open", {"step": "round-1", "attempt": 1, "amount": PRICE, "mechanism": MECHANISM}),
    ("reserved", "last", {"amount": PRICE, "claim": "claim of last"}),
    ("started", "last", {"step": "round-1", "attempt": 1, "amount": PRICE, "mechanism": MECHANISM}),
    ("committed", "last", {"step": "round-1", "attempt": 1, "sha256": DIGESTS[b"two"], "size": 3}),
)
RUNS = (
    ("settled", 5, 2, "settled", "version-1", 2, "release-1"),
    ("again", 2, 0, "released", None, 5, None),
    ("open", 2, 1, "open", None, 10, None),
    ("last", 1, 1, "open", None, 12, None),
)
OPERATIONS = (
    ("settled", 1, 4, None, None),
    ("settled", 2, 6, 7, b"one"),
    ("open", 1, 11, None, None),
    ("last", 1, 13, 14, b"two"),
)


def write_version_1(path: Path) -> None:
    """Make the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1; PRAGMA journal_mode = WAL;"
        connection.executescript(f"{TABLES} {marks}")
        connection.execute(
            "INSERT INTO account VALUES ('clinic', :currency, :cap, :epsilon, :delta, :unit, :neighbours, :spent, :held, :at)",
            {**TERMS, "spent": 4 * PRICE, "held": PRICE, "at": AT.format(1)},
        )
        previous = GENESIS
        for seq, (kind, run, body) in enumerate(EVENTS, start=1):
            at, text = AT.format(seq), canonical(body)
            event = link(previous, seq=seq, at=at, kind=kind, account="clinic", run=run, body=text)
            connection.execute(
                "INSERT INTO event VALUES (?, ?, ?, 'clinic', ?, ?, ?, ?)",
                (seq, at, kind, run, text, previous, event.hash),
            )
            previous = event.hash
        for run, reserved, spent, state, version, first, release in RUNS:
            connection.execute(
                "INSERT INTO run VALUES (NULL, ?, 'clinic', ?, ?, ?, ?, ?, ?, ?)",
                (run, reserved * PRICE, spent * PRICE, state, f"claim of {run}", version, AT.format(first), release),
            )
        for run, attempt, started, committed, output in OPERATIONS:
            state, digest = ("started", None) if output is None else ("committed", DIGESTS[output])
            connection.execute(
                "INSERT INTO operation VALUES (?, 'round-1', ?, ?, ?, ?, ?, ?, ?, ?)",
                (run, attempt, state, PRICE, canonical(MECHANISM), started, committed, digest, output),
            )
