"""`errors.parquet` says what `dpflow answer` says, of every count of columns, pairs and measured marginals, and is joined with the rows by its keys."""

from itertools import combinations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import answer
from dpcore.answers import errors as errors_module
from dpcore.answers.errors import errors_of, listed_marginals
from dpcore.answers.intervals import Intervals
from dpcore.answers.release import Release, open_release
from dpcore.release.keys import key_columns
from dpcore.tables.reading.encoding import encode_rows
from tests.dpcore.answers.releases import DENSE, make_release, table

ROWS = 2000
NOISY = DENSE.replace("STRATEGY", "{name: mwem}").replace("epsilon: 20", "epsilon: 1")


@pytest.fixture(scope="module")
def listed(kinds: Release) -> pa.Table:
    return pq.read_table(kinds.folder / "errors.parquet")


def of_columns(listed: pa.Table, *names: str) -> pa.Table:
    return listed.filter(pa.array([columns == list(names) for columns in listed["attributes"].to_pylist()]))


def test_every_column_and_pair_and_every_measured_marginal_is_listed_once(kinds: Release, listed: pa.Table) -> None:
    names = kinds.universe.names
    columns = [tuple(own) for own in listed["attributes"].to_pylist()]
    expected = [(name,) for name in names] + list(combinations(names, 2))
    measured = [tuple(sorted(measurement.axes)) for measurement in kinds.measurements]
    expected += [tuple(names[axis] for axis in axes) for axes in measured if len(axes) > 2 and max(axes) < len(names)]
    left_out = [tuple(own) for own in kinds.manifest["errors"]["left_out_marginals"]]
    assert sorted(set(columns)) == sorted(set(expected) - set(left_out))
    assert len(list(dict.fromkeys(columns))) == kinds.manifest["errors"]["marginals"]
    for own in list(dict.fromkeys(columns))[::9]:
        assert np.sum(of_columns(listed, *own)["count"].to_numpy()) == pytest.approx(kinds.model.total, rel=1e-3)


def test_the_figures_are_those_of_an_answer(kinds: Release, listed: pa.Table) -> None:
    asked = answer(kinds, "select sex, city, count(*) as n from release group by sex, city")
    counts = of_columns(listed, "sex", "city").to_pandas()
    assert len(counts) == len(asked) == 3 * 5
    for name, column in (("n", "count"), ("n_low", "low"), ("n_high", "high")):
        assert np.allclose(np.sort(asked[name].astype(float)), np.sort(counts[column]), atol=0.07)
    assert set(asked.n_basis) == set(counts.basis)
    assert np.allclose(counts.half_width, (counts.high - counts.low) / 2, atol=0.1)
    assert (counts.expected_error < counts.half_width).all()


def test_every_row_belongs_to_one_count_of_each_marginal(kinds: Release, listed: pa.Table) -> None:
    """The join of the guide, for each kind of column."""
    rows = pq.read_table(kinds.folder / "data")
    names = {
        name: {key.field.name.rpartition("_")[2]: key.field.name for key in keys}
        for name, keys in key_columns(kinds.universe, taken=()).items()
    }
    for pair in (("sex", "city"), ("grade", "age"), ("smoker", "children"), ("weight", "cost"), ("born", "seen")):
        marginal = of_columns(listed, *pair)
        conditions = " and ".join(_matches(name, names[name]) for name in pair)
        ((joined, distinct),) = duckdb.sql(
            f"select count(*), count(distinct number) from (select *, row_number() over () as number from rows) r join marginal e on {conditions}"
        ).fetchall()
        assert joined == distinct == rows.num_rows
        assert marginal.num_rows > 1


def _matches(name: str, keys: dict[str, str]) -> str:
    low, high, values, null = map(keys.get, ("low", "high", "values", "null"))
    within = f"r.{name} >= e.{low} and r.{name} < e.{high}" if low else f"list_contains(e.{values}, r.{name})"
    return f"(({within}) or (e.{null} and r.{name} is null))" if null else f"({within})"


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release with much noise, always the same."""
    with seeded(7):
        return open_release(make_release(tmp_path_factory.mktemp("noisy"), NOISY, rows=ROWS))


def test_expected_errors_are_about_as_large_as_errors_are(noisy: Release) -> None:
    codes, _ = encode_rows(noisy.universe, pa.Table.from_pandas(table(ROWS, seed=1)[list(noisy.universe.names)]))
    intervals, shape = Intervals(noisy), noisy.universe.shape
    expected, real = [], []
    for axes in combinations(range(len(shape)), 2):
        errors = errors_of(intervals, noisy.universe, axes)
        truth = np.zeros([shape[axis] for axis in axes])
        np.add.at(truth, tuple(np.asarray(codes[axis]) for axis in axes), 1)
        expected.append(errors.share)
        real.append(np.abs(truth.ravel() - errors.counts).sum() / ROWS)
    assert 0.7 < np.mean(expected) / np.mean(real) < 2.0
    assert np.corrcoef(expected, real)[0, 1] > 0.5  # it tells good tables from bad ones


def test_marginals_that_were_computed_beforehand_have_the_same_errors(noisy: Release) -> None:
    plain, keeping = Intervals(noisy), Intervals(noisy)
    keeping.ensemble.keep([(0, 1), (2,)])
    for axes in ((0, 1), (2,), (1, 3)):
        computed, stored = (errors_of(intervals, noisy.universe, axes) for intervals in (plain, keeping))
        assert np.allclose(computed.counts, stored.counts)
        assert np.allclose(computed.interval.high, stored.interval.high)


def test_too_many_cells_are_left_out_the_largest_marginals_first(
    noisy: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = list(combinations(range(5), 2))
    sizes = noisy.universe.shape
    monkeypatch.setattr(errors_module, "MOST_CELLS", sum(sizes) + 40)
    listed, left_out = listed_marginals(noisy.universe, pairs)
    assert listed[:5] == ((0,), (1,), (2,), (3,), (4,))
    assert set(listed[5:]) | set(left_out) == set(pairs)
    assert left_out
    cells = [sizes[first] * sizes[second] for first, second in left_out]
    assert min(cells) >= max(sizes[first] * sizes[second] for first, second in listed[5:])
