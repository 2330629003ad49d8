"""Count all pairs of columns of a Parquet table with dpcore and with DuckDB, each in its own process."""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ingest_table import COLUMNS, UNIVERSE, encoded
from benchmarks.release_cost import peak_memory_mb

PAIRS = tuple(combinations(range(len(COLUMNS)), 2))
OURS = "dpflow"

Counts = list[np.ndarray]


@dataclass(frozen=True)
class Run:
    """The cost of one way of counting, measured after its process's imports, and its counts."""

    seconds: float
    cpu_seconds: float
    peak_memory_mb: float
    counts: Counts


def run(way: str, path: str) -> Run:
    """Count all pairs of the table at a path, in a separate process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (way, path))


def _run(way: str, path: str) -> Run:
    with tempfile.TemporaryDirectory(prefix="dpflow-private-") as private:
        os.environ["DPFLOW_PRIVATE"] = private
        count = _ours() if way == OURS else _duckdb(PLANS[way])
        begin, cpu = time.perf_counter(), time.process_time()
        counts = count(path)
        return Run(time.perf_counter() - begin, time.process_time() - cpu, peak_memory_mb(), counts)


def _ours() -> Callable[[str], Counts]:
    """Return dpcore's way of counting: what a run does from the source to the counts for a selection. Imports happen here, before the clock starts."""
    from dpcore.privacy.protection import Neighbours, Protection  # noqa: PLC0415
    from dpcore.spec.source import SourceSpec  # noqa: PLC0415
    from dpcore.tables.histogram import LocalHistogram  # noqa: PLC0415
    from dpcore.tables.ingest import Fingerprint, Source, ingest  # noqa: PLC0415
    from dpcore.tables.ingest.coding import Coding  # noqa: PLC0415
    from dpcore.tables.ingest.draws import Draws  # noqa: PLC0415

    def count(path: str) -> Counts:
        source = Source.locate(SourceSpec(path=path), base=Path())
        by_row = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
        coding = Coding(universe=UNIVERSE, protection=by_row, window=None)
        fingerprint = Fingerprint(bytes(32))
        records = ingest(source, coding=coding, draws=Draws.fresh(), fingerprint=fingerprint)
        histogram = LocalHistogram.count(records, UNIVERSE)
        histogram.prepare(PAIRS)
        return [histogram.marginal(pair) for pair in PAIRS]

    return count


def _duckdb(plan: Callable[[Any, str], Counts]) -> Callable[[str], Counts]:
    import duckdb  # noqa: PLC0415

    def count(path: str) -> Counts:
        with duckdb.connect() as connection:
            connection.execute(f"SET threads = {os.cpu_count()}")
            return plan(connection, path)

    return count


def _by_pair(connection: Any, table: str) -> Counts:
    return [_counted(connection, _pair(pair, table), pair) for pair in PAIRS]


def _by_grouping_sets(connection: Any, table: str) -> Counts:
    names = list(COLUMNS)
    sets = ", ".join(f"({names[first]}, {names[second]})" for first, second in PAIRS)
    listed = ", ".join(names)
    found = connection.execute(
        f"SELECT {listed}, count(*) AS rows FROM {table} GROUP BY GROUPING SETS ({sets})"  # noqa: S608  our own names
    ).fetchnumpy()
    # Codes are never null, so a null means that the column is not in the grouping set.
    given = np.array([~np.ma.getmaskarray(found[name]) for name in names])
    counts = []
    for pair in PAIRS:
        rows = given[pair[0]] & given[pair[1]]
        counts.append(_dense({name: np.asarray(column)[rows] for name, column in found.items()}, pair))
    return counts


def _encoded_first(count: Callable[[Any, str], Counts]) -> Callable[[Any, str], Counts]:
    def plan(connection: Any, path: str) -> Counts:
        connection.execute(f"CREATE TEMP TABLE coded AS {encoded(path)}")
        return count(connection, "coded")

    return plan


def _from_file(count: Callable[[Any, str], Counts]) -> Callable[[Any, str], Counts]:
    return lambda connection, path: count(connection, f"({encoded(path)})")


PLANS: dict[str, Callable[[Any, str], Counts]] = {
    "a table of codes, then 91 queries": _encoded_first(_by_pair),
    "a table of codes, then grouping sets": _encoded_first(_by_grouping_sets),
    "grouping sets of the file": _from_file(_by_grouping_sets),
    "91 queries of the file": _from_file(_by_pair),
}


def _pair(pair: tuple[int, int], table: str) -> str:
    first, second = (list(COLUMNS)[axis] for axis in pair)
    return f"SELECT {first}, {second}, count(*) AS rows FROM {table} GROUP BY {first}, {second}"  # noqa: S608  our own names


def _counted(connection: Any, query: str, pair: tuple[int, int]) -> np.ndarray:
    return _dense(connection.execute(query).fetchnumpy(), pair)


def _dense(found: dict[str, Any], pair: tuple[int, int]) -> np.ndarray:
    names = list(COLUMNS)
    counts = np.zeros([UNIVERSE.shape[axis] for axis in pair], dtype=np.int64)
    counts[tuple(np.asarray(found[names[axis]], dtype=np.intp) for axis in pair)] = found["rows"]
    return counts
