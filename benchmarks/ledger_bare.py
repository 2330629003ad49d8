"""The bare charge: the least that any durable, shared charge must do, with the same driver and settings. It is the baseline for a ledger.

One transaction takes the lock, reads a balance, changes it, and adds one row of the size that the ledger adds, under a unique key. Without
the key a retry would be charged twice.
"""

import sqlite3
from itertools import count
from typing import Protocol

import psycopg

from benchmarks.ledger_places import Place


class BareCharge(Protocol):
    """A table of balances and a table of charges, and nothing else."""

    def charge(self) -> None:
        """Charge an amount of 1 to a balance, durably."""

    def close(self) -> None:
        """Close the connection."""


class BareSqlite:
    """The bare charge in its own SQLite file: BEGIN IMMEDIATE, SELECT, UPDATE, INSERT, COMMIT."""

    def __init__(self, place: Place, *, row_bytes: int) -> None:
        self._body, self._keys = "x" * row_bytes, (f"run/step-{number}" for number in count())
        self._connection = sqlite3.connect(place.folder / "bare.sqlite", isolation_level=None)
        execute = self._connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("CREATE TABLE balance (name TEXT PRIMARY KEY, used INTEGER NOT NULL) STRICT")
        execute("CREATE TABLE charge (key TEXT NOT NULL UNIQUE, body TEXT NOT NULL) STRICT")
        execute("INSERT INTO balance VALUES ('all', 0)")

    def charge(self) -> None:
        """Charge an amount of 1 to a balance, durably."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute("SELECT used FROM balance WHERE name = 'all'").fetchall()
        execute("UPDATE balance SET used = used + 1 WHERE name = 'all'")
        execute("INSERT INTO charge VALUES (:key, :body)", {"key": next(self._keys), "body": self._body})
        execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class BarePostgres:
    """The bare charge in its own PostgreSQL database: BEGIN, SELECT FOR UPDATE, UPDATE, INSERT, COMMIT."""

    def __init__(self, place: Place, *, row_bytes: int) -> None:
        self._body, self._keys = "x" * row_bytes, (f"run/step-{number}" for number in count())
        self._connection = psycopg.connect(place.url, autocommit=True, options="-c synchronous_commit=on")
        execute = self._connection.execute
        execute("CREATE TABLE balance (name TEXT PRIMARY KEY, used BIGINT NOT NULL) WITH (fillfactor = 10)")
        execute("CREATE TABLE charge (key TEXT PRIMARY KEY, body TEXT NOT NULL)")
        execute("INSERT INTO balance VALUES ('all', 0)")

    def charge(self) -> None:
        """Charge an amount of 1 to a balance, durably."""
        execute = self._connection.execute
        execute("BEGIN")
        execute("SELECT used FROM balance WHERE name = 'all' FOR UPDATE").fetchall()
        execute("UPDATE balance SET used = used + 1 WHERE name = 'all'")
        execute("INSERT INTO charge VALUES (%(key)s, %(body)s)", {"key": next(self._keys), "body": self._body})
        execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def bare(place: Place, *, row_bytes: int) -> BareCharge:
    """Return the bare charge of a store, at its own place."""
    kind = BareSqlite if place.url.startswith("sqlite") else BarePostgres
    return kind(place, row_bytes=row_bytes)
