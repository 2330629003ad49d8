"""Stream the needed columns of a query's result from a database, in a read-only transaction.

No value changes how another is read. PostgreSQL reports the type of each column: integers, floats and booleans keep their type, and all
other types are cast to text by the database, since the driver has no date for `infinity`. Text arrives as its stored bytes, and each value
is decoded on its own. From other databases every value is read as text, since SQLite types each value separately.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from sqlalchemy import Connection
from sqlalchemy.engine import CursorResult

from dpcore.errors import SourceBroken, SourceError
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.database import WHY, Database, server_encoding
from dpcore.tables.sources.object_ids import as_id
from dpcore.tables.sources.part import Part
from dpcore.tables.sources.text import decoder, text_of
from dpcore.tables.sources.values import as_text

T = TypeVar("T")

BATCH_ROWS = 1 << 14
NO_ENCODING = "SQL_ASCII"  # the encoding of a database that accepts any bytes as text
# by PostgreSQL type OID
POSTGRES_TYPES = {
    16: pa.bool_(),
    **dict.fromkeys((20, 21, 23), pa.int64()),
    700: pa.float32(),  # real: an id above 2^24 may have been rounded
    701: pa.float64(),
}
NUMERIC = pa.decimal256(
    76
)  # stands for ids of PostgreSQL's numeric, which has no limit, and writes 7 and 7.00 for equal values
POSTGRES_ID_TYPES = {**POSTGRES_TYPES, 1700: NUMERIC}
# Types in which equal values have one text: truth values, bytes, text, whole numbers, uuid, network addresses, days and times. In
# others, such as citext, interval, jsonb and arrays of them, one person could have several ids. Arrays of real may have been rounded.
POSTGRES_IDS = frozenset(
    {*POSTGRES_ID_TYPES, 17, 18, 19, 25, 26, 650, 774, 829, 869, 1042, 1043, 1082, 1083, 1114, 1184, 2950}
)


@dataclass(frozen=True)
class Query(Part):
    """One query to one database.

    Attributes:
        sql: The query.
        url_env: The environment variable that holds the database's address. The address itself is never stored.
        ids: The column that is read as ids, if any.
    """

    sql: str
    url_env: str
    ids: str | None = None

    name = "the result of source.sql"

    @property
    def damaged(self) -> str:  # type: ignore[override]
        """The message for a query that fails or is interrupted."""
        return f"the query of source.sql failed or was interrupted; check it, and what the user of {self.url_env} may read, {WHY}"

    def check(self) -> None:
        """Raise if the address is missing or no installed driver can read it. Do not connect."""
        self._database.check()

    def column_names(self) -> list[str]:
        """Ask the database for the names of the result's columns, without fetching a row."""
        return [name for name, _ in self._description()]

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Ask the database for the types of the named columns, without fetching a row.

        Raises:
            SourceError: If PostgreSQL may write equal ids of their type as different texts.
        """
        types = dict(self._description())
        return [types[column] for column in columns]

    def with_ids(self, column: str) -> "Query":
        """Return the query with a column read as ids."""
        return replace(self, ids=column)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns in the given order, from a server-side cursor."""
        types = self.column_types(columns)
        with self._database.connection() as connection:
            chosen = ", ".join(map(_chosen(connection), columns, types))
            statement = f"SELECT {chosen} FROM {self._subquery}"  # noqa: S608  the steward's own query
            reads = [_reader(connection, as_id if column == self.ids else as_text) for column in columns]
            # a value of the first rows makes the query itself fail, and one of later rows the fetching of them
            with closing(self._database.noting(lambda: _run(connection, statement, streamed=True))) as result:
                chunks = result.partitions(BATCH_ROWS)
                while chunk := self._database.noting(lambda: next(chunks, None)):
                    values = zip(*chunk, strict=True)
                    arrays = list(map(_array, values, types, reads))
                    yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    @property
    def _database(self) -> Database:
        return Database(self.url_env)

    @property
    def _subquery(self) -> str:
        # the bracket starts a new line, so that a comment at the end of the query cannot hide it
        return f"({self.sql.rstrip().rstrip(';')}\n) dpflow_source"

    def _description(self) -> list[tuple[str, pa.DataType]]:
        statement = f"SELECT * FROM {self._subquery}"  # noqa: S608  likewise
        with self._database.connection() as connection:

            def answered(ask: Callable[[Connection, str], T], text: str, *, failure: type[SourceError]) -> T:
                return attempt(
                    lambda: self._database.noting(lambda: ask(connection, text)),
                    otherwise=self.damaged,
                    failure=failure,
                )

            if connection.dialect.name == "postgresql":
                return answered(self._parsed, statement, failure=SourceError)
            if connection.dialect.name == "sqlite":
                # EXPLAIN only compiles the query; the statement below may evaluate a subquery
                answered(_explained, statement, failure=SourceError)
            names = answered(_named, f"{statement} WHERE 1 = 0", failure=SourceBroken)
            return [(name, pa.string()) for name in names]

    def _parsed(self, connection: Connection, statement: str) -> list[tuple[str, pa.DataType]]:
        """Let PostgreSQL parse a statement and describe its columns. It plans and runs nothing, and rejects a second statement."""
        driver: Any = connection.connection.driver_connection
        for answer in (
            driver.pgconn.prepare(b"", statement.encode(driver.info.encoding)),
            driver.pgconn.describe_prepared(b""),
        ):
            if answer.status != ExecStatus.COMMAND_OK:
                raise error_from_result(answer, encoding=driver.info.encoding)
        names = [answer.fname(number).decode(driver.info.encoding, "replace") for number in range(answer.nfields)]
        types = [answer.ftype(number) for number in range(answer.nfields)]
        for name, kind in zip(names, types, strict=True):
            if name == self.ids and kind not in POSTGRES_IDS:
                self._check_ids(connection, kind)
        by_kind = {name: POSTGRES_ID_TYPES if name == self.ids else POSTGRES_TYPES for name in names}
        return [(name, by_kind[name].get(kind, pa.string())) for name, kind in zip(names, types, strict=True)]

    def _check_ids(self, connection: Connection, kind: int) -> None:
        """Raise unless a type is an enumeration, in which equal values have one text as well."""
        described = f"SELECT format_type(oid, NULL), typtype = 'e' FROM pg_catalog.pg_type WHERE oid = {int(kind)}"  # noqa: S608  a number
        with closing(_run(connection, described, streamed=False)) as result:
            name, is_enumeration = result.one()
        if not is_enumeration:
            raise SourceError(
                f"{self.name} holds the ids in the type {text_of(bytes(name))}, which may write equal values as different texts, so that one "
                "person would count as several; cast the column in the query, such as lower(id::text) for citext or "
                "extract(epoch from id) for interval"
            )


def _explained(connection: Connection, statement: str) -> None:
    """Let SQLite compile a statement without running it."""
    _run(connection, f"EXPLAIN {statement}", streamed=False).close()


def _named(connection: Connection, statement: str) -> list[str]:
    """Run a statement for the names of its columns."""
    with closing(_run(connection, statement, streamed=False)) as result:
        return [field[0] for field in result.cursor.description] if result.cursor is not None else []


def _run(connection: Connection, statement: str, *, streamed: bool) -> CursorResult[Any]:
    # without parameters, a % or : in the query has no special meaning
    options: dict[str, Any] = {"no_parameters": True}
    if streamed:
        options |= {"stream_results": True, "yield_per": BATCH_ROWS}
    return connection.exec_driver_sql(statement, execution_options=options)


def _chosen(connection: Connection) -> Any:
    def chosen(column: str, kind: pa.DataType) -> str:
        name = connection.dialect.identifier_preparer.quote(column).replace("%%", "%")
        as_text = connection.dialect.name == "postgresql" and kind in (pa.string(), NUMERIC)
        return f"CAST({name} AS text)" if as_text else name

    return chosen


def _reader(connection: Connection, convert: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    """Return a function that converts one value to text and never fails. Bytes from PostgreSQL are decoded in the database's encoding."""
    if connection.dialect.name != "postgresql":
        return convert
    driver: Any = connection.connection.driver_connection
    decode = decoder(None if server_encoding(connection) == NO_ENCODING else driver.info.encoding)
    return lambda raw: None if raw is None else decode(raw)


def _array(values: Sequence[Any], kind: pa.DataType, read: Callable[[Any], str | None]) -> pa.Array:
    if kind == pa.string():
        return pa.array(map(read, values), kind)
    if kind == NUMERIC:
        return pa.array([None if raw is None else as_id(Decimal(raw.decode())) for raw in values], pa.string())
    return pa.array(values, kind)
