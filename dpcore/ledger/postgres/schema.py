"""The PostgreSQL schema of a ledger, and its creation.

As in SQLite, constraints repeat the protocol's rules where a table can express them; `triggers` holds those that need a trigger.
Where the three roles of `deployments/postgres-roles.sql` exist, the tables belong to the steward, and each other role gets only the
privileges it needs. `moved` and `across_moved` are the number of the event that last changed the used amount. Triggers, not foreign
keys, connect the rows that every charge writes: a trigger compares more, and does not lock the referenced row. Every write transaction
first locks the table `writer`, which has no other purpose.
"""

from contextlib import suppress
from typing import Any

import psycopg

from dpcore.errors import LedgerDamaged, NoLedger
from dpcore.ledger.postgres.triggers import GRANTS, RULES
from dpcore.ledger.store import VERSION, require_version

SCHEMA = "dpflow"

TABLES = f"""
CREATE TABLE version (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL
);
INSERT INTO version VALUES (1, {VERSION});

CREATE TABLE account (
    name TEXT COLLATE "C" PRIMARY KEY,
    currency TEXT NOT NULL CHECK (currency IN ('pure', 'zcdp', 'gdp')),
    cap BIGINT NOT NULL CHECK (cap > 0),
    epsilon DOUBLE PRECISION NOT NULL CHECK (epsilon > 0),
    delta DOUBLE PRECISION NOT NULL CHECK (delta >= 0 AND delta < 1),
    unit TEXT NOT NULL,
    neighbours TEXT NOT NULL CHECK (neighbours IN ('add-remove', 'replace-one')),
    description TEXT NOT NULL,
    blocks_by TEXT,
    state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
    opened_at TEXT NOT NULL,
    across BIGINT CHECK (across > 0),
    across_epsilon DOUBLE PRECISION CHECK (across_epsilon > 0),
    across_used BIGINT NOT NULL DEFAULT 0,
    across_moved BIGINT NOT NULL DEFAULT 0,
    CHECK ((across IS NULL) = (across_epsilon IS NULL)),
    CHECK (across IS NULL OR blocks_by IS NOT NULL),
    CONSTRAINT account_within_across CHECK (across_used >= 0 AND across_used <= coalesce(across, 0))
);

CREATE TABLE block (
    account TEXT COLLATE "C" NOT NULL REFERENCES account (name),
    name TEXT COLLATE "C" NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'sealed')),
    cap BIGINT NOT NULL CHECK (cap > 0),
    used BIGINT NOT NULL,
    moved BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (account, name),
    CONSTRAINT block_within_cap CHECK (used >= 0 AND used <= cap),
    CHECK (state = 'sealed' OR used = 0)
) WITH (fillfactor = 50);

CREATE TABLE allowance (
    account TEXT COLLATE "C" NOT NULL REFERENCES account (name),
    kind TEXT NOT NULL CHECK (kind IN ('analyst', 'purpose')),
    name TEXT COLLATE "C" NOT NULL,
    cap BIGINT NOT NULL CHECK (cap > 0),
    epsilon DOUBLE PRECISION NOT NULL CHECK (epsilon > 0),
    used BIGINT NOT NULL,
    moved BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (account, kind, name),
    CONSTRAINT allowance_within_cap CHECK (used >= 0 AND used <= cap)
);

CREATE TABLE event (
    seq BIGINT PRIMARY KEY CHECK (seq > 0),
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    run TEXT,
    body TEXT NOT NULL,
    previous TEXT NOT NULL CHECK (length(previous) = 64),
    hash TEXT NOT NULL CHECK (length(hash) = 64)
);

CREATE TABLE writer ();

CREATE TABLE run (
    number BIGINT PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    account TEXT COLLATE "C" NOT NULL REFERENCES account (name),
    reserved BIGINT NOT NULL CHECK (reserved > 0),
    spent BIGINT NOT NULL CHECK (spent >= 0 AND spent <= reserved),
    state TEXT NOT NULL CHECK (state IN ('open', 'settled', 'refunded')),
    claim TEXT NOT NULL,
    analyst TEXT,
    purpose TEXT,
    data_version TEXT,
    opened_at TEXT NOT NULL,
    release TEXT,
    fence BIGINT NOT NULL CHECK (fence >= 0),
    holder TEXT,
    lease_seconds BIGINT NOT NULL CHECK (lease_seconds >= 0),
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    CHECK (state <> 'refunded' OR spent = 0)
) WITH (fillfactor = 50);
CREATE INDEX run_by_account ON run (account, number);
CREATE INDEX run_open ON run (account) WHERE state = 'open';

CREATE TABLE share (
    run TEXT COLLATE "C" NOT NULL,
    analyst TEXT COLLATE "C" NOT NULL,
    cap BIGINT NOT NULL CHECK (cap > 0),
    token TEXT CHECK (length(token) = 64),
    spent BIGINT NOT NULL,
    last BIGINT NOT NULL,
    PRIMARY KEY (run, analyst),
    CONSTRAINT share_within_cap CHECK (spent >= 0 AND spent <= cap)
);

CREATE TABLE operation (
    charged BIGINT PRIMARY KEY,
    run TEXT COLLATE "C" NOT NULL,
    step TEXT COLLATE "C" NOT NULL,
    attempt BIGINT NOT NULL CHECK (attempt > 0),
    state TEXT NOT NULL CHECK (state IN ('charged', 'committed')),
    amount BIGINT NOT NULL CHECK (amount > 0),
    mechanism TEXT NOT NULL,
    fence BIGINT NOT NULL CHECK (fence >= 0),
    analyst TEXT,
    committed BIGINT,
    sha256 TEXT CHECK (length(sha256) = 64),
    output BYTEA,
    UNIQUE (run, step, attempt),
    CHECK ((state = 'committed') = (committed IS NOT NULL)),
    CHECK ((state = 'committed') = (sha256 IS NOT NULL)),
    CHECK ((state = 'committed') = (output IS NOT NULL))
);
CREATE UNIQUE INDEX operation_once ON operation (run, step) WHERE state = 'committed';
"""

_AS_STEWARD = """
DO $$
DECLARE
    steward BOOLEAN := to_regrole('dpflow_steward') IS NOT NULL;
BEGIN
    IF to_regnamespace('dpflow') IS NULL THEN
        CREATE SCHEMA dpflow;
        IF steward THEN ALTER SCHEMA dpflow OWNER TO dpflow_steward; END IF;
    END IF;
    IF steward THEN SET LOCAL ROLE dpflow_steward; END IF;
END $$;
"""
_COUNT_TABLES = "SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
_CREATION_LOCK = "SELECT pg_advisory_xact_lock(1684825708)"


def require_ledger(connection: psycopg.Connection[Any], *, place: str, create: bool) -> None:
    """Create the ledger if there is none and `create` is true. Raise if there is none, or it has another version."""
    if not _exists(connection):
        if not create:
            raise NoLedger(f"no ledger at {place}")
        _create(connection)
    row = connection.execute(f"SELECT number FROM {SCHEMA}.version").fetchone()
    if row is None:
        raise LedgerDamaged("the ledger has lost its version number; restore it from a backup")
    require_version(int(row[0]), place=place)


def _create(connection: psycopg.Connection[Any]) -> None:
    """Create the ledger in one transaction. Another process may have done so meanwhile."""
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")  # to see what another process commits meanwhile
    try:
        connection.execute(_CREATION_LOCK)
        if not _exists(connection):
            connection.execute(f"{_AS_STEWARD} SET LOCAL search_path TO {SCHEMA}; {TABLES} {RULES} {GRANTS}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(psycopg.Error):  # the server rolls back a broken connection by itself
            connection.execute("ROLLBACK")
        raise


def _exists(connection: psycopg.Connection[Any]) -> bool:
    # to_regclass would not do: after waiting for the lock it may still return a cached miss.
    query = f"{_COUNT_TABLES} WHERE nspname = '{SCHEMA}' AND relname = 'version'"
    return connection.execute(query).fetchone() != (0,)
