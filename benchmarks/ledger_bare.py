"""The least that any durable, shared charge has to do, with the same driver and settings: the limit that a ledger is held against.

One transaction that takes the lock, looks at a balance, changes it, and adds one row of the size of what the ledger adds under a key of its
own, without which a retry would be charged twice.
"""

import sqlite3
from itertools import count
from typing import Protocol

import psycopg

from benchmarks.ledger_places import Place


class BareCharge(Protocol):
    """A table of balances and a table of charges, and nothing else."""

    def charge(self) -> None:
        """Take an amount of 1 from a balance, durably."""

    def close(self) -> None:
        """Let go of the database."""


class BareSqlite:
    """In a file of its own: BEGIN IMMEDIATE, SELECT, UPDATE, INSERT, COMMIT."""

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
        """Take an amount of 1 from a balance, durably."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute("SELECT used FROM balance WHERE name = 'all'").fetchall()
        execute("UPDATE balance SET used = used + 1 WHERE name = 'all'")
        execute("INSERT INTO charge VALUES (:key, :body)", {"key": next(self._keys), "body": self._body})
        execute("COMMIT")

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()


class BarePostgres:
    """In a database of its own: BEGIN, SELECT FOR UPDATE, UPDATE, INSERT, COMMIT."""

    def __init__(self, place: Place, *, row_bytes: int) -> None:
        self._body, self._keys = "x" * row_bytes, (f"run/step-{number}" for number in count())
        self._connection = psycopg.connect(place.url, autocommit=True, options="-c synchronous_commit=on")
        execute = self._connection.execute
        execute("CREATE TABLE balance (name TEXT PRIMARY KEY, used BIGINT NOT NULL) WITH (fillfactor = 10)")
        execute("CREATE TABLE charge (key TEXT PRIMARY KEY, body TEXT NOT NULL)")
        execute("INSERT INTO balance VALUES ('all', 0)")

    def charge(self) -> None:
        """Take an amount of 1 from a balance, durably."""
        execute = self._connection.execute
        execute("BEGIN")
        execute("SELECT used FROM balance WHERE name = 'all' FOR UPDATE").fetchall()
        execute("UPDATE balance SET used = used + 1 WHERE name = 'all'")
        execute("INSERT INTO charge VALUES (%(key)s, %(body)s)", {"key": next(self._keys), "body": self._body})
        execute("COMMIT")

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()


def bare(place: Place, *, row_bytes: int) -> BareCharge:
    """Return the bare charge of a store, at a place of its own."""
    kind = BareSqlite if place.url.startswith("sqlite") else BarePostgres
    return kind(place, row_bytes=row_bytes)
