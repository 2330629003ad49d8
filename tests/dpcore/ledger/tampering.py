"""The story's ledger for whoever changes its rows past the protocol: the tables' own rules are off, and every change is undone."""

import math
import re
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from tests.campaign import often
from tests.dpcore.ledger.story import tell
from tests.postgres import PostgresServer

KEYS = {
    "account": ("name",),
    "block": ("account", "name"),
    "allowance": ("account", "kind", "name"),
    "event": ("seq",),
    "run": ("number",),
    "share": ("run", "analyst"),
    "operation": ("charged",),
}
Row = Mapping[str, Any]


class Books(ABC):
    """A ledger at `url`, and what a release of it says at `manifest`."""

    url: str
    manifest: Path

    @abstractmethod
    def sql(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement, past the protocol."""

    @abstractmethod
    def restore(self) -> None:
        """Undo all changes."""

    @abstractmethod
    def columns(self, table: str) -> dict[str, str]:
        """Return the table's columns with their types, in capitals."""

    def rows(self, table: str) -> list[Row]:
        """Return a table's rows in the order of their keys."""
        names = list(self.columns(table))
        found = self.sql(f"SELECT {', '.join(names)} FROM {table} ORDER BY {', '.join(KEYS[table])}")  # noqa: S608  our own names
        return [dict(zip(names, row, strict=True)) for row in found]

    def some_rows(self, table: str) -> list[Row]:
        """Return as many of a table's rows as there is time to try."""
        rows = self.rows(table)
        return rows[:: 1 + len(rows) // often(3, campaign=100)]

    def change(self, table: str, row: Row, **values: Any) -> None:
        """Write some columns of one row."""
        assigned = ", ".join(f"{name} = :{name}" for name in values)
        self.sql(f"UPDATE {table} SET {assigned} WHERE {self._this(table)}", **values, **_key(table, row))  # noqa: S608  our own names

    def drop(self, table: str, row: Row) -> None:
        """Delete one row."""
        self.sql(f"DELETE FROM {table} WHERE {self._this(table)}", **_key(table, row))  # noqa: S608  our own names

    def add(self, table: str, row: Row) -> None:
        """Insert a row."""
        values = ", ".join(f":{name}" for name in row)
        self.sql(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})", **row)  # noqa: S608  our own names

    @contextmanager
    def tampered(self) -> Iterator[None]:
        """Undo whatever is done inside."""
        try:
            yield
        finally:
            self.restore()

    def _this(self, table: str) -> str:
        return " AND ".join(f"{name} = :this_{name}" for name in KEYS[table])


class SqliteBooks(Books):
    """A file whose tables accept anything of the right type."""

    def __init__(self, folder: Path) -> None:
        self.path, self.manifest = folder / "ledger.sqlite", folder / "release" / "manifest.json"
        self.url = f"sqlite:///{self.path}"
        self._whole = folder / "whole.sqlite"
        tell(self.url, self.manifest)
        (self.output,) = folder.glob("ledger.sqlite.outputs/*")
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
            connection.execute("PRAGMA writable_schema = ON")
            for kind in ("TEXT", "INTEGER", "REAL"):
                connection.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?)", (f"{kind} NOT NULL", kind))
            connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'CHECK (', 'CHECK (TRUE OR ')")
            connection.execute("PRAGMA writable_schema = RESET")
            for (name,) in triggers:
                connection.execute(f"DROP TRIGGER {name}")
                connection.execute(f"CREATE TRIGGER {name} BEFORE DELETE ON run WHEN FALSE BEGIN SELECT 1; END")
        shutil.copyfile(self.path, self._whole)

    def sql(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            return connection.execute(statement, parameters).fetchall()

    def restore(self) -> None:
        shutil.copyfile(self._whole, self.path)

    def columns(self, table: str) -> dict[str, str]:
        return {name: kind for _, name, kind, *_ in self.sql(f"PRAGMA table_info({table})")}


class PostgresBooks(Books):
    """A database whose tables accept anything of the right type."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.url, self.manifest = server.new_database(), folder / "release" / "manifest.json"
        tell(self.url, self.manifest)
        settings = (
            "-c search_path=dpflow -c session_replication_role=replica"  # no trigger and no reference is looked at
        )
        self._connection = psycopg.connect(self.url, autocommit=True, options=settings)
        for table, name in self.sql(
            "SELECT CAST(CAST(conrelid AS regclass) AS text), conname FROM pg_constraint WHERE contype IN ('c', 'n')"
            " AND connamespace = CAST('dpflow' AS regnamespace)"
        ):
            with suppress(psycopg.errors.InvalidTableDefinition):  # a key is never null
                self.sql(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        self.sql("CREATE SCHEMA whole")
        for table in KEYS:
            self.sql(f"CREATE TABLE whole.{table} AS TABLE {table}")

    def close(self) -> None:
        self._connection.close()

    def sql(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        result = self._connection.execute(re.sub(r":(\w+)", r"%(\1)s", statement), parameters)
        return result.fetchall() if result.description else []

    def restore(self) -> None:
        with self._connection.transaction():
            for table in KEYS:
                self.sql(f"DELETE FROM {table}")  # noqa: S608  our own names
                self.sql(f"INSERT INTO {table} TABLE whole.{table}")

    def columns(self, table: str) -> dict[str, str]:
        found = self.sql(
            "SELECT column_name, upper(data_type) FROM information_schema.columns"
            " WHERE table_schema = 'dpflow' AND table_name = :table ORDER BY ordinal_position",
            table=table,
        )
        return {
            name: kind for name, kind in found if name not in {"moved", "across_moved"}
        }  # what its own rules remember


def _key(table: str, row: Row) -> dict[str, Any]:
    return {f"this_{name}": row[name] for name in KEYS[table]}


def others(value: Any, kind: str) -> list[Any]:
    """Return values that differ from this one as little as possible, and the absence of any."""
    if value is None:
        some = {
            "TEXT": "x",
            "INTEGER": 1,
            "BIGINT": 1,
            "REAL": 1.0,
            "DOUBLE PRECISION": 1.0,
            "BLOB": b"x",
            "BYTEA": b"x",
        }
        return [some[kind]]
    if isinstance(value, str):
        changed = [value + "x", value[:-1], chr(ord(value[0]) ^ 1) + value[1:] if value else " ", None]
    elif isinstance(value, bytes):
        changed = [value + b"x", value[:-1], bytes([value[0] ^ 128]) + value[1:] if value else b" ", None]
    elif isinstance(value, float):
        changed = [math.nextafter(value, 2.0), math.nextafter(value, -1.0), value + 1, None]
    else:
        changed = [value + 1, value - 1, value + 2**32, None]
    return [other for other in changed if other != value]
