"""A float that may have been rounded is no id, in whatever way it is read: by its own type, not by its text."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet

from dpcore.mechanisms import bounded_rows
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.spec.source import SourceSpec
from dpcore.tables.ingest import Coding, Draws, ingest
from dpcore.tables.sources import memory_table, query
from dpcore.tables.sources.ids import can_identify, hash_ids
from dpcore.tables.sources.object_ids import as_id
from dpcore.tables.sources.source import Source
from dpcore.tables.sources.values import as_text
from dpcore.universe import Categorical, Universe
from tests.dpcore.tables.sources.sources import located, read_batches
from tests.postgres import PostgresServer

KEY = b"k" * 32
FIRST_ROUNDED = {np.float16: 2**11, np.float32: 2**24, np.float64: 2**53}
FLOATS = pytest.mark.parametrize("kind", FIRST_ROUNDED, ids=lambda kind: kind.__name__)


def floats(kind: Any) -> Any:
    """Return floats of a type: first those that are ids, then those that may have been rounded."""
    limit = FIRST_ROUNDED[kind]
    exact = [7, 0, -3, limit - 1, 1 - limit]
    rounded = [limit, limit + 1, -limit, limit * 2, 0.1, -0.5, 1e-4, np.inf, -np.inf, np.nan]
    return np.array([*exact, *rounded], dtype=kind)


def expected(kind: Any) -> list[tuple[int, ...] | None]:
    hashes, known = hash_ids(pa.array(floats(kind)[:5].astype(np.int64)), key=KEY)
    assert known.all()
    return [*map(tuple, hashes.tolist()), *[None] * 10]


def hashed(arrays: Sequence[pa.Array]) -> list[tuple[int, ...] | None]:
    pairs = [hash_ids(array, key=KEY) for array in arrays]
    return [
        tuple(pair) if is_known else None
        for hashes, known in pairs
        for pair, is_known in zip(hashes.tolist(), known.tolist(), strict=True)
    ]


def ids_of(source: Source) -> list[tuple[int, ...] | None]:
    return hashed([batch.column("id") for batch in read_batches(source, columns=["id"], ids="id")])


def objects(values: Sequence[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def categories(values: Any) -> Any:
    """Return the values as categories that are objects; the last, which is no number, has none."""
    distinct = list(dict.fromkeys(values[:-1]))
    codes = [*(distinct.index(value) for value in values[:-1]), -1]
    return pd.Categorical.from_codes(codes, categories=pd.Index(objects(distinct)))


def dictionary(values: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.arange(len(values)), pa.array(values))


TYPED: dict[str, Callable[[Any], Any]] = {
    "Arrow": lambda values: pa.table({"id": values}),
    "Arrow dictionary": lambda values: pa.table({"id": dictionary(values)}),
    "polars": lambda values: pl.DataFrame({"id": pl.from_arrow(pa.array(values))}),
    "pandas": lambda values: pd.DataFrame({"id": values}),
    "pandas of Arrow": lambda values: pd.DataFrame({"id": pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values)))}),
}
OBJECTS: dict[str, Callable[[Any], Any]] = {
    "pandas objects": lambda values: pd.DataFrame({"id": pd.Series(list(values), dtype=object)}),
    "pandas categories of objects": lambda values: pd.DataFrame({"id": categories(values)}),
    "polars objects": lambda values: pl.DataFrame({"id": pl.Series(list(values), dtype=pl.Object)}),
}
TABLES = TYPED | OBJECTS


@FLOATS
@pytest.mark.parametrize("way", TABLES)
def test_the_floats_of_a_table_are_ids_by_their_type(kind: Any, way: str) -> None:
    assert ids_of(Source.of(TABLES[way](floats(kind)))) == expected(kind)


@pytest.mark.parametrize("way", OBJECTS)
def test_objects_that_are_ids_by_their_text_are_found_out(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_table, "as_id", as_text)
    assert ids_of(Source.of(TABLES[way](floats(np.float32)))) != expected(np.float32)


@FLOATS
def test_the_floats_of_a_mechanism_are_ids_by_their_type(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    values = floats(kind)
    columns = [values, list(values), tuple(values), objects(list(values)), pa.array(values), pd.Series(values)]
    for column in columns:
        assert hashed(bounded_rows.read_column(column, reads=can_identify)) == expected(kind)
    monkeypatch.setattr(memory_table, "as_id", as_text)
    assert hashed(bounded_rows.read_column(list(values), reads=can_identify)) != expected(kind)


@FLOATS
def test_the_floats_of_a_file_are_ids_by_their_type(kind: Any, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": floats(kind)}), tmp_path / "t.parquet")
    assert ids_of(located(tmp_path, "t.parquet")) == expected(kind)


def test_the_floats_of_sqlite_are_ids_by_their_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute("CREATE TABLE t (id REAL)")
        database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in floats(np.float64).tolist()])
        database.commit()
    monkeypatch.setenv("TABLE_URL", f"sqlite:///{tmp_path / 't.db'}")
    source = Source.locate(SourceSpec(sql="SELECT id FROM t ORDER BY rowid", url_env="TABLE_URL"), base=tmp_path)
    assert ids_of(source) == expected(np.float64)
    monkeypatch.setattr(query, "as_id", as_text)
    assert ids_of(source) != expected(np.float64)


@pytest.mark.parametrize(("declared", "kind"), [("real", np.float32), ("float8", np.float64), ("small", np.float32)])
def test_the_floats_of_postgres_are_ids_by_their_type(
    declared: str, kind: Any, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE DOMAIN small AS real")
        connection.execute(f"CREATE TABLE t (place int, id {declared})")
        for place, value in enumerate(floats(kind).tolist()):
            connection.execute("INSERT INTO t VALUES (%s, %s)", (place, value))
    monkeypatch.setenv("TABLE_URL", url)
    source = Source.locate(SourceSpec(sql="SELECT id FROM t ORDER BY place", url_env="TABLE_URL"), base=Path())
    assert ids_of(source) == expected(kind)
    monkeypatch.setitem(query.POSTGRES_ID_TYPES, 700, pa.float64())
    assert (ids_of(source) == expected(kind)) == (kind is np.float64)


def test_two_persons_whose_ids_were_rounded_to_one_count_in_no_run() -> None:
    ids = pd.Series([np.float32(2**24), np.float32(2**24 + 1), np.float32(7)], dtype=object)
    protection = Protection(unit="id", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
    coding = Coding(universe=Universe({"ward": Categorical(("a", "b"))}), protection=protection, window=None)
    source = Source.of(pd.DataFrame({"id": ids, "ward": ["a", "a", "b"]}))
    counted = [code for codes, _ in ingest(source, coding=coding, draws=Draws.fresh()).chunks() for code in codes[0]]
    assert counted == [1]


class Metres(float):
    """A float of a derived type."""


class Measured:
    """A value of unknown precision."""

    def __float__(self) -> float:
        return 7.0

    def __str__(self) -> str:
        return "7.0"


NO_IDS = [
    *(Metres(0.1), Metres(2**53), Measured(), 0.1j, 7 + 0j, np.longdouble(7), np.complex64(7), (0.1, "a"), [2.0**53]),
    *(Decimal("0.1"), Decimal("17.10"), (Decimal("7.5"), "a")),
    *(pa.scalar(7.0), pa.scalar(7), np.array(7.0), np.array([7.0]), Fraction(7), (np.float32(2**24), "a")),
]


@pytest.mark.parametrize("value", NO_IDS, ids=lambda value: type(value).__name__)
def test_no_other_float_is_an_id(value: Any) -> None:
    assert as_id(value) is None
