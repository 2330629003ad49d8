"""A query's result as the table: streamed, only the needed columns, read-only, and no value decides how another is read."""

import logging
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from dpcore.errors import SourceBroken, SourceError
from dpcore.spec.source import SourceSpec
from dpcore.tables.sources.ids import can_identify, hash_ids
from dpcore.tables.sources.query import BATCH_ROWS, Query
from dpcore.tables.sources.source import Source, check_types
from tests.dpcore.tables.sources.sources import CANARY, check_silent, data_version, read_batches, rows, sqlite_bytes
from tests.postgres import PostgresServer

KEY = bytes(range(32))
SECRET = "Zq7_secret"  # noqa: S105  to be looked for
Made = Callable[..., Source]


def query(sql: str) -> Source:
    return Source.locate(SourceSpec(sql=sql, url_env="CLINIC_DB"), base=Path())


@pytest.fixture(autouse=True)
def private_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The steward's log of this test."""
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
    return tmp_path / "private" / "failures.log"


@pytest.fixture
def in_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    def make(sql: str, *statements: str) -> Source:
        sqlite_bytes(tmp_path, *statements)
        monkeypatch.setenv("CLINIC_DB", f"sqlite:///{tmp_path / 'made.sqlite'}")
        return query(sql)

    return make


@pytest.fixture
def in_postgres(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Made:
    def make(sql: str, *statements: str) -> Source:
        url = postgres_server.new_database()
        with psycopg.connect(url) as connection:
            for statement in statements:
                connection.execute(statement)
        monkeypatch.setenv("CLINIC_DB", url)
        return query(sql)

    return make


@pytest.fixture(params=["in_sqlite", "in_postgres"])
def made(request: pytest.FixtureRequest) -> Made:
    """A database of either kind."""
    found: Made = request.getfixturevalue(request.param)
    return found


TABLE = ("create table visits (id integer, city text, note text)",)
ROWS = (*TABLE, "insert into visits values (1, 'north', 'x'), (2, null, 'it''s 100 % :sure'), (3, 'south', 'y')")


@pytest.mark.parametrize(
    "sql",
    [
        "select * from visits order by id",
        "select * from visits order by id ; \n",
        "select * from visits order by id -- all of them",
        "with those as (select * from visits) select * from those order by id",
        "select *, '%s :name %(x)s' as other from visits where note <> '12:30 %' order by id",
    ],
)
def test_the_named_columns_come_in_the_order_asked_for(made: Made, sql: str) -> None:
    source = made(sql, *ROWS)
    ids = (1, 2, 3) if source.parts[0].column_types(("id",)) == [pa.int64()] else ("1", "2", "3")
    assert rows(source, "city", "id") == list(zip(("north", None, "south"), ids, strict=True))
    assert rows(source, "note")[1] == ("it's 100 % :sure",)


def test_only_the_needed_columns_are_asked_for_and_nothing_can_be_written(made: Made) -> None:
    said: list[str] = []

    def listen(*event: object) -> None:
        said.append(str(event[2]))

    source = made("select * from visits", *ROWS)
    event.listen(Engine, "before_cursor_execute", listen)
    try:
        rows(source, "city")
    finally:
        event.remove(Engine, "before_cursor_execute", listen)
    read = [statement for statement in said if "1 = 0" not in statement and "select" in statement.lower()]
    assert read
    assert all("note" not in statement and " id" not in statement for statement in read)
    assert any("READ ONLY" in statement or "query_only" in statement for statement in said)


def test_a_function_that_writes_is_stopped(in_postgres: Made) -> None:
    trap = "create function trap() returns int language plpgsql as $$ begin insert into visits values (9); return 1; end $$"
    source = in_postgres("select trap() as id", *ROWS, trap)
    with pytest.raises(SourceError, match=r"the query of source\.sql failed") as refusal:
        rows(source, "id")
    check_silent(refusal.value, ["plpgsql", "trap"])


SEVERAL = (
    "select 1 as id) q; commit; begin; delete from visits; commit; select * from (select 1 as id",
    "select 1 as id) q; delete from visits; select * from (select 1 as id",
)


@pytest.mark.parametrize("sql", SEVERAL)
def test_several_statements_are_refused_and_none_of_them_is_run(made: Made, sql: str) -> None:
    source = made(sql, *ROWS)
    for refused in (lambda: rows(source, "id"), lambda: list(source.parts[0].batches(("id",)))):
        with pytest.raises(SourceError, match=r"the query of source\.sql failed"):
            refused()
    assert len(rows(query("select * from visits"), "id")) == 3


def test_a_session_in_postgres_writes_in_no_transaction_and_keeps_the_options_of_its_address(
    in_postgres: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "select current_setting('default_transaction_read_only') as a, current_setting('search_path') as b"
    source = in_postgres(settings)
    assert rows(source, "a") == [("on",)]
    monkeypatch.setenv("CLINIC_DB", os.environ["CLINIC_DB"] + "&options=-c%20search_path%3Dclinic")
    assert rows(query(settings), "a", "b") == [("on", "clinic")]


MALFORMED = (*TABLE, "insert into visits values (1, 'x', '{\"a\": 1}'), (2, 'y', 'none')")
PARSING = "select id, json_extract(note, '$.a') as a from visits"
AT_ONCE = f"with x as materialized ({PARSING}) select x.* from x, x as y"  # noqa: S608  of ours


@pytest.mark.parametrize("sql", [PARSING, AT_ONCE], ids=["row by row", "all at once"])
def test_a_query_that_fails_by_a_value_of_sqlite_is_told_from_one_that_is_wrong(in_sqlite: Made, sql: str) -> None:
    source = in_sqlite(sql, *MALFORMED)
    for broken in (lambda: rows(source, "a"), lambda: data_version(source, columns=("a",), key=KEY)):
        with pytest.raises(SourceBroken, match=r"the query of source\.sql failed") as refusal:
            broken()
        check_silent(refusal.value, ["malformed", "JSON"])
    with pytest.raises(SourceError) as wrong:
        rows(query(sql.replace("json_extract", "no_such_function")), "a")
    assert type(wrong.value) is SourceError


@pytest.mark.parametrize(
    "sql",
    [
        "select note::int as a from visits",
        "with x as materialized (select note::int as a from visits) select * from x, x y",
    ],
)
def test_a_query_that_fails_by_a_value_of_postgres_is_told_from_one_that_is_wrong(in_postgres: Made, sql: str) -> None:
    sql = sql.replace("*", "x.a")
    source = in_postgres(sql, *ROWS)
    assert source.parts[0].column_types(("a",)) == [pa.int64()]
    for broken in (lambda: rows(source, "a"), lambda: data_version(source, columns=("a",), key=KEY)):
        with pytest.raises(SourceBroken, match=r"the query of source\.sql failed") as refusal:
            broken()
        check_silent(refusal.value, ["integer"])
    with pytest.raises(SourceError) as wrong:
        rows(query(sql.replace("note", "no_such_column")), "a")
    assert type(wrong.value) is SourceError


def test_a_function_that_the_planner_calls_has_not_run_when_the_columns_are_known(in_postgres: Made) -> None:
    trap = "create function trap() returns int language plpgsql immutable as $$ begin raise exception 'no'; end $$"
    source = in_postgres("select trap() as id", trap)
    assert source.parts[0].column_names() == ["id"]
    with pytest.raises(SourceBroken):
        rows(source, "id")


def test_no_level_of_a_log_lets_a_row_into_it(
    made: Made, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = f"insert into visits values (1, '{CANARY}', 'x')"  # noqa: S608  of ours
    source = made("select * from visits", *TABLE, insert)
    for name in ("sqlalchemy", "sqlalchemy.engine", "sqlalchemy.engine.Engine", "sqlalchemy.pool"):
        caplog.set_level(logging.DEBUG, logger=name)
    assert rows(source, "city") == [(CANARY,)]
    assert caplog.text == ""
    monkeypatch.setattr("dpcore.tables.sources.database.SILENT", logging.getLogger("sqlalchemy.engine.Engine"))
    rows(source, "city")
    assert CANARY in caplog.text  # the control


ENCODED = {
    "UTF8": (b"Z\xc3\xbcrich", "\u4e2d".encode()),
    "LATIN1": (b"Z\xfcrich", b"\x81\xff"),
    "WIN1252": (b"Z\xfcrich", b"\x81\x8d"),  # neither of which has a meaning
    "EUC_JP": (b"Z\x8f\xab\xe4rich", b"\xa9\xa1"),
    "SQL_ASCII": (b"Z\xc3\xbcrich", b"Z\xfc\xff\x81"),
}


def database_in(server: PostgresServer, encoding: str) -> str:
    """Make a database in an encoding, with a letter and two values of its own, and return its address."""
    name = f"in_{encoding.lower()}"
    with server.admin() as connection:
        connection.execute(f"drop database if exists {name}")
        connection.execute(f"create database {name} encoding '{encoding}' template template0 locale 'C'")
    with psycopg.connect(server.url(name), client_encoding="utf8") as connection:
        connection.execute("create table t (a text, b int)")
        for place, raw in enumerate((b"x", *ENCODED[encoding])):
            stored = f"convert_from('\\x{raw.hex()}', '{encoding}')"
            connection.execute(f"insert into t values ({stored}, {place})")  # noqa: S608  of ours
    return server.url(name)


@pytest.mark.parametrize("encoding", ENCODED)
def test_no_value_fails_in_any_encoding_of_a_database_whatever_encoding_is_asked_for(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    url = database_in(postgres_server, encoding)
    monkeypatch.setenv("PGCLIENTENCODING", "EUC_CN")
    odd = {"UTF8": "\u4e2d", "LATIN1": "\x81\xff", "SQL_ASCII": "Z\xfc\xff\x81"}.get(encoding, "\ufffd\ufffd")
    for asked in ("", "&client_encoding=utf8", "&client_encoding=latin1", "&client_encoding=sql_ascii"):
        monkeypatch.setenv("CLINIC_DB", url + asked)
        found = rows(query("select b, a from t order by b"), "a")
        assert found == [("x",), ("Z\u00fcrich",), (odd,)]


@pytest.mark.parametrize(
    ("encoding", "asked"), [("UTF8", "latin1"), ("WIN1252", "utf8"), ("EUC_JP", "utf8"), ("SQL_ASCII", "utf8")]
)
def test_a_session_in_another_encoding_than_its_database_would_fail_at_one_value(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, encoding: str, asked: str
) -> None:
    """The control: text that the server converts."""
    monkeypatch.setenv("CLINIC_DB", database_in(postgres_server, encoding))
    monkeypatch.setattr("dpcore.tables.sources.database.server_encoding", lambda _: asked)
    assert rows(query("select a from t where b < 1"), "a") == [("x",)]
    with pytest.raises(SourceBroken):
        rows(query("select a from t"), "a")


def test_an_encoding_that_the_driver_does_not_know_is_named_as_the_reason(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_server.admin() as connection:
        connection.execute("create database taiwan encoding 'EUC_TW' template template0 locale 'C'")
    monkeypatch.setenv("CLINIC_DB", postgres_server.url("taiwan"))
    with pytest.raises(SourceError, match="the encoding of the database that CLINIC_DB names") as refusal:
        rows(query("select 'x'::text as a"), "a")
    assert type(refusal.value) is SourceError
    check_silent(refusal.value)


def test_odd_names_are_only_names(made: Made) -> None:
    made_of = 'create table odd ("a ""b"" c" text, "Up" text, "100 %" text, "select" text)'
    source = made("select * from odd", made_of, "insert into odd values ('1', '2', '3', '4')")
    assert rows(source, "select", "Up", 'a "b" c', "100 %") == [("4", "2", "1", "3")]


def test_values_of_sqlite_are_text_whatever_the_others_are(in_sqlite: Made) -> None:
    values = "(1), (0.5), ('x'), (x'5afc7269636800'), (cast(x'5afc' as text)), (null), (9e999), (9223372036854775807)"
    source = in_sqlite("select a from t", "create table t (a)", f"insert into t values {values}")  # noqa: S608  of ours
    wanted = ["1", "0.5", "x", "Zürich\0", "Zü", None, "inf", "9223372036854775807"]
    assert rows(source, "a") == [(value,) for value in wanted]


def test_types_of_postgres_are_as_declared_there_and_all_others_text(in_postgres: Made) -> None:
    source = in_postgres(
        "select * from t",
        "create table t (a bigint, b float8, c boolean, d date, e timestamptz, f numeric, g uuid, h text[], i smallint)",
        "insert into t values (1, 'NaN', true, 'infinity', '2025-01-31 10:00+02', 1e30, gen_random_uuid(), '{a,b}', 1)",
        "insert into t values (null, 'inf', false, '12025-01-01', '-infinity', 'NaN', null, null, null)",
        "insert into t values (-1, 0.1, null, '0044-03-15 BC', null, 1.50, null, null, 2)",
        "insert into t values (7, null, null, '2025-01-31', '2025-01-31 10:00:00.5', null, null, null, 3)",
    )
    columns = tuple("abcdefghi")
    kinds = [pa.int64(), pa.float64(), pa.bool_(), *[pa.string()] * 5, pa.int64()]
    assert source.parts[0].column_types(columns) == kinds
    found = rows(source, "a", "c", "d", "f", "i")
    assert found == [
        (1, True, "infinity", "1000000000000000000000000000000", 1),
        (None, False, "12025-01-01", "NaN", None),
        (-1, None, "0044-03-15 BC", "1.50", 2),
        (7, None, "2025-01-31", None, 3),
    ]
    assert rows(source, "b")[1:] == [(float("inf"),), (0.1,), (None,)]
    assert rows(source, "e")[3] is not None


def test_a_long_result_is_streamed_from_a_cursor_that_stays_in_the_database(
    in_postgres: Made, postgres_server: PostgresServer
) -> None:
    source = in_postgres("select * from generate_series(1, 100000) as id")
    batches = read_batches(source, columns=("id",))
    first = next(batches)
    assert first.num_rows == BATCH_ROWS
    with postgres_server.admin() as connection:
        activity = "select query from pg_stat_activity where state = 'idle in transaction'"
        assert any(text.startswith("FETCH") for (text,) in connection.execute(activity))
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 100_000


def test_reading_that_is_given_up_ends_the_transaction(in_postgres: Made, postgres_server: PostgresServer) -> None:
    source = in_postgres("select * from generate_series(1, 100000) as id")
    batches = source.parts[0].batches(("id",))
    next(batches)
    batches.close()  # type: ignore[attr-defined]  a generator
    with postgres_server.admin() as connection:
        waiting = connection.execute("select count(*) from pg_stat_activity where state = 'idle in transaction'")
        assert waiting.fetchone() == (0,)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (None, "the environment variable CLINIC_DB is not set"),
        ("", "the environment variable CLINIC_DB is not set"),
        (SECRET, "CLINIC_DB does not hold the address of a database"),
        (f"nosuch://maria:{SECRET}@h/d", "install the driver that SQLAlchemy names"),
        (f"mssql://maria:{SECRET}@h/d", "`pip install pyodbc`"),
        (f"sqlite:///{SECRET}.sqlite", "the database file that CLINIC_DB names does not exist"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_at_once_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, address: str | None, reason: str
) -> None:
    monkeypatch.delenv("CLINIC_DB", raising=False)
    if address is not None:
        monkeypatch.setenv("CLINIC_DB", address)
    with pytest.raises(SourceError) as refusal:
        query("select 1")
    assert reason in str(refusal.value)
    check_silent(refusal.value, [SECRET])
    assert not Path(f"{SECRET}.sqlite").exists()


def test_a_password_is_in_no_error_no_repr_and_no_pickle(
    in_postgres: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, private_log: Path
) -> None:
    caplog.set_level("DEBUG")
    in_postgres("select 1 as a")
    monkeypatch.setenv("CLINIC_DB", f"postgresql://maria:{SECRET}@127.0.0.1:9/clinic")  # the discard port
    source = query(f"select '{CANARY}' as a")
    with pytest.raises(SourceError, match="the database that CLINIC_DB names cannot be reached") as refusal:
        rows(source, "a")
    check_silent(refusal.value, [SECRET, "maria"])
    assert SECRET not in repr(source)
    assert SECRET.encode() not in pickle.dumps(source)
    assert SECRET not in caplog.text
    assert "127.0.0.1" in private_log.read_text(encoding="utf-8")
    assert SECRET not in private_log.read_text(encoding="utf-8")
    assert pickle.loads(pickle.dumps(source)) == source  # noqa: S301  our own


def test_what_a_database_says_of_a_wrong_query_is_for_the_steward_alone(made: Made, private_log: Path) -> None:
    with pytest.raises(SourceError, match="see the steward's log") as refusal:
        rows(made("select no_such_column from visits", *ROWS), "id")
    check_silent(refusal.value, ["no_such_column"])
    assert "no_such_column" in private_log.read_text(encoding="utf-8")


def test_what_a_database_says_of_a_value_is_for_the_steward_alone(made: Made, private_log: Path) -> None:
    beyond = "insert into visits values (4, null, '9223372036854775807')"
    with pytest.raises(SourceBroken, match="see the steward's log") as refusal:
        rows(
            made(
                "select abs(-1 - cast(note as bigint)) as id from visits where city is null and id = 4", *ROWS, beyond
            ),
            "id",
        )
    check_silent(refusal.value, ["out of range", "overflow"])
    noted = private_log.read_text(encoding="utf-8")
    assert "out of range" in noted or "overflow" in noted


def test_a_table_that_goes_in_the_middle_is_refused(in_sqlite: Made, tmp_path: Path) -> None:
    source = in_sqlite("select * from visits", *ROWS)
    (tmp_path / "made.sqlite").write_bytes(CANARY.encode() * 1000)
    with pytest.raises(SourceError) as refusal:
        rows(source, "id")
    check_silent(refusal.value)


EQUAL_IN_POSTGRES = {
    "citext": ("Ann", "ann", "bob"),
    "interval": ("1 day", "24 hours", "2 days"),
    "jsonb": ('{"a": 1}', '{"a": 1.0}', "2"),
    "jsonb[]": ("{1}", "{1.0}", "{2}"),
    "real[]": ("{16777216}", "{16777217}", "{7}"),
    "numeric[]": ("{7.0}", "{7.00}", "{8}"),
    "numrange": ("[7.0,8)", "[7.00,8.0)", "[8,9)"),
    "pair": ("(7.0,a)", "(7.00,a)", "(8,a)"),
    "box": ("(1,1),(0,0)", "(2,2),(1,1)", "(3,3),(0,0)"),
    "text": ("Ann", "ann", "bob"),
    "varchar(9)": ("Ann", "ann", "bob"),
    "char(9)": ("ann", "ann  ", "bob"),
    "shortened": ("ann", "ann  ", "bob"),
    "name": ("Ann", "ann", "bob"),
    "numeric": ("7.0", "7.00", "8"),
    "bigint": ("7", "07", "8"),
    "real": ("7", "7.0", "8"),
    "double precision": ("7", "7.0", "8"),
    "uuid": (
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
        "{00eebc999c0b4ef8bb6d6bb9bd380a11}",
    ),
    "timestamptz": ("2025-01-31T00:00Z", "2025-01-31T01:00+01", "2025-01-31T01:00Z"),
    "timestamp": ("2025-01-31", "2025-01-31 00:00:00", "2025-02-01"),
    "date": ("2025-01-31", "20250131", "2025-02-01"),
    "time": ("10:00", "10:00:00", "11:00"),
    "bytea": ("7", "\\x37", "8"),
    "inet": ("10.1.2.3", "10.1.2.3/32", "10.1.2.4"),
    "cidr": ("10.1.2.0/24", "10.1.2/24", "10.1.3.0/24"),
    "macaddr": ("08:00:2b:01:02:03", "08002b:010203", "08002b:010204"),
    "boolean": ("true", "on", "off"),
    "ward": ("a", "a", "b"),
}
CITEXT = (  # the type of the extension, which need not be installed: text that ignores case
    "CREATE TYPE citext",
    "CREATE FUNCTION citextin(cstring) RETURNS citext LANGUAGE internal IMMUTABLE STRICT AS 'textin'",
    "CREATE FUNCTION citextout(citext) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout'",
    "CREATE TYPE citext (INPUT = citextin, OUTPUT = citextout, LIKE = text)",
    "CREATE CAST (citext AS text) WITHOUT FUNCTION",
    "CREATE FUNCTION same(citext, citext) RETURNS bool LANGUAGE sql AS 'SELECT lower($1::text) = lower($2::text)'",
    "CREATE OPERATOR = (LEFTARG = citext, RIGHTARG = citext, PROCEDURE = same)",
)
REFUSED = {"citext", "interval", "jsonb", "jsonb[]", "real[]", "numeric[]", "numrange", "pair", "box"}


@pytest.fixture
def typed(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Source, int]]:
    """Make a table of ids of a type. Return it with the number of ids that PostgreSQL itself tells apart."""
    url = postgres_server.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TYPE ward AS ENUM ('a', 'b')")
        connection.execute("CREATE TYPE pair AS (number numeric, name text)")
        connection.execute("CREATE DOMAIN shortened AS char(9)")
        for statement in CITEXT:
            connection.execute(statement)

    def make(kind: str) -> tuple[Source, int]:
        with psycopg.connect(url) as connection:
            connection.execute("DROP TABLE IF EXISTS t")
            connection.execute(f"CREATE TABLE t (id {kind}, x int)")
            for text in EQUAL_IN_POSTGRES[kind]:
                connection.execute(f"INSERT INTO t VALUES (%s::{kind}, 1)", (text,))  # noqa: S608  ours
            told = connection.execute(
                "SELECT count(*) FROM t WHERE NOT EXISTS (SELECT FROM t u WHERE u.id = t.id AND u.ctid < t.ctid)"
            ).fetchone()
        assert told is not None
        monkeypatch.setenv("CLINIC_DB", url)
        return query("select * from t"), told[0]

    return make


def distinct_ids(source: Source) -> int:
    check_types(source, reads={"id": can_identify})
    hashes = [hash_ids(batch.column("id"), key=KEY) for batch in read_batches(source, columns=["id"], ids="id")]
    return len({tuple(one) for words, known in hashes for one in words[known].tolist()})


def test_ids_of_postgres_are_told_apart_as_it_tells_them_or_refused_by_their_type(
    typed: Callable[[str], tuple[Source, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in EQUAL_IN_POSTGRES:
        source, told = typed(kind)
        if kind not in REFUSED:
            assert distinct_ids(source) == told
            continue
        with pytest.raises(SourceError, match="cast the column in the query") as refusal:
            check_types(source, reads={"id": can_identify})
        assert f"in the type {kind}," in str(refusal.value)
        check_types(source, reads={"id": pa.types.is_string})  # no id
        with monkeypatch.context() as patch:
            patch.setattr(Query, "_check_ids", lambda *_: None)
            assert (distinct_ids(source) == told) == (kind == "real[]")  # where two ids were rounded to one before
