"""The benchmark tables: that each lies within the universe that its spec declares, and what the errors between two tables are."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks import workload_error as errors
from benchmarks.tables import SPECS, TABLES, BenchmarkTable, code, icd9_chapter, load, shared_data
from benchmarks.workload_error import (
    bootstrap,
    independent_columns,
    marginals_measured,
    measured_marginals,
    workload_error,
)
from dpcore.spec import load_spec
from dpcore.universe import Categorical, Integer, Universe

COLUMNS = {
    "adult7": 7,
    "adult_discretized": 14,
    "adult_full": 14,
    "nist_national2019": 24,
    "census_kdd": 42,
    "diabetes": 48,
}


def _table(columns: int = 4, rows: int = 500) -> BenchmarkTable:
    rng = np.random.default_rng(1)
    first = rng.integers(5, size=rows)
    frame = pd.DataFrame({f"c{number}": (first + rng.integers(2, size=rows)) % 5 for number in range(columns)})
    return code("made", frame, Universe({name: Integer(minimum=0, maximum=4) for name in frame}))


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_a_spec_that_says_unit_row(name: str) -> None:
    declaration = load_spec(SPECS / f"{name}.yaml")
    assert (declaration.spec.dataset, declaration.spec.privacy.unit) == (name, "row")
    assert len(declaration.universe.names) == COLUMNS[name]


@pytest.mark.parametrize("name", [name for name in TABLES if name != "census_kdd"])
def test_every_row_lies_within_the_declared_universe(name: str) -> None:
    skip_without_data()
    table = load(name)
    assert list(table.frame) == list(table.original) == list(table.sizes)
    assert len(table.frame) == len(table.original)
    assert (table.frame.max() < pd.Series(table.sizes)).all()
    assert (table.frame.min() >= 0).all()


def test_the_codes_of_adult_are_the_ones_of_the_literature() -> None:
    skip_without_data()
    table = load("adult_discretized")
    pd.testing.assert_frame_equal(table.frame, table.original)


def test_texts_nulls_and_columns_apart_are_coded_as_declared() -> None:
    universe = Universe({"sex": Categorical(("F", "M")), "age": Integer(minimum=0, maximum=99, width=10, missing=True)})
    original = pd.DataFrame({"id": [7, 8, 9], "age": ["12", "N", None], "sex": ["M", "F", "F"]})
    table = code("made", original, universe)
    assert table.frame.to_dict("list") == {"sex": [1, 0, 0], "age": [1, 10, 10]}
    assert table.sizes == {"sex": 2, "age": 11}
    assert table.coded(pa.table({"age": [99], "sex": ["F"]})).to_dict("list") == {"sex": [0], "age": [9]}


def test_a_row_outside_of_the_universe_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match=r"correct made\.yaml"):
        code("made", pd.DataFrame({"sex": ["F", "x"]}), Universe({"sex": Categorical(("F", "M"))}))


@pytest.mark.parametrize(
    ("diagnosis", "chapter"),
    [
        ("8", "001-139"),
        ("140", "140-239"),
        ("250", "250"),
        ("250.02", "250"),
        ("251", "240-279"),
        ("999", "800-999"),
        ("V45", "V"),
        ("E888", "E"),
    ],
)
def test_a_diagnosis_belongs_to_its_chapter(diagnosis: str, chapter: str) -> None:
    assert icd9_chapter(diagnosis) == chapter


def test_every_chapter_is_declared() -> None:
    chapters = {icd9_chapter(str(number)) for number in range(1, 1000)} | {"E", "V"}
    declared = load_spec(SPECS / "diabetes.yaml").universe.attributes["diag_1"]
    assert chapters == set(declared.labels) - {"missing"}


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_error_is_the_mean_distance_of_the_shares(order: int) -> None:
    table = _table()
    other = bootstrap(table, seed=3)
    distances = []
    for columns in combinations(table.sizes, order):
        true, made = (frame[list(columns)].value_counts(normalize=True) for frame in (table.frame, other))
        distances.append(true.sub(made, fill_value=0).abs().sum())
    assert workload_error(table, other, order=order) == pytest.approx(np.mean(distances))


def test_shuffled_columns_keep_one_way_marginals_and_lose_the_others() -> None:
    table = _table()
    shuffled = independent_columns(table, seed=1)
    assert workload_error(table, shuffled, order=1) == 0
    assert workload_error(table, shuffled, order=2) > 5 * workload_error(table, bootstrap(table, seed=1), order=2)


def test_of_many_marginals_always_the_same_ones_are_measured() -> None:
    names = [f"c{number:02}" for number in range(42)]
    chosen = measured_marginals(names, order=3)
    assert len(set(chosen)) == errors.MOST_MARGINALS
    assert chosen == sorted(chosen) == measured_marginals(names, order=3)
    assert measured_marginals(names[:5], order=2) == list(combinations(names[:5], 2))
    assert marginals_measured(5, order=2) == "all 10"


def test_a_sample_of_the_marginals_tells_about_the_error_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = workload_error(_table(8), independent_columns(_table(8), seed=1), order=3)
    monkeypatch.setattr(errors, "MOST_MARGINALS", 20)
    assert workload_error(_table(8), independent_columns(_table(8), seed=1), order=3) == pytest.approx(whole, rel=0.05)


def skip_without_data() -> None:
    """Skip a test of the benchmark tables if they are not here: they are never copied into the project."""
    try:
        folder = shared_data()
    except SystemExit:
        folder = Path("nowhere")
    if not (folder / "adult_discretized.parquet").exists():
        pytest.skip("the benchmark tables are not here; set DPFLOW_BENCH_DATA to where they are")
