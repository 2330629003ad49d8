"""Describe a table by a database's catalogue: types, enumerations, constraints, comments. No row of any table is read."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, inspect
from sqlalchemy import types as sql
from sqlalchemy.dialects import postgresql

from dpcore.starter.check_constraints import Facts, facts_of, merged
from dpcore.starter.description import Column, Description, Stored
from dpcore.starter.metadata import chosen
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.database import Database

_STORED: tuple[tuple[type[sql.TypeEngine[Any]], Stored], ...] = (
    (sql.Boolean, "boolean"),
    (sql.Integer, "integer"),
    (sql.DateTime, "datetime"),
    (sql.Date, "date"),
    (sql.Numeric, "number"),
    (sql.Enum, "text"),
    (sql.String, "text"),
)


def describe_catalogue(url_env: str, table: str | None) -> Description:
    """Describe a table or view of a database.

    Args:
        url_env: The environment variable that holds the database's address.
        table: The table's name, such as `visits` or `clinic.visits`; None if the database has only one.
    """
    database = Database(url_env)
    with database.connection(as_stored=False) as connection:
        failed = f"the catalogue of the database that {url_env} names cannot be read; check what its user may read, and see the steward's log"
        return attempt(lambda: database.noting(lambda: _described(connection, url_env, table)), otherwise=failed)


def _described(connection: Connection, url_env: str, table: str | None) -> Description:
    inspector = inspect(connection)
    tables: dict[str, tuple[str | None, str]] = {
        name: (None, name) for name in (*inspector.get_table_names(), *inspector.get_view_names())
    }
    in_schema, dot, _ = (table or "").partition(".")
    if table not in tables and dot and in_schema in inspector.get_schema_names():
        names = (*inspector.get_table_names(schema=in_schema), *inspector.get_view_names(schema=in_schema))
        tables |= {f"{in_schema}.{name}": (in_schema, name) for name in names}
    schema, name = chosen(tables, table, where=f"the database that {url_env} names")
    facts = merged(_constraints(inspector, connection.dialect.name, name, schema))
    keys = dict(_keys(inspector, name, schema))
    columns = [
        _column(column, facts.get(column["name"], {}), keys.get(column["name"], ""))
        for column in inspector.get_columns(name, schema=schema)
    ]
    references = dict(_references(inspector, name, schema))
    quote = connection.dialect.identifier_preparer.quote
    qualified = ".".join(quote(part) for part in (schema, name) if part is not None)
    return Description(
        tuple(replace(column, refers_to=references.get(column.name, "")) for column in columns),
        source={"sql": f"select * from {qualified}", "url_env": url_env},  # noqa: S608  the steward's own table, quoted
    )


def _column(described: Any, facts: Facts, identifies: str) -> Column:
    kind = described["type"]
    if isinstance(kind, postgresql.DOMAIN):
        kind = kind.data_type
    stored = next((stored for sort, stored in _STORED if isinstance(kind, sort)), None)
    if isinstance(kind, sql.Enum) and kind.enums:
        facts = {**facts, "values": tuple(kind.enums)}
    step = None
    if isinstance(kind, sql.Numeric) and not isinstance(kind, sql.Float):
        scale = kind.scale
        stored = "integer" if scale == 0 else "number"
        step = 10.0**-scale if scale and 0 < scale <= 15 else None
    uuid = isinstance(kind, sql.Uuid)
    unknown = stored is None and not uuid and not isinstance(kind, sql.NullType)
    return Column(
        described["name"],
        stored=stored,
        step=step,
        nullable=bool(described.get("nullable", True)),
        about=described.get("comment") or "",
        identifies=identifies or ("it is a UUID" if uuid else ""),
        unusable=f"its type is {type(kind).__name__}" if unknown else "",
        **facts,
    )


def _keys(inspector: Any, name: str, schema: str | None) -> Iterator[tuple[str, str]]:
    """Yield the columns that alone identify a row, each with the reason."""
    indexes = [index for index in inspector.get_indexes(name, schema=schema) if index.get("unique")]
    for unique in (*indexes, *inspector.get_unique_constraints(name, schema=schema)):
        if len(unique["column_names"]) == 1 and unique["column_names"][0]:  # an expression has no name
            yield unique["column_names"][0], "its values are unique"
    primary: Sequence[str] = inspector.get_pk_constraint(name, schema=schema).get("constrained_columns") or ()
    if len(primary) == 1:
        yield primary[0], "it is the primary key"


def _references(inspector: Any, name: str, schema: str | None) -> Iterator[tuple[str, str]]:
    for key in inspector.get_foreign_keys(name, schema=schema):
        for column, referred in zip(key["constrained_columns"], key["referred_columns"], strict=False):
            yield column, f"{key['referred_table']}.{referred}"


def _constraints(inspector: Any, dialect: str, name: str, schema: str | None) -> Iterator[tuple[str, Facts]]:
    """Yield what the check constraints of a table and of its domains say about columns."""
    for check in inspector.get_check_constraints(name, schema=schema):
        yield from facts_of(check["sqltext"], dialect=dialect).items()
    for column in inspector.get_columns(name, schema=schema):
        if isinstance(column["type"], postgresql.DOMAIN) and column["type"].check is not None:
            for facts in facts_of(str(column["type"].check), dialect=dialect).values():  # of its VALUE
                yield column["name"], facts
