"""A ledger file as the first version of the tables had it, and a writer of what that version wrote.

Such files are out there, so nothing in here ever changes.
"""

import json
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

APPLICATION_ID = 0x6470666C
AT = "2026-01-02T03:04:05.000006+00:00"

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


class FirstVersion:
    """Writes into a file of the first version: each method is one change, with its event."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def open_account(self, name: str, *, cap: int, epsilon: float, delta: float) -> None:
        currency = "zcdp" if delta else "pure"
        row = (name, currency, cap, epsilon, delta, "row", "add-remove", 0, 0, AT)
        self._execute("INSERT INTO account VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        terms = {"cap": cap, "currency": currency, "delta": delta, "epsilon": epsilon}
        self._record("account-opened", name, None, terms | {"neighbours": "add-remove", "unit": "row"})

    def reserve(self, run: str, *, account: str, amount: int) -> None:
        body = {"amount": amount, "claim": "claim"}
        self._record("reserved", account, run, body)
        again = self._execute("UPDATE run SET state = 'open', data_version = NULL WHERE id = ?", (run,)).rowcount
        if not again:
            row = (run, account, amount, 0, "open", "claim", None, AT, None)
            self._execute("INSERT INTO run VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._execute("UPDATE account SET reserved = reserved + ? WHERE name = ?", (amount, account))

    def record_data_version(self, run: str, version: str) -> None:
        self._execute("UPDATE run SET data_version = ? WHERE id = ?", (version, run))
        self._record("data-version", self._account(run), run, {"version": version})

    def start(self, run: str, *, step: str, attempt: int, amount: int) -> None:
        mechanism = {"name": "laplace", "scale": 8}
        body = {"step": step, "attempt": attempt, "amount": amount, "mechanism": mechanism}
        seq = self._record("started", self._account(run), run, body)
        row = (run, step, attempt, "started", amount, canonical(mechanism), seq, None, None, None)
        self._execute("INSERT INTO operation VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._execute("UPDATE run SET spent = spent + ? WHERE id = ?", (amount, run))
        self._execute(
            "UPDATE account SET spent = spent + ?, reserved = reserved - ? WHERE name = ?",
            (amount, amount, self._account(run)),
        )

    def commit(self, run: str, *, step: str, attempt: int, output: bytes) -> None:
        digest = sha256(output).hexdigest()
        body = {"step": step, "attempt": attempt, "sha256": digest, "size": len(output)}
        seq = self._record("committed", self._account(run), run, body)
        self._execute(
            "UPDATE operation SET state = 'committed', committed = ?, sha256 = ?, output = ?"
            " WHERE run = ? AND step = ? AND attempt = ?",
            (seq, digest, output, run, step, attempt),
        )

    def settle(self, run: str, *, release: str | None) -> None:
        account, reserved, spent = self._execute(
            "SELECT account, reserved, spent FROM run WHERE id = ?", (run,)
        ).fetchone()
        self._end(run, "settled", account=account, returned=reserved - spent)
        self._execute("UPDATE run SET release = ? WHERE id = ?", (release, run))
        self._record("settled", account, run, {"spent": spent, "returned": reserved - spent, "release": release})

    def release_run(self, run: str) -> None:
        account, reserved = self._execute("SELECT account, reserved FROM run WHERE id = ?", (run,)).fetchone()
        self._end(run, "released", account=account, returned=reserved)
        self._record("released", account, run, {"returned": reserved})

    def _end(self, run: str, state: str, *, account: str, returned: int) -> None:
        self._execute("UPDATE account SET reserved = reserved - ? WHERE name = ?", (returned, account))
        self._execute("UPDATE run SET state = ? WHERE id = ?", (state, run))

    def _account(self, run: str) -> str:
        (account,) = self._execute("SELECT account FROM run WHERE id = ?", (run,)).fetchone()
        return str(account)

    def _record(self, kind: str, account: str, run: str | None, body: dict[str, Any]) -> int:
        last = self._execute("SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1").fetchone()
        seq, previous = (last[0] + 1, last[1]) if last else (1, "0" * 64)
        text = canonical(body)
        content = canonical([seq, AT, kind, account, run, text])
        digest = sha256(bytes.fromhex(previous) + content.encode("ascii")).hexdigest()
        row = (seq, AT, kind, account, run, text, previous, digest)
        self._execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return seq


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def write_first_version(path: Path) -> None:
    """Make a file of the first version, with a run in every state that it knew; 'resumed' was left in the middle."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN; {TABLES} COMMIT;")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN")
        old = FirstVersion(connection)
        old.open_account("clinic", cap=1_000, epsilon=1.0, delta=0.0)
        old.open_account("births", cap=500, epsilon=0.5, delta=1e-9)
        old.reserve("settled", account="clinic", amount=300)
        old.record_data_version("settled", "v1")
        old.start("settled", step="select", attempt=1, amount=70)
        old.start("settled", step="measure", attempt=1, amount=20)
        old.start("settled", step="measure", attempt=2, amount=10)
        old.commit("settled", step="measure", attempt=2, output=b"noisy")
        old.settle("settled", release="clinic/release-1")
        old.reserve("unused", account="births", amount=500)
        old.release_run("unused")
        old.reserve("unused", account="births", amount=500)
        old.release_run("unused")
        old.reserve("resumed", account="clinic", amount=200)
        old.record_data_version("resumed", "v2")
        old.start("resumed", step="select", attempt=1, amount=40)
        old.commit("resumed", step="select", attempt=1, output=bytes(2 << 20))
        old.start("resumed", step="measure", attempt=1, amount=50)
        old.reserve("waiting", account="births", amount=100)
        connection.execute("COMMIT")
