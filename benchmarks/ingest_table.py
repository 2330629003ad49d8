"""Generate a large table of mixed types to measure ingestion: fourteen columns, their universe, and the same cells in DuckDB's SQL."""

from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dpcore.universe import Attribute, Boolean, Categorical, Date, Datetime, Every, Integer, Number, Universe

GROUP_ROWS = 1 << 20
SEED = 11
FIRST_DAY, DAYS = 19_723, 731  # 2024 and 2025, in days since 1970
MICROSECONDS = 86_400 * 10**6
INCOMES = (0, 5e3, 1e4, 1.5e4, 2e4, 2.5e4, 3e4, 3.5e4, 4e4, 5e4, 6e4, 7e4, 8e4, 1e5, 1.25e5, 1.5e5, 2e5, 3e5, 5e5, 1e6)
WEIGHTS = tuple(20.0 + 2 * step for step in range(53))

Rows = np.random.Generator


@dataclass(frozen=True)
class Column:
    """One column: its attribute, and its code as an SQL expression."""

    attribute: Attribute
    cell: str


def _texts(word: str, count: int) -> tuple[str, ...]:
    return tuple(f"{word} {number:02}" for number in range(count))


def _listed(name: str, values: tuple[str, ...]) -> str:
    """Return an SQL expression for the position of a text in a list. Null comes after the last."""
    places = ", ".join(f"'{value}'" for value in values)
    return f"coalesce(list_position([{places}], {name}) - 1, {len(values)})"


def _between(name: str, edges: tuple[float, ...]) -> str:
    """Return an SQL expression for a number's bin between ascending edges, as a binary search. Null comes after the last."""

    def halved(low: int, high: int) -> str:
        if high - low == 1:
            return str(low)
        middle = (low + high) // 2
        return f"CASE WHEN {name} < {edges[middle]!r} THEN {halved(low, middle)} ELSE {halved(middle, high)} END"

    return f"CASE WHEN {name} IS NULL THEN {len(edges) - 1} ELSE {halved(0, len(edges) - 1)} END"


REGIONS, SEXES, DIAGNOSES, SCHOOLS = _texts("region", 12), ("F", "M"), _texts("code", 100), _texts("school", 16)

COLUMNS = {
    "region": Column(Categorical(REGIONS), _listed("region", REGIONS)),
    "sex": Column(Categorical(SEXES, missing=True), _listed("sex", SEXES)),
    "diagnosis": Column(Categorical(DIAGNOSES, missing=True), _listed("diagnosis", DIAGNOSES)),
    "school": Column(Categorical(SCHOOLS), _listed("school", SCHOOLS)),
    "age": Column(Integer(minimum=0, maximum=99, width=5), "least(greatest(age, 0), 99) // 5"),
    "visits": Column(Integer(minimum=0, maximum=30), "least(greatest(visits, 0), 30)"),
    "score": Column(Integer(minimum=1, maximum=10), "least(greatest(score, 1), 10) - 1"),
    "postcode": Column(Integer(minimum=0, maximum=999, width=10, missing=True), "coalesce(postcode // 10, 100)"),
    "income": Column(Number(INCOMES, missing=True), _between("income", INCOMES)),
    # exact, since the edges are whole numbers and the width is a power of two
    "weight": Column(Number(WEIGHTS), "least(greatest(floor((weight - 20) / 2), 0), 51)"),
    "visited": Column(
        Date(minimum=date(2024, 1, 1), maximum=date(2025, 12, 31), every=Every.MONTH),
        "(year(visited) - 2024) * 12 + month(visited) - 1",
    ),
    "admitted": Column(
        Datetime(minimum=datetime(2024, 1, 1), maximum=datetime(2025, 12, 31, 23, 59, 59), every=Every.QUARTER),  # noqa: DTZ001  the column has no zone
        "(year(admitted) - 2024) * 4 + quarter(admitted) - 1",
    ),
    "insured": Column(Boolean(missing=True), "coalesce(insured::INTEGER, 2)"),
    "smoker": Column(Boolean(), "smoker::INTEGER"),
}
UNIVERSE = Universe({name: column.attribute for name, column in COLUMNS.items()})


def encoded(path: str) -> str:
    """Return the query that reads a Parquet file as one-byte codes."""
    cells = ", ".join(f"({column.cell})::UTINYINT AS {name}" for name, column in COLUMNS.items())
    return f"SELECT {cells} FROM read_parquet('{path}')"  # noqa: S608  made of constants and of a path of ours


def write(path: Path, *, rows: int, part: int) -> None:
    """Write one part of the table as Parquet, row group by row group. The same arguments give the same rows."""
    writer = None
    for number, start in enumerate(range(0, max(rows, 1), GROUP_ROWS)):
        group = _group(np.random.default_rng((SEED, part, number)), min(GROUP_ROWS, rows - start))
        writer = writer or parquet.ParquetWriter(path, group.schema)
        writer.write_table(group)
    if writer is not None:
        writer.close()


def _group(rng: Rows, rows: int) -> pa.Table:
    age = np.clip(rng.normal(45, 22, rows), 0, 110).astype(np.int64)
    columns = {
        "region": _named(rng, REGIONS, rows, nulls=0),
        "sex": _named(rng, SEXES, rows, nulls=0.02),
        "diagnosis": _named(rng, DIAGNOSES, rows, nulls=0.05),
        "school": _named(rng, SCHOOLS, rows, nulls=0),
        "age": pa.array(age),
        "visits": pa.array(rng.poisson(1 + age / 15).astype(np.int32)),
        "score": pa.array(rng.integers(1, 11, rows).astype(np.int16)),
        "postcode": pa.array(rng.integers(0, 1_000, rows).astype(np.int32), mask=rng.random(rows) < 0.01),
        "income": pa.array(np.exp(rng.normal(10.5, 0.9, rows)), mask=rng.random(rows) < 0.03),
        "weight": pa.array(rng.normal(75, 16, rows)),
        "visited": pa.array((FIRST_DAY + rng.integers(0, DAYS, rows)).astype(np.int32)).cast(pa.date32()),
        "admitted": pa.array(rng.integers(FIRST_DAY * MICROSECONDS, (FIRST_DAY + DAYS) * MICROSECONDS, rows)).cast(
            pa.timestamp("us")
        ),
        "insured": pa.array(rng.random(rows) < 0.8, mask=rng.random(rows) < 0.05),
        "smoker": pa.array(rng.random(rows) < 0.2),
    }
    return pa.table(columns)


def _named(rng: Rows, values: tuple[str, ...], rows: int, *, nulls: float) -> pa.Array:
    """Draw texts with decreasing frequency: the first one most often."""
    chances = np.cumsum(1 / np.arange(1, len(values) + 1))
    places = np.searchsorted(chances / chances[-1], rng.random(rows), side="right").astype(np.int32)
    indices = pa.array(np.minimum(places, len(values) - 1), mask=rng.random(rows) < nulls)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values)).cast(pa.string())
