"""The benchmark of growth: the tables it makes, the figures it draws from runs, and a small run of it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from pyarrow import parquet

from benchmarks.growth import CHUNK_ROWS, FOLLOWS, LARGEST_ROWS, VALUES, GrowthTable, Measured, figures
from benchmarks.release_cost import STEPS, peak_memory_mb
from dpcore.spec import load_spec
from dpcore.tables.reading.encoding import encode_rows

ROOT = Path(__file__).parents[2]


def _run(rows: int, columns: int, seconds: float, megabytes: float = 100) -> Measured:
    return Measured(rows, columns, seconds, megabytes, {})


def test_growth_with_the_rows_is_linear_within_the_tolerance() -> None:
    got = figures("rows", [_run(1000, 14, 1.0), _run(10_000, 14, 5.0), _run(100_000, 14, 55.0)])
    assert [step["exponent"] for step in got["ratios"]] == pytest.approx([0.699, 1.041], abs=1e-3)
    assert got["bars"] == {"exponent <= 1": True}


def test_one_pair_of_sizes_that_grows_too_fast_misses_the_bar() -> None:
    assert figures("rows", [_run(10, 14, 1.0), _run(100, 14, 13.0)])["bars"] == {"exponent <= 1": False}
    assert figures("columns", [_run(1, 10, 1.0), _run(1, 20, 4.0), _run(1, 40, 32.0)])["bars"] == {
        "exponent <= 2": False
    }
    assert figures("columns", [_run(1, 10, 1.0), _run(1, 20, 4.0)])["bars"] == {"exponent <= 2": True}


@pytest.mark.parametrize(("megabytes", "holds"), [(1999.0, True), (2000.0, False)])
def test_memory_has_a_bar_at_the_largest_table_only(megabytes: float, *, holds: bool) -> None:
    small, large = _run(LARGEST_ROWS // 10, 14, 1.0, 5000), _run(LARGEST_ROWS, 14, 9.0, megabytes)
    assert figures("rows", [small, large])["bars"]["memory < 2,000 MB"] is holds
    assert list(figures("rows", [small])["bars"]) == ["exponent <= 1"]


def test_a_table_is_the_same_for_the_same_seed_and_has_the_rows_asked_for(tmp_path: Path) -> None:
    rows = CHUNK_ROWS + 5
    GrowthTable(columns=3, seed=1).write(tmp_path / "one.parquet", rows=rows)
    one = parquet.read_table(tmp_path / "one.parquet")
    assert (one.num_rows, one.column_names) == (rows, ["c00", "c01", "c02"])
    assert one.slice(0, 100).equals(GrowthTable(columns=3, seed=1).chunk(0, CHUNK_ROWS).slice(0, 100))
    assert not one.slice(0, 100).equals(GrowthTable(columns=3, seed=2).chunk(0, CHUNK_ROWS).slice(0, 100))


def test_columns_depend_on_their_parents() -> None:
    table = GrowthTable(columns=2, seed=3).chunk(0, 20_000)
    parent, child = (table.column(name).to_numpy() for name in table.column_names)
    together = np.bincount(parent * VALUES + child, minlength=VALUES**2).reshape(VALUES, VALUES)
    guessed = together.max(axis=1).sum() / len(child)
    shuffled = np.bincount(parent * VALUES + np.random.default_rng(1).permutation(child), minlength=VALUES**2)
    by_chance = shuffled.reshape(VALUES, VALUES).max(axis=1).sum() / len(child)
    assert guessed > FOLLOWS
    assert by_chance < 0.5  # the control: without dependence a parent says little


def test_the_table_lies_within_the_universe_it_declares(tmp_path: Path) -> None:
    table = GrowthTable(columns=4, seed=1)
    spec = {
        "dataset": "growth",
        "source": {"path": "table.parquet"},
        "privacy": {"unit": "row", "neighbours": "add-remove", "epsilon": 1.0, "delta": 1e-9},
        "universe": table.universe(),
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    universe = load_spec(tmp_path / "spec.yaml").universe
    assert universe.shape == (VALUES,) * 4
    assert len(encode_rows(universe, table.chunk(0, 300))[0][0]) == 300


def test_a_small_run_has_the_cost_of_every_step() -> None:
    options = ["--by", "rows", "--sizes", "500", "--rounds", "1", "--quick", "--json"]
    block = np.ones(50_000_000)  # of this process, and not of the one that is measured
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", *options], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert said, "500 rows are too few"
    assert all(line.startswith("warning: columns drawn each by itself") for line in said), said
    result = json.loads(done.stdout)["rows"]
    assert [run["rows"] for run in result["runs"]] == [500]
    for run in result["runs"]:
        assert list(STEPS) == [step for step in STEPS if step in run["steps"]]
        assert 0 < sum(run["steps"].values()) <= run["cpu_seconds"]
        assert 50 < run["peak_memory_mb"] < peak_memory_mb() - block.nbytes / 1e6 / 2
