"""The benchmark of ingestion: its table, its peer's queries, and the bars."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from benchmarks import ingest_table
from benchmarks.ingest import figures
from benchmarks.ingest_runs import OURS, PAIRS, PLANS, Run
from benchmarks.ingest_table import COLUMNS, UNIVERSE, write
from dpcore.tables.reading.encoding import encode_rows

ROOT = Path(__file__).parents[2]
COUNTS = [np.array([[10, 0], [5, 5]])]
FAST = Run(seconds=2.0, cpu_seconds=3.0, peak_memory_mb=500.0, counts=COUNTS)
SLOW = Run(seconds=4.0, cpu_seconds=7.5, peak_memory_mb=900.0, counts=COUNTS)
LARGER = Run(seconds=6.0, cpu_seconds=9.0, peak_memory_mb=600.0, counts=[3 * COUNTS[0]])


def test_the_bars_hold_at_their_limits() -> None:
    got = figures(FAST, {"a": SLOW, "b": replace(SLOW, seconds=9.0)}, larger=LARGER, rows=20)
    assert got["peer"] == "a"
    assert (got["times_as_fast"], got["times_as_fast_by_cpu"], got["memory_growth"]) == (2.0, 2.5, 1.2)
    assert got[OURS]["rows_per_second"] == 10
    assert list(got["bars"].values()) == [True] * 4


@pytest.mark.parametrize(
    ("ours", "peer", "larger", "missed"),
    [
        (FAST, replace(SLOW, counts=[COUNTS[0] + 1]), LARGER, 0),
        (FAST, SLOW, replace(LARGER, counts=COUNTS), 0),
        (FAST, replace(SLOW, seconds=3.9), LARGER, 1),
        (replace(FAST, peak_memory_mb=1_500.0), SLOW, replace(LARGER, peak_memory_mb=1_500.0), 2),
        (FAST, SLOW, replace(LARGER, peak_memory_mb=601.0), 3),
    ],
)
def test_each_bar_can_be_missed(ours: Run, peer: Run, larger: Run, missed: int) -> None:
    bars = list(figures(ours, {"a": peer}, larger=larger, rows=20)["bars"].values())
    assert bars == [place != missed for place in range(4)]


def test_the_table_has_fourteen_columns_of_mixed_types_and_sizes_in_several_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_table, "GROUP_ROWS", 1_000)
    write(tmp_path / "a.parquet", rows=2_500, part=0)
    file = parquet.ParquetFile(tmp_path / "a.parquet")
    assert [file.metadata.row_group(group).num_rows for group in range(3)] == [1_000, 1_000, 500]
    assert len({str(field.type) for field in file.schema_arrow}) == 8
    assert len(COLUMNS) == 14
    assert (min(UNIVERSE.shape), max(UNIVERSE.shape)) == (2, 101)
    table = file.read()
    assert sum(column.null_count > 0 for column in table.columns) == 5
    assert len(encode_rows(UNIVERSE, table)[0][0]) == 2_500


def test_a_small_run_agrees_with_every_plan_of_the_peer() -> None:
    command = [sys.executable, "-m", "benchmarks.ingest", "--json", "--rows", "20000", "--repeats", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    got = json.loads(done.stdout)
    assert got["bars"]["counts agree"]
    assert got["marginals"] == len(PAIRS) == 91
    assert set(got["duckdb"]) == set(PLANS)
    assert all(costs["seconds"] > 0 for costs in (got[OURS], *got["duckdb"].values()))
