"""The database that a query goes to: reached by an address that is kept nowhere, and only ever read."""

import logging
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.errors import NotSupportedError
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.pool import NullPool

from dpcore.errors import DpflowError, SourceError
from dpcore.private_log import note
from dpcore.tables.sources.attempt import attempt

T = TypeVar("T")

WHY = "and see the steward's log"
DRIVERS = {"mysql": "mysqlclient", "mariadb": "mariadb", "oracle": "cx_Oracle", "mssql": "pyodbc"}
# SQLAlchemy writes every row into the log of an engine whose level is DEBUG; this one no configuration can reach
SILENT = logging.Logger("dpflow.source", level=logging.CRITICAL + 1)  # noqa: LOG001  so that it is out of reach
READ_ONLY = {
    "sqlite": "PRAGMA query_only = ON",
    "postgresql": "SET TRANSACTION READ ONLY",
    "mysql": "SET TRANSACTION READ ONLY",
    "mariadb": "SET TRANSACTION READ ONLY",
}


@dataclass(frozen=True)
class Database:
    """A database.

    Attributes:
        url_env: The environment variable that holds its address. The address itself is never kept.
    """

    url_env: str

    def check(self) -> None:
        """Refuse an address that is not there, or that nothing here can connect to; the database is left alone."""
        self._engine().dispose()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Connect for as long as the context lasts, in a transaction that cannot write and is rolled back."""
        engine = self._engine()
        try:
            connection = attempt(
                lambda: self._connected(engine),
                otherwise=f"the database that {self.url_env} names cannot be reached; check its address, user and password, {WHY}",
            )
            with connection:  # and its end rolls back whatever there was
                yield connection
        finally:
            engine.dispose()

    def _connected(self, engine: Engine) -> Connection:
        try:
            return self.noting(lambda: _opened(engine))
        except NotSupportedError:  # the driver knows nothing of it
            pass
        raise SourceError(
            f"the encoding of the database that {self.url_env} names is none that can be read here; copy the table to a database in UTF8, {WHY}"
        )

    def noting(self, step: Callable[[], T]) -> T:
        """Let the steward's log have what a database says, which is often the only clue, without the password."""
        try:
            return step()
        except DpflowError:
            raise
        except Exception as error:
            text, address = "".join(traceback.format_exception(error)), os.environ.get(self.url_env, "")
            for secret in (address, make_url(address).password):
                text = text.replace(secret, "***") if secret else text
            note(text, where=self.url_env)
            raise

    def _engine(self) -> Engine:
        text = os.environ.get(self.url_env)
        if not text:
            raise SourceError(
                f"the environment variable {self.url_env} is not set; let it hold the database's address, such as "
                "postgresql://user:password@host/database"
            )
        wrong = f"{self.url_env} holds no address of a database that can be read here"
        url = attempt(
            lambda: make_url(text), otherwise=f"{wrong}; write it as postgresql://user:password@host/database"
        )
        if url.get_backend_name() in {"postgres", "postgresql"}:
            url = _for_reading(url.set(drivername="postgresql+psycopg"))
        kind = url.get_backend_name()
        if kind == "sqlite" and not Path(url.database or "").is_file():  # SQLite would make it
            raise SourceError(f"the database file that {self.url_env} names is not there; check its address")
        remedy = (
            f"`pip install {DRIVERS[kind]}`" if kind in DRIVERS else "install the driver that SQLAlchemy names for it"
        )
        engine = attempt(
            lambda: create_engine(url, poolclass=NullPool, hide_parameters=True), otherwise=f"{wrong}; {remedy}"
        )
        engine.logger = engine.pool.logger = SILENT
        if kind == "sqlite":
            event.listen(engine, "connect", _text_as_bytes)
        return engine


def _opened(engine: Engine) -> Connection:
    connection = engine.connect()
    try:
        if engine.dialect.name == "postgresql":
            _without_conversion(connection)
        if statement := READ_ONLY.get(engine.dialect.name):
            connection.exec_driver_sql(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _text_as_bytes(connection: Any, _: object) -> None:
    """Let SQLite give text as its bytes: of one that is not UTF-8 its driver would make an error."""
    connection.text_factory = bytes


class _Raw(Loader):
    """Gives a text of PostgreSQL as its bytes."""

    def load(self, data: Buffer) -> bytes:
        """Return the bytes; each value is decoded by itself where it is read."""
        return bytes(data)


def _without_conversion(connection: Connection) -> None:
    """Let PostgreSQL give text as the bytes that it stores, whatever encoding the address or the environment asks for.

    The server refuses to convert a character that the other encoding does not have, and the driver to decode bytes that mean nothing: one
    value would make the whole query fail.
    """
    driver: Any = connection.connection.driver_connection
    connection.exec_driver_sql(f"SET client_encoding TO '{server_encoding(connection)}'")
    driver.adapters.register_loader("text", _Raw)
    if not driver.info.encoding:  # which raises if the driver has no such encoding
        raise NotSupportedError


def server_encoding(connection: Connection) -> str:
    """Return what PostgreSQL calls the encoding of a database."""
    driver: Any = connection.connection.driver_connection
    return str(driver.info.parameter_status("server_encoding"))


def _for_reading(url: URL) -> URL:
    """Let no transaction of a session in PostgreSQL write, should a query get to begin one of its own.

    The session begins in UTF8, in which every database can talk about itself.
    """
    before = url.query.get("options", os.environ.get("PGOPTIONS", ""))
    options = " ".join((before,) if isinstance(before, str) else before)
    asked = {"options": f"{options} -c default_transaction_read_only=on".strip(), "client_encoding": "utf8"}
    return url.update_query_dict(asked)
