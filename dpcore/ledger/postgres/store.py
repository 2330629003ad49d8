"""The ledger in a PostgreSQL database, shared by any number of machines."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from dpcore.errors import LedgerError, UsageError
from dpcore.ledger.postgres.catalogue import rules_changed
from dpcore.ledger.postgres.errors import translated
from dpcore.ledger.postgres.schema import SCHEMA, require_ledger
from dpcore.ledger.store import PATIENCE_SECONDS, TOO_LARGE, Store

LARGEST_OUTPUT = 1 << 28
"""Bytes. PostgreSQL limits a value to one gigabyte, and makes several copies of it on the way."""

_DEFAULTS = {
    "lock_timeout": f"{PATIENCE_SECONDS}s",
    "idle_in_transaction_session_timeout": "60s",  # a machine that froze while holding the lock does not block the others
}
"""Settings that the address may override with its own `options`."""
_FIXED = {
    "search_path": SCHEMA,
    "synchronous_commit": "on",  # a committed transaction survives a power failure, whatever the server's default
    # Fix the format of values and definitions, whatever the database, the role or the environment sets.
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "transform_null_equals": "off",
    "array_nulls": "on",
}
_FIX = "SELECT " + ", ".join(f"set_config('{name}', '{value}', FALSE)" for name, value in _FIXED.items())
"""Set by a statement after connecting, because PGDATESTYLE and PGTZ in the environment override an address's options."""


class PostgresStore(Store):
    """A connection to a database with a ledger in its schema `dpflow`.

    Every write transaction first takes one global lock. So writers are serialised, no row changes between a read and the write
    that depends on it, and deadlocks between lock orders cannot occur. A broken connection is replaced at the next transaction.

    SQLAlchemy parses the address and connects. Statements go directly to a cursor of its driver, which halves their time.
    """

    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    begin_writing = (
        "BEGIN ISOLATION LEVEL READ COMMITTED; LOCK TABLE writer IN EXCLUSIVE MODE;"
        " SELECT current_setting('session_replication_role')"
    )
    clock = "clock_timestamp()"
    is_named = "name = ANY(:names)"
    output_digest = "encode(sha256(output), 'hex')"

    def __init__(self, url: str, *, create: bool) -> None:
        """Connect to the database, and create the ledger in it first if there is none and `create` is true."""
        self._engine, place = _engine(url)
        super().__init__(place)
        self._open: Connection | None = None
        self._cursor: psycopg.Cursor[Any] | None = None
        self._closed = False
        try:
            with self._translated():
                require_ledger(self._driver, place=place, create=create)
        except BaseException:
            self.close()
            raise

    @property
    def _driver(self) -> psycopg.Connection[Any]:
        if self._closed:
            raise LedgerError(f"the ledger at {self.place} is closed; open it again where it is used")
        if self._open is None:
            self._open = self._connected()
        return _driver_of(self._open)

    def _connected(self) -> Connection:
        """Return a new connection with the fixed settings."""
        connection = self._engine.connect()
        try:
            _driver_of(connection).execute(_FIX)
        except BaseException:
            connection.close()
            raise
        return connection

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Run one statement and return its rows."""
        if self._cursor is None:
            self._cursor = self._driver.cursor()
        # The server accepts several statements in one string, but cannot prepare them.
        prepare = False if ";" in statement else None
        self._cursor.execute(_in_driver_style(statement), parameters, prepare=prepare)
        result = self._cursor.pgresult  # cheaper than `description`, which builds an object for each column
        return self._cursor.fetchall() if result is not None and result.nfields else ()

    def names(self, names: Collection[str]) -> object:
        """Return the names as an array."""
        return list(names)

    def execute_together(self, statements: Sequence[str], parameters: Mapping[str, Any]) -> None:
        """Run several statements as one, which saves round trips. The triggers then see the effect of all of them."""
        *first, last = statements
        parts = ", ".join(f"part_{number} AS ({statement})" for number, statement in enumerate(first))
        self.execute(f"WITH {parts} {last}", parameters)

    def stream(self, statement: str) -> Iterator[Any]:
        """Iterate over the rows of a query, page by page."""
        cursor = f"rows_{os.urandom(4).hex()}"
        self.execute(f"DECLARE {cursor} NO SCROLL CURSOR FOR {statement}")
        while page := self.execute(f"FETCH 1000 FROM {cursor}"):
            yield from page
        self.execute(f"CLOSE {cursor}")

    def close(self) -> None:
        """Close the connection. A copy of this object in a forked process leaves its parent's connection open."""
        if self.owned:
            self._closed = True
            self._drop()
            self._engine.dispose()

    def keep(self, output: bytes, *, sha256: str) -> bytes | None:  # noqa: ARG002  the row holds every output
        """Return the output. PostgreSQL itself stores a large value out of line."""
        if len(output) > LARGEST_OUTPUT:
            kind, meaning = TOO_LARGE
            raise kind(f"the ledger at {self.place} {meaning}")
        return output

    def end_step(self) -> None:
        """Let the triggers check now that the last event had its effect: at the end they would see later steps' effects only."""
        self.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")

    def check(self) -> str | None:
        """Compare the rules with those of a new ledger. The server checks its own files."""
        changed = rules_changed(self.execute)
        return f"its rules are not those it was made with: {changed}" if changed else None

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self.place)

    def _begin(self, statement: str) -> None:
        """Begin a transaction. If the connection broke while idle, when nothing can be lost, begin on a new one."""
        used = self._open is not None
        self.rewritten = not used
        try:
            self.execute(statement)
        except psycopg.OperationalError:
            if not (used and self._driver.closed):
                raise
            self._drop()
            self.rewritten = True
            self.execute(statement)
        if statement == self.begin_writing:
            self._require_rules()

    def _require_rules(self) -> None:
        """Raise if triggers are disabled. Checked in every transaction, because reloading the server's configuration affects open sessions."""
        cursor = self._cursor
        while cursor is not None and cursor.nextset():
            pass
        if cursor is None or cursor.fetchone() != ("origin",):
            raise LedgerError(
                f"the ledger at {self.place} does not apply its rules, because session_replication_role is not origin;"
                " ask the database's administrator to reset it, then run again"
            )

    def _roll_back(self) -> None:
        try:
            if self._open is not None:
                self.execute("ROLLBACK")
        except (SQLAlchemyError, psycopg.Error):
            self._drop()

    def _drop(self) -> None:
        if self._open is not None:
            with suppress(SQLAlchemyError, psycopg.Error):
                self._open.close()
            self._open = self._cursor = None


def _engine(url: str) -> tuple[Engine, str]:
    """Return the engine for an address, and the address without credentials."""
    address = _address(url)
    place = f"{address.host or 'localhost'}/{address.database or ''}" if address else "@"
    if address is None or "@" in place:  # the text before the last @ may be a part of the password
        raise UsageError(
            "DPFLOW_LEDGER_URL is not a valid address; write postgresql://USER@HOST/DATABASE, and percent-encode special"
            " characters in the password, such as %40 for @"
        )
    own = address.normalized_query.get("options", ())
    options = " ".join((*_as_options(_DEFAULTS), *own))  # later options win
    address = address.update_query_dict({"options": options})
    engine = create_engine(
        address,
        isolation_level="AUTOCOMMIT",  # the store sends BEGIN, COMMIT and ROLLBACK itself
        poolclass=NullPool,
        pool_reset_on_return=None,  # no transaction is ever left open, and a broken connection cannot be reset
        hide_parameters=True,
        connect_args={"connect_timeout": 10, "application_name": "dpflow", "client_encoding": "UTF8"},
    )
    return engine, f"postgresql://{place}"


def _driver_of(connection: Connection) -> psycopg.Connection[Any]:
    driver: psycopg.Connection[Any] = connection.connection.dbapi_connection  # type: ignore[assignment]
    return driver


def _address(url: str) -> URL | None:
    """Parse an address, or return None: an error would quote it, with its password."""
    try:
        return make_url(url).set(drivername="postgresql+psycopg")
    except (SQLAlchemyError, ValueError):
        return None


def _as_options(settings: Mapping[str, str]) -> Iterator[str]:
    return (f"-c {name}={value}" for name, value in settings.items())


@lru_cache
def _in_driver_style(statement: str) -> str:
    return re.sub(r":([a-z_0-9]+)", r"%(\1)s", statement)
