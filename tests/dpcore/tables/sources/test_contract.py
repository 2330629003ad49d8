"""The contract of every source: the same rows from files, databases, object stores and tables in memory."""

import pickle
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import fsspec
import polars as pl
import psycopg
import pyarrow as pa
import pytest
from pyarrow import feather

from dpcore.errors import SourceError
from dpcore.spec.source import SourceSpec
from dpcore.tables.ingest import Source
from dpcore.tables.sources.source import check_columns
from tests.dpcore.tables.sources.sources import (
    CANARY,
    arrow_bytes,
    check_silent,
    data_version,
    gzipped,
    located,
    parquet_bytes,
    rows,
    write,
    zstd,
)
from tests.postgres import PostgresServer

Row = tuple[int, str | None, str | None]
KEY = bytes(range(32))
COLUMNS = ("number", "city", "note")
TABLE: Sequence[Row] = ((1, "Zürich", "a"), (2, None, "b"), (3, 'north, "by" west', None), (1, "Zürich", "a"))


def arrow(table: Sequence[Row]) -> pa.Table:
    kinds = (pa.int64(), pa.string(), pa.string())
    return pa.table({name: pa.array([row[place] for row in table], kinds[place]) for place, name in enumerate(COLUMNS)})


def csv(table: Sequence[Row]) -> bytes:
    content: str = arrow(table).to_pandas().astype({"number": str}).to_csv(index=False)
    return content.encode()


FILES: dict[str, Callable[[Sequence[Row]], bytes]] = {
    "t.csv": csv,
    "t.csv.gz": lambda table: gzipped(csv(table)),
    "t.tsv.zst": lambda table: zstd(arrow(table).to_pandas().to_csv(index=False, sep="\t").encode()),
    "t.parquet": lambda table: parquet_bytes(arrow(table), row_group_size=1 + len(table) // 2),
    "v/part=1/t.parquet": lambda table: parquet_bytes(arrow(table)),
    "t.arrow": lambda table: arrow_bytes(arrow(table)),
    "zstd.arrow": lambda table: arrow_bytes(arrow(table), compression="zstd"),
    "t.ipc": lambda table: arrow_bytes(arrow(table), stream=True),
    "lz4.ipc": lambda table: arrow_bytes(arrow(table), stream=True, compression="lz4"),
    "t.feather": lambda table: arrow_bytes(arrow(table), compression="lz4"),
}
IN_MEMORY: Mapping[str, Callable[[pa.Table], object]] = {
    "arrow": lambda table: table,
    "arrow in chunks": lambda table: pa.concat_tables([table.slice(0, 1), table.slice(1)]),
    "batch": lambda table: table.combine_chunks().to_batches()[0] if len(table) else table,
    "polars": pl.from_arrow,
    "polars categories": lambda table: pl.from_arrow(table).with_columns(pl.col("city").cast(pl.Categorical)),
    "pandas": lambda table: table.to_pandas(),
    "pandas categories": lambda table: table.to_pandas().astype({"city": "category"}),
}


class SourceMaker:
    """Makes sources of one kind, from rows."""

    def __init__(self, kind: str, folder: Path, url: Callable[[], str]) -> None:
        self.kind = kind
        self.in_memory = kind in IN_MEMORY
        self._folder = folder
        self._url = url

    def __call__(self, table: Sequence[Row]) -> Source:
        if self.in_memory:
            return Source.of(IN_MEMORY[self.kind](arrow(table)))
        if self.kind in FILES:
            write(self._folder, self.kind, FILES[self.kind](table))
            return located(self._folder, self.kind.partition("/")[0])
        if self.kind == "Feather's own writer":
            feather.write_feather(arrow(table), self._folder / "own.feather")
            return located(self._folder, "own.feather")
        if self.kind == "object store":
            fsspec.filesystem("memory").pipe("/contract/t.parquet", FILES["t.parquet"](table))
            return located(self._folder, "memory://contract")
        return self._query(table)

    def _query(self, table: Sequence[Row]) -> Source:
        create = "create table visits (number integer, city text, note text)"
        if self.kind == "PostgreSQL":
            with psycopg.connect(self._url()) as connection, connection.cursor() as cursor:
                cursor.execute("drop table if exists visits")
                cursor.execute(create)
                cursor.executemany("insert into visits values (%s, %s, %s)", table)
        else:
            with closing(sqlite3.connect(self._folder / "t.sqlite", isolation_level=None)) as database:
                database.execute("drop table if exists visits")
                database.execute(create)
                database.executemany("insert into visits values (?, ?, ?)", table)
        return Source.locate(SourceSpec(sql="select * from visits", url_env="CLINIC_DB"), base=self._folder)


@pytest.fixture(params=[*FILES, *IN_MEMORY, "Feather's own writer", "object store", "SQLite", "PostgreSQL"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceMaker:
    url = f"sqlite:///{tmp_path / 't.sqlite'}"
    if request.param == "PostgreSQL":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.new_database()
    monkeypatch.setenv("CLINIC_DB", url)
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
    return SourceMaker(request.param, tmp_path, lambda: url)


def test_the_named_columns_come_in_the_order_asked_for_and_no_others(make: SourceMaker) -> None:
    source = make(TABLE)
    assert [(city, str(number)) for city, number in rows(source, "city", "number")] == [
        (city, str(number)) for number, city, _ in TABLE
    ]
    assert rows(source, "note") == [(note,) for _, _, note in TABLE]
    assert len(source.parts[0].column_types(("city", "number"))) == 2
    assert rows(make(()), "number") == []  # a table without rows is a table


def test_a_column_that_is_missing_is_named(make: SourceMaker) -> None:
    with pytest.raises(SourceError, match="lacks the declared column 'ward'") as refusal:
        check_columns(make(TABLE), columns=("city", "ward"))
    check_silent(refusal.value)


def test_the_version_is_of_the_declared_columns_of_the_rows_as_a_multiset(make: SourceMaker) -> None:
    def version(table: Sequence[Row], *columns: str) -> str:
        return data_version(make(table), columns=columns or ("number", "city"), key=KEY)

    base = version(TABLE)
    assert version(TABLE[::-1]) == version([(*row[:2], "another note") for row in TABLE]) == base
    others = [
        version(TABLE[:3]),
        version([*TABLE, TABLE[0]]),
        version([(2, "Zürich", "a"), (1, None, "b"), *TABLE[2:]]),
        version([(1, "Zürich", "a"), (2, "None", "b"), *TABLE[2:]]),
        version(TABLE, "city"),
        version(()),
    ]
    assert len({base, *others}) == len(others) + 1


def test_it_shows_no_row_and_goes_to_a_worker_unless_it_is_in_memory(make: SourceMaker) -> None:
    source = make([(1, CANARY, CANARY)])
    assert CANARY not in repr(source)
    if make.in_memory:
        with pytest.raises(TypeError, match="private"):
            pickle.dumps(source)
    else:
        raw = pickle.dumps(source)
        assert CANARY.encode() not in raw
        assert pickle.loads(raw) == source  # noqa: S301  our own


@pytest.mark.parametrize("kind", ["t.parquet", "t.arrow", "t.ipc", "arrow", "pandas", "polars"])
def test_a_long_table_comes_in_batches(tmp_path: Path, kind: str) -> None:
    source = SourceMaker(kind, tmp_path, str)([(number % 7, "north", None) for number in range(140_000)])
    sizes = [len(batch) for piece in source.pieces(ids=None) for batch in piece.batches(("number",))]
    assert sum(sizes) == 140_000
    assert max(sizes) <= 1 << 17
