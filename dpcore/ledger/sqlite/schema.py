"""The SQLite schema of a ledger.

Constraints and triggers repeat the protocol's rules where a schema can express them, so that the database itself refuses to
overspend. The tables that every charge writes have as few indexes and foreign keys as possible: each index costs a page of the
journal, each foreign key a lookup in another table.
"""

import re

APPLICATION_ID = 0x6470666C
"""Identifies a dpflow file ("dpfl") in the header."""

TABLES = """
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    currency TEXT NOT NULL CHECK (currency IN ('pure', 'zcdp', 'gdp')),
    cap INTEGER NOT NULL CHECK (cap > 0),
    epsilon REAL NOT NULL CHECK (epsilon > 0),
    delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
    unit TEXT NOT NULL,
    neighbours TEXT NOT NULL CHECK (neighbours IN ('add-remove', 'replace-one')),
    description TEXT NOT NULL,
    blocks_by TEXT,
    state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
    opened_at TEXT NOT NULL,
    across INTEGER CHECK (across > 0),
    across_epsilon REAL CHECK (across_epsilon > 0),
    across_used INTEGER NOT NULL,
    CHECK ((across IS NULL) = (across_epsilon IS NULL)),
    CHECK (across IS NULL OR blocks_by IS NOT NULL),
    CHECK (across_used >= 0 AND across_used <= coalesce(across, 0))
) STRICT;

CREATE TABLE block (
    account TEXT NOT NULL REFERENCES account (name),
    name TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'sealed')),
    cap INTEGER NOT NULL CHECK (cap > 0),
    used INTEGER NOT NULL,
    PRIMARY KEY (account, name),
    CHECK (used >= 0 AND used <= cap),
    CHECK (state = 'sealed' OR used = 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE allowance (
    account TEXT NOT NULL REFERENCES account (name),
    kind TEXT NOT NULL CHECK (kind IN ('analyst', 'purpose')),
    name TEXT NOT NULL,
    cap INTEGER NOT NULL CHECK (cap > 0),
    epsilon REAL NOT NULL CHECK (epsilon > 0),
    used INTEGER NOT NULL,
    PRIMARY KEY (account, kind, name),
    CHECK (used >= 0 AND used <= cap)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    seq INTEGER PRIMARY KEY CHECK (seq > 0),
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
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
    spent INTEGER NOT NULL CHECK (spent >= 0 AND spent <= reserved),
    state TEXT NOT NULL CHECK (state IN ('open', 'settled', 'refunded')),
    claim TEXT NOT NULL,
    analyst TEXT,
    purpose TEXT,
    data_version TEXT,
    opened_at TEXT NOT NULL,
    release TEXT,
    fence INTEGER NOT NULL CHECK (fence >= 0),
    holder TEXT,
    lease_seconds INTEGER NOT NULL CHECK (lease_seconds >= 0),
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    CHECK (state <> 'refunded' OR spent = 0)
) STRICT;
CREATE INDEX run_by_account ON run (account, number);
CREATE INDEX run_open ON run (account) WHERE state = 'open';

CREATE TABLE share (
    run TEXT NOT NULL,
    analyst TEXT NOT NULL,
    cap INTEGER NOT NULL CHECK (cap > 0),
    token TEXT CHECK (length(token) = 64),
    spent INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (run, analyst),
    CHECK (spent >= 0 AND spent <= cap)
) STRICT, WITHOUT ROWID;

CREATE TABLE operation (
    charged INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    step TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    state TEXT NOT NULL CHECK (state IN ('charged', 'committed')),
    amount INTEGER NOT NULL CHECK (amount > 0),
    mechanism TEXT NOT NULL,
    fence INTEGER NOT NULL CHECK (fence >= 0),
    analyst TEXT,
    committed INTEGER,
    sha256 TEXT CHECK (length(sha256) = 64),
    output BLOB,
    UNIQUE (run, step, attempt),
    CHECK ((state = 'committed') = (committed IS NOT NULL)),
    CHECK ((state = 'committed') = (sha256 IS NOT NULL)),
    CHECK (state = 'committed' OR output IS NULL)
) STRICT;
"""

RULES = """
CREATE TRIGGER event_in_order BEFORE INSERT ON event
WHEN NEW.previous IS NOT coalesce(
    (SELECT hash FROM event WHERE seq = NEW.seq - 1), CASE NEW.seq WHEN 1 THEN hex(zeroblob(32)) END)
BEGIN SELECT raise(ABORT, 'an event follows the one before it'); END;
CREATE TRIGGER event_kept_as_written BEFORE UPDATE ON event
BEGIN SELECT raise(ABORT, 'events are never changed'); END;
CREATE TRIGGER event_kept BEFORE DELETE ON event
BEGIN SELECT raise(ABORT, 'events are never deleted'); END;
CREATE TRIGGER account_kept BEFORE DELETE ON account
BEGIN SELECT raise(ABORT, 'accounts are never deleted'); END;
CREATE TRIGGER account_only_raised BEFORE UPDATE ON account
WHEN NEW.cap < OLD.cap OR NEW.across < OLD.across OR (NEW.across IS NULL) <> (OLD.across IS NULL)
BEGIN SELECT raise(ABORT, 'a cap is only raised'); END;
CREATE TRIGGER block_kept BEFORE DELETE ON block
BEGIN SELECT raise(ABORT, 'blocks are never deleted'); END;
CREATE TRIGGER block_kept_sealed BEFORE UPDATE ON block WHEN OLD.state = 'sealed' AND NEW.state <> 'sealed'
BEGIN SELECT raise(ABORT, 'a sealed block stays sealed'); END;
CREATE TRIGGER block_has_the_cap BEFORE INSERT ON block
WHEN NEW.cap IS NOT (SELECT cap FROM account WHERE name = NEW.account)
BEGIN SELECT raise(ABORT, 'a block has the cap of its account'); END;
CREATE TRIGGER block_gets_the_cap BEFORE UPDATE OF cap ON block
WHEN NEW.cap IS NOT (SELECT cap FROM account WHERE name = NEW.account)
BEGIN SELECT raise(ABORT, 'a block has the cap of its account'); END;
CREATE TRIGGER allowance_kept BEFORE DELETE ON allowance
BEGIN SELECT raise(ABORT, 'allowances are never deleted'); END;
CREATE TRIGGER run_kept BEFORE DELETE ON run
BEGIN SELECT raise(ABORT, 'runs are never deleted'); END;
CREATE TRIGGER run_stays_spent BEFORE UPDATE ON run
WHEN NEW.spent < OLD.spent OR NEW.fence < OLD.fence OR (OLD.state = 'settled' AND NEW.state <> 'settled')
BEGIN SELECT raise(ABORT, 'what a run has spent stays spent'); END;
CREATE TRIGGER share_kept BEFORE DELETE ON share
BEGIN SELECT raise(ABORT, 'shares are never deleted'); END;
CREATE TRIGGER share_stays_spent BEFORE UPDATE ON share WHEN NEW.spent < OLD.spent
BEGIN SELECT raise(ABORT, 'what an analyst has spent stays spent'); END;
CREATE TRIGGER operation_kept_as_committed BEFORE UPDATE ON operation
WHEN EXISTS (SELECT 1 FROM operation WHERE run = OLD.run AND step = OLD.step AND state = 'committed')
BEGIN SELECT raise(ABORT, 'a step is committed once, and stays as it was'); END;
CREATE TRIGGER operation_kept BEFORE DELETE ON operation
BEGIN SELECT raise(ABORT, 'operations are never deleted'); END;
"""

NAMES = set(re.findall(r"CREATE (?:TABLE|INDEX|TRIGGER) (\w+)", TABLES + RULES))
"""The tables, indexes and triggers of a complete ledger."""
