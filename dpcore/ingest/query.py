"""The result of a query to a database: only the columns that are needed, streamed, in a transaction that can't write.

No value decides how another is read. PostgreSQL says the type of each column: whole numbers, floats and booleans come as they are, and
everything else as the text that the database itself writes, since its driver has no date for `infinity`. Of other databases, of which
SQLite types each value for itself, every value comes as text.
"""

import hashlib
import hmac
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import CursorResult
from sqlalchemy.pool import NullPool

from dpcore.errors import DpflowError, SourceError
from dpcore.ingest.attempt import attempt
from dpcore.ingest.values import as_text
from dpcore.stewardlog import note

T = TypeVar("T")

BATCH_ROWS = 1 << 14
WHY = "and see the steward's log"
DRIVERS = {"mysql": "mysqlclient", "mariadb": "mariadb", "oracle": "cx_Oracle", "mssql": "pyodbc"}
# by the number that PostgreSQL knows a type by
POSTGRES_TYPES = {
    16: pa.bool_(),
    **dict.fromkeys((20, 21, 23), pa.int64()),
    **dict.fromkeys((700, 701), pa.float64()),
}
READ_ONLY = {
    "sqlite": "PRAGMA query_only = ON",
    "postgresql": "SET TRANSACTION READ ONLY",
    "mysql": "SET TRANSACTION READ ONLY",
    "mariadb": "SET TRANSACTION READ ONLY",
}


@dataclass(frozen=True)
class Query:
    """One query to one database.

    Attributes:
        sql: The query.
        url_env: The environment variable that holds the database's address. The address itself is never kept.
    """

    sql: str
    url_env: str

    @property
    def name(self) -> str:
        """What messages call it."""
        return "the result of source.sql"

    @property
    def damaged(self) -> str:
        """What is said if it cannot be read to its end."""
        return f"the query of source.sql fails or was broken off; check it, and what the user of {self.url_env} may read, {WHY}"

    def check(self) -> None:
        """Refuse an address that is not there, or that nothing here can connect to; the database is left alone."""
        self._engine().dispose()

    def column_names(self) -> list[str]:
        """Ask the database for the names of the result's columns; no row is read."""
        return [name for name, _ in self._description()]

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Ask the database for the types of the named columns; no row is read."""
        types = dict(self._description())
        return [types[column] for column in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns in the order asked for, from a cursor that stays in the database."""
        types = self.column_types(columns)
        with self._connection() as connection:
            chosen = ", ".join(map(_chosen(connection), columns, types))
            statement = f"SELECT {chosen} FROM {self._subquery}"  # noqa: S608  the steward's own query
            with closing(_run(connection, statement, streamed=True)) as result:
                blocks = result.partitions(BATCH_ROWS)
                while block := self._noting(lambda: next(blocks, None)):
                    values = zip(*block, strict=True)
                    arrays = [_array(column, kind) for column, kind in zip(values, types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def version(self, columns: Sequence[str], *, key: bytes) -> bytes:
        """Return a keyed digest of the rows as a multiset, since a database may give them in any order.

        The sum of the rows' keyed digests modulo 2^256, with their number: the MSet-Add-Hash of Clarke, Devadas, van Dijk,
        Gassend and Suh (2003). Equal rows add up, where XOR would let pairs of them vanish. Without the key
        nobody can test a guess, and with a secret key nobody can make two results with one digest.
        """

        def digest() -> bytes:
            total = count = 0
            for batch in self.batches(columns):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    # ascii() writes each row in one way, and no two rows in the same
                    total += int.from_bytes(hashlib.blake2b(ascii(row).encode(), key=key, digest_size=32).digest())
                    count += 1
            return hmac.digest(key, ascii((list(columns), count, total % (1 << 256))).encode(), "sha256")

        return attempt(digest, otherwise=self.damaged)

    def split(self) -> tuple["Query"]:
        """Return the query itself."""
        return (self,)

    @property
    def _subquery(self) -> str:
        # on a line of its own, the bracket is in no comment that ends the query
        return f"({self.sql.rstrip().rstrip(';')}\n) dpflow_source"

    def _description(self) -> list[tuple[str, pa.DataType]]:
        def ask() -> list[tuple[str, pa.DataType]]:
            with self._connection() as connection:
                result = _run(connection, f"SELECT * FROM {self._subquery} WHERE 1 = 0", streamed=False)  # noqa: S608  likewise
                fields = result.cursor.description if result.cursor is not None else ()
                known = POSTGRES_TYPES if connection.dialect.name == "postgresql" else {}
                return [(field[0], known.get(field[1], pa.string())) for field in fields]

        return attempt(lambda: self._noting(ask), otherwise=self.damaged)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        engine = self._engine()
        try:
            connection = attempt(
                lambda: self._noting(engine.connect),
                otherwise=f"the database that {self.url_env} names cannot be reached; check its address, user and password, {WHY}",
            )
            with connection:  # and its end rolls back whatever there was
                if statement := READ_ONLY.get(engine.dialect.name):
                    connection.exec_driver_sql(statement)
                yield connection
        finally:
            engine.dispose()

    def _noting(self, step: Callable[[], T]) -> T:
        """Let the steward's log have what a database says, which is often the only clue, without the password."""
        try:
            return step()
        except DpflowError:
            raise
        except Exception as error:
            text, address = "".join(traceback.format_exception(error)), os.environ.get(self.url_env, "")
            for secret in (address, make_url(address).password):
                text = text.replace(secret, "***") if secret else text
            note(text, where=self.name)
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
        if url.drivername in {"postgres", "postgresql"}:
            url = url.set(drivername="postgresql+psycopg")
        kind = url.get_backend_name()
        if kind == "sqlite" and not Path(url.database or "").is_file():  # SQLite would make it
            raise SourceError(f"the database file that {self.url_env} names is not there; check its address")
        remedy = (
            f"`pip install {DRIVERS[kind]}`" if kind in DRIVERS else "install the driver that SQLAlchemy names for it"
        )
        engine = attempt(
            lambda: create_engine(url, poolclass=NullPool, hide_parameters=True), otherwise=f"{wrong}; {remedy}"
        )
        if kind == "sqlite":
            event.listen(engine, "connect", _text_as_bytes)
        return engine


def _text_as_bytes(connection: Any, _: object) -> None:
    """Let SQLite give text as its bytes: of one that is not UTF-8 its driver would make an error."""
    connection.text_factory = bytes


def _run(connection: Connection, statement: str, *, streamed: bool) -> CursorResult[Any]:
    # without parameters, a % or a : in the query is only what it is
    options: dict[str, Any] = {"no_parameters": True}
    if streamed:
        options |= {"stream_results": True, "yield_per": BATCH_ROWS}
    return connection.exec_driver_sql(statement, execution_options=options)


def _chosen(connection: Connection) -> Any:
    def chosen(column: str, kind: pa.DataType) -> str:
        name = connection.dialect.identifier_preparer.quote(column).replace("%%", "%")
        as_text = connection.dialect.name == "postgresql" and kind == pa.string()
        return f"CAST({name} AS text)" if as_text else name

    return chosen


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == pa.string():
        return pa.array(map(as_text, values), kind)
    return pa.array(values, kind)
