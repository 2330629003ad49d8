"""Connect to a source database, read-only. The address comes from the environment and is never stored."""

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
# SQLAlchemy logs every row at level DEBUG; no logging configuration reaches this logger
SILENT = logging.Logger("dpflow.source", level=logging.CRITICAL + 1)  # noqa: LOG001  getLogger would make it configurable
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
        url_env: The environment variable that holds its address. The address itself is never stored.
    """

    url_env: str

    def check(self) -> None:
        """Raise if the address is missing or no installed driver can read it. Do not connect."""
        self._engine().dispose()

    @contextmanager
    def connection(self, *, as_stored: bool = True) -> Iterator[Connection]:
        """Connect for the duration of the context, in a read-only transaction that is rolled back.

        Args:
            as_stored: Return text as its stored bytes. Without, the driver decodes it: for names in the catalogue, never for rows.
        """
        engine = self._engine(as_stored=as_stored)
        try:
            connection = attempt(
                lambda: self._connected(engine, as_stored=as_stored),
                otherwise=f"the database that {self.url_env} names cannot be reached; check its address, user and password, {WHY}",
            )
            with connection:  # closing it rolls the transaction back
                yield connection
        finally:
            engine.dispose()

    def _connected(self, engine: Engine, *, as_stored: bool) -> Connection:
        try:
            return self.noting(lambda: _opened(engine, as_stored=as_stored))
        except NotSupportedError:  # the driver does not know the encoding
            pass
        raise SourceError(
            f"the encoding of the database that {self.url_env} names is not supported; copy the table to a database in UTF8, {WHY}"
        )

    def noting(self, step: Callable[[], T]) -> T:
        """Run a step. If it fails, write the database's error to the steward's log without the password, and raise it again."""
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

    def _engine(self, *, as_stored: bool = True) -> Engine:
        text = os.environ.get(self.url_env)
        if not text:
            raise SourceError(
                f"the environment variable {self.url_env} is not set; set it to the database's address, such as "
                "postgresql://user:password@host/database"
            )
        wrong = f"{self.url_env} does not hold the address of a database that can be read here"
        url = attempt(
            lambda: make_url(text), otherwise=f"{wrong}; write it as postgresql://user:password@host/database"
        )
        if url.get_backend_name() in {"postgres", "postgresql"}:
            url = _for_reading(url.set(drivername="postgresql+psycopg"))
        kind = url.get_backend_name()
        if kind == "sqlite" and not Path(url.database or "").is_file():  # SQLite would create it
            raise SourceError(f"the database file that {self.url_env} names does not exist; check its address")
        remedy = (
            f"`pip install {DRIVERS[kind]}`" if kind in DRIVERS else "install the driver that SQLAlchemy names for it"
        )
        engine = attempt(
            lambda: create_engine(url, poolclass=NullPool, hide_parameters=True), otherwise=f"{wrong}; {remedy}"
        )
        engine.logger = engine.pool.logger = SILENT
        if kind == "sqlite" and as_stored:
            event.listen(engine, "connect", _text_as_bytes)
        return engine


def _opened(engine: Engine, *, as_stored: bool) -> Connection:
    connection = engine.connect()
    try:
        if engine.dialect.name == "postgresql" and as_stored:
            _without_conversion(connection)
        if statement := READ_ONLY.get(engine.dialect.name):
            connection.exec_driver_sql(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _text_as_bytes(connection: Any, _: object) -> None:
    """Return text from SQLite as bytes: its driver raises on text that is not UTF-8."""
    connection.text_factory = bytes


class _Raw(Loader):
    """Loads text from PostgreSQL as bytes."""

    def load(self, data: Buffer) -> bytes:
        """Return the bytes. The query decodes each value on its own."""
        return bytes(data)


def _without_conversion(connection: Connection) -> None:
    """Make PostgreSQL return text as its stored bytes, whatever encoding the address or the environment asks for.

    The server fails to convert a character that the client encoding lacks, and the driver fails to decode invalid bytes. In both cases
    one value would make the whole query fail.
    """
    driver: Any = connection.connection.driver_connection
    connection.exec_driver_sql(f"SET client_encoding TO '{server_encoding(connection)}'")
    driver.adapters.register_loader("text", _Raw)
    if not driver.info.encoding:  # this property raises if the driver does not know the encoding
        raise NotSupportedError


def server_encoding(connection: Connection) -> str:
    """Return PostgreSQL's name for the encoding of the database."""
    driver: Any = connection.connection.driver_connection
    return str(driver.info.parameter_status("server_encoding"))


def _for_reading(url: URL) -> URL:
    """Make every transaction of a PostgreSQL session read-only, even one that the query starts itself.

    The session starts in UTF8, which every database can use for its catalog and messages.
    """
    before = url.query.get("options", os.environ.get("PGOPTIONS", ""))
    options = " ".join((before,) if isinstance(before, str) else before)
    asked = {"options": f"{options} -c default_transaction_read_only=on".strip(), "client_encoding": "utf8"}
    return url.update_query_dict(asked)
