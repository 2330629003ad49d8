"""Trees lose long tails in their noise, and the times of the week are noisy, too: intervals include both."""

from datetime import date, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from benchmarks.coverage_releases import seeded
from benchmarks.resolution import mostly_zero
from dpcore import answer, open_release, sample
from dpcore.answers import spreads
from dpcore.answers.cells import Column
from dpcore.answers.ensemble import Ensemble
from dpcore.answers.leaf_tree import TreeNoise
from dpcore.answers.spreads import noisy, with_hidden, with_noisy_week
from dpcore.universe import leaves as leaves_module
from dpcore.universe.fine_days import FineDate, FineDatetime, FineDays
from dpcore.universe.fine_numbers import FineInteger
from dpcore.universe.leaves import Leaves
from dpcore.universe.spreading import spread_of
from tests.dpcore.answers.releases import make_release

NODE = 625  # the width of a node of the first level
NOISE = TreeNoise(deviation=40.0, levels=4)


def column() -> FineInteger:
    """A column whose tree has found 4,000 rows below 1,250, and nothing in all 14 nodes above."""
    leaves = Leaves(starts=tuple(range(0, 16 * NODE, NODE)), masses=(3_000_000, 1_000_000, *[0] * 14), size=16 * NODE)
    return FineInteger(minimum=0, maximum=16 * NODE - 1).cut_at((NODE,), leaves=leaves)


def mean(spread: spreads.Spread) -> float:
    """Return the mean of the 4,000 rows, of which each cell keeps its own."""
    varied = Column.of(column(), []).spread_by(spread)
    return float(np.average(varied.means, weights=[3000.0, 1000.0]))


def test_a_tail_that_a_tree_has_lost_is_within_reach_and_without_hidden_rows_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = spread_of(column())
    lost = 20 * np.sqrt(14)  # a standard deviation of the sum of the empty nodes, each of which was counted four times
    truth = mean(usual) + lost / 4000 * (
        2 * NODE + NODE - 1.5 * NODE
    )  # rows of the second node that lie in the third to fifth
    assert mean(usual) < truth < mean(with_hidden(column(), NOISE)[0])
    monkeypatch.setattr(spreads, "HIDDEN", 0.0)
    assert mean(with_hidden(column(), NOISE)[0]) == pytest.approx(mean(usual))


def test_hidden_rows_are_limited_and_move_to_no_other_cell() -> None:
    spread, _ = with_hidden(column(), TreeNoise(deviation=1e6, levels=4))
    assert spread.below(np.array([NODE])).tolist() == [1.0]
    assert spread.below(np.array([2 * NODE]))[0] < 2.0
    assert 0.0 < mean(spread) < 16 * NODE


def test_rows_that_noise_may_have_made_in_a_far_node_may_be_near() -> None:
    masses = (3_000_000, *[0] * 14, 30_000, 20_000)  # one node of the range, split, that does not stand out
    leaves = Leaves(starts=(*range(0, 16 * NODE, NODE), 16 * NODE - 89), masses=masses, size=16 * NODE)
    attribute = FineInteger(minimum=0, maximum=16 * NODE - 1).cut_at((NODE,), leaves=leaves)
    even, near = with_hidden(attribute, NOISE)
    assert even.below(np.array([8 * NODE, 16 * NODE])) == pytest.approx([1 + 7 / 15, 2])
    assert near.below(np.array([2 * NODE])).tolist() == [2.0]


def test_nothing_is_hidden_without_noise() -> None:
    usual = spread_of(column())
    for spread in with_hidden(column(), TreeNoise(deviation=0.0, levels=4)):
        assert mean(spread) == pytest.approx(mean(usual))


def test_the_deviation_within_a_cell_is_that_of_its_values() -> None:
    leaves = Leaves(starts=(0, 10, 12), masses=(6_000, 3_000, 1_000), size=20)
    attribute = FineInteger(minimum=0, maximum=19).cut_at((10,), leaves=leaves)
    second = np.concatenate([np.repeat([10, 11], 12), np.repeat(np.arange(12, 20), 1)])  # 3 to 1, evenly within leaves
    seen = Column.of(attribute, [])
    assert seen.means[1] == pytest.approx(second.mean())
    assert seen.deviations.tolist() == pytest.approx([np.arange(10).std(), second.std()])


SPEC = """\
dataset: zeros
privacy: {unit: row, neighbours: add-remove, epsilon: 1, delta: 1e-9}
universe:
  heavy: {type: integer, min: 0, max: 20000, share: 0.01}
  liens: {type: integer, min: 0, max: 100, share: 0.01}
  never: {type: integer, min: 0, max: 20000, share: 0.01}
workload: {marginals: 2}
strategy: {name: mwem, rounds: 3}
"""
MOSTLY_ZERO = mostly_zero()[1][["heavy", "liens", "never"]]


@pytest.fixture(scope="module")
def mostly_zero_releases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Releases of columns whose values are mostly 0, and too few otherwise to stand out of the noise of a tree."""
    folders = []
    for seed in (2, 3):
        with seeded(seed):
            folders.append(make_release(tmp_path_factory.mktemp("zeros"), SPEC, frame=MOSTLY_ZERO))
    return folders


def means_of(releases: list[Path]) -> npt.NDArray[np.float64]:
    """Return for each release and column the true mean, that of rows drawn from it, and the ends of the interval of its answer."""
    spread_of.cache_clear()
    numbers = []
    for folder in releases:
        release = open_release(folder)
        rows = pa.concat_tables(sample(release, rows=len(MOSTLY_ZERO), seed=1)).to_pandas()
        for name in MOSTLY_ZERO:
            ends = answer(release, f"select avg({name}) as x from release").iloc[0]
            numbers.append([MOSTLY_ZERO[name].mean(), rows[name].mean(), ends.x_low, ends.x_high])
    spread_of.cache_clear()
    return np.array(numbers)


def test_means_of_columns_that_are_mostly_zero_and_of_their_rows_lie_within_their_intervals(
    mostly_zero_releases: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    true, rows, low, high = means_of(mostly_zero_releases).T
    assert ((low <= rows) & (rows <= high)).all()
    assert ((low <= true) & (true <= high)).all()
    monkeypatch.setattr(Ensemble, "hidden", lambda *_: {})  # the control: intervals that take all leaves as they are
    monkeypatch.setattr(leaves_module, "FARTHER", 1.0)  # and rows that may lie anywhere in the range
    true, even, low, high = means_of(mostly_zero_releases).T
    assert ((low <= true) & (true <= high)).mean() < 0.5
    assert (even >= 3 * rows).all()
    assert even.sum() > 3 * rows.sum()


def hours_of(attribute: FineDays, rows: float) -> npt.NDArray[np.float64]:
    """Return the rows in each hour of the day, of a column whose cells are as frequent as its leaves say."""
    segments = spread_of(attribute).segments
    return np.bincount(segments.low % 24, weights=segments.mass * rows / attribute.cells, minlength=24).astype(
        np.float64
    )


def test_the_times_of_the_week_vary_as_their_own_tree_was_noisy() -> None:
    """All days have the same hours, so noise in single days cancels out: only that of the tree of the week is left."""
    week = Leaves(starts=tuple(range(168)), masses=(60_000,) * 168, size=168)
    days = Leaves(starts=tuple(range(70)), masses=(144_000,) * 70, size=70)
    whole = FineDatetime(minimum=datetime(2025, 1, 6), maximum=datetime(2025, 3, 16, 23), step="hour")
    attribute = whole.cut_at([35], leaves=days, week=week)
    noise, rows = TreeNoise(20.0, 5), 10_080.0
    weeks = [with_noisy_week(attribute, noise, np.random.default_rng(seed)) for seed in range(200)]
    assert all(sum(varied.week.masses) == pytest.approx(10_080_000, rel=1e-4) for varied in weeks if varied.week)
    by_weekday = np.array([varied.weekday_rows for varied in weeks]) / 1000
    assert by_weekday.std(axis=0) == pytest.approx(20.0, rel=0.2)
    hours = np.array([hours_of(varied, rows) for varied in weeks])
    assert hours.mean(axis=0) == pytest.approx(420.0, rel=0.02)
    deviation = 20.0 * np.sqrt(7)  # an hour of the day is the sum of seven nodes
    assert hours.std(axis=0).mean() == pytest.approx(deviation, rel=0.25)
    segments = [noisy(attribute, noise, np.random.default_rng(seed)).segments for seed in range(50)]
    without = np.array(
        [np.bincount(days.low % 24, weights=days.mass * rows / attribute.cells, minlength=24) for days in segments]
    )
    assert without.std(axis=0).mean() < 0.6 * deviation  # the control: noise in the leaves of days alone is too little
    unchanged = whole.cut_at([35], leaves=days)
    assert with_noisy_week(unchanged, noise, np.random.default_rng(1)) is unchanged


def test_noise_in_days_leaves_weekdays_their_shares() -> None:
    week = Leaves(starts=tuple(range(7)), masses=(300_000, 100_000, 100_000, 100_000, 200_000, 150_000, 50_000), size=7)
    whole = FineDate(minimum=date(2025, 1, 6), maximum=date(2025, 12, 28))
    shares = np.array(week.masses) / 1_000_000
    masses = tuple((1000 * 1000 * shares[whole.weekdays] / 51).astype(int).tolist())
    attribute = whole.cut_at([], leaves=Leaves(starts=tuple(range(357)), masses=masses, size=357), week=week)
    segments = noisy(attribute, TreeNoise(2.0, 3), np.random.default_rng(1)).segments
    weekdays = np.bincount((segments.low + 3) % 7, weights=segments.mass, minlength=7)
    assert weekdays == pytest.approx(shares, rel=1e-3)
    days = segments.mass.reshape(51, 7)
    assert days.std(axis=0).min() > 0.0003  # while single days vary
