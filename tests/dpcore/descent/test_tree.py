"""The tree of a column at full resolution: partitions all the way down, and estimates that follow from noisy counts alone."""

from datetime import date, datetime
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.descent import TreeDescent, threshold
from dpcore.descent.partitions import Partition, divide, estimate, project
from dpcore.descent.tree import Tree, even_parts
from dpcore.tables.reading.encoding import encode
from dpcore.universe import Outside
from dpcore.universe.fine_days import FineDate, FineDatetime
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import MOST_CELLS, Fine, Scale

SHARE = Fraction(1, 10)
COLUMNS: dict[str, Fine] = {
    "integer": FineInteger(minimum=-50, maximum=9_949, missing=True),
    "number": FineNumber(scale=Scale.of(Fraction(0), Fraction(100), step=Fraction("0.01")), outside=Outside.OTHER),
    "date": FineDate(minimum=date(2025, 1, 15), maximum=date(2026, 12, 31), missing=True),
    "datetime": FineDatetime(minimum=datetime(2025, 1, 1, 8), maximum=datetime(2025, 3, 31, 18), step="minute"),
}


def descend(column: Fine, values: pa.Array, *, noise: float, seed: int = 1) -> TreeDescent:
    """Go down by counts with rounded Gaussian noise."""
    return finished(TreeDescent(column, share=SHARE), values, noise=noise, seed=seed)


def finished(descent: TreeDescent, values: pa.Array, *, noise: float, seed: int) -> TreeDescent:
    column, rng, levels = descent._template, np.random.default_rng(seed), 0
    while (candidates := descent.candidates) is not None:
        codes = encode(candidates, values)
        true = np.bincount(codes[codes >= 0], minlength=candidates.size)
        assert true.sum() == (encode(column, values) >= 0).sum()  # a partition of the rows of the release
        noisy = np.rint(true + noise * rng.normal(size=true.size)).astype(np.int64)
        descent.take(noisy, least=threshold(true.size, noise=noise, laplace=False), noise=noise)
        levels += 1
    assert levels <= descent.levels
    return descent


def values_of(name: str, rows: int = 5000) -> pa.Array:
    rng = np.random.default_rng(2)
    if name == "integer":
        return pa.array(np.where(rng.random(rows) < 0.4, 40, rng.integers(-100, 5000, rows)))
    if name == "number":
        return pa.array(np.where(rng.random(rows) < 0.4, 12.34, np.round(rng.lognormal(2, 1, rows), 2)))
    if name == "date":
        return pa.array((np.datetime64("2025-01-13") + 7 * rng.integers(0, 100, rows)).astype("datetime64[D]"))
    minutes = rng.integers(0, 80, rows) * 1440 + np.where(rng.random(rows) < 0.5, 570, rng.integers(480, 1080, rows))
    return pa.array(np.datetime64("2025-01-01T00:00:00") + minutes.astype("timedelta64[m]").astype("timedelta64[s]"))


@pytest.mark.parametrize("name", COLUMNS)
def test_every_level_is_a_partition_and_the_counts_of_the_cells_are_near_the_truth(name: str) -> None:
    column, values = COLUMNS[name], values_of(name)
    descent = descend(column, values, noise=5.0)
    found = descent.found()
    counts, noise = descent.evidence()
    codes = encode(found, values)
    true = np.bincount(codes[codes >= 0], minlength=found.size)
    assert counts.shape == (found.size,)
    assert found.cells <= MOST_CELLS
    assert counts.min() >= 0
    assert noise == 8.0
    assert np.sqrt(np.mean((counts - true) ** 2)) < 3 * noise


def test_an_atom_is_found_and_released_as_often_as_it_occurs() -> None:
    for name, atom in (("integer", 40), ("number", 12.34)):
        values = values_of(name)
        found = descend(COLUMNS[name], values, noise=10.0).found()
        codes = encode(found, values)
        drawn = found.decode(codes[codes >= 0], np.random.default_rng(3)).to_numpy(zero_copy_only=False)
        assert np.mean(drawn == atom) == pytest.approx(0.4, abs=0.03)


def last_place(*, ends: bool) -> float:
    """Return the mean error of the count of the last of 100,000 places, which has 244 of 5,000 rows, at a noise that hides its neighbours."""
    column, errors = FineInteger(minimum=0, maximum=99_999), []
    many = np.random.default_rng(5).integers(1, 99_999, 256)
    values = pa.array(
        np.concatenate([np.zeros(4000), np.full(500, 15_024), many, np.full(244, 99_999)]).astype(np.int64)
    )
    for seed in range(8):
        descent = TreeDescent(column, share=SHARE)
        if not ends:
            descent._tree = Tree(column.places, parts=even_parts(column.places), apart=0)
        leaves = finished(descent, values, noise=70.0, seed=seed).found().leaves
        assert leaves is not None
        width = leaves.size - leaves.starts[-1]
        errors.append(abs(leaves.masses[-1] / width / 1000 - 244))
    return float(np.mean(errors))


def test_both_ends_of_a_range_are_counted_alone() -> None:
    found = descend(COLUMNS["integer"], values_of("integer"), noise=20.0).found()
    assert found.leaves is not None
    assert found.leaves.starts[1] == 1
    assert found.leaves.starts[-1] == found.places - 1
    assert last_place(ends=True) < 75
    assert last_place(ends=False) > 100


def test_mondays_stay_mondays_even_where_days_do_not_stand_out() -> None:
    found = descend(COLUMNS["date"], values_of("date"), noise=60.0).found()
    drawn = found.decode(np.zeros(500, dtype=np.int64), np.random.default_rng(3)).to_pylist()
    assert np.mean([day.weekday() == 0 for day in drawn]) > 0.8
    assert min(drawn) >= date(2025, 1, 15)


def weekday_error(found: FineDate, values: pa.Array, masses: npt.NDArray[np.float64]) -> float:
    """Return the L1 error of the shares of weekdays by the masses of leaves that are single days."""
    true = np.bincount([day.weekday() for day in values.to_pylist()], minlength=7) / len(values)
    assert found.leaves is not None
    assert len(masses) == found.places
    return float(np.abs(np.bincount(found.weekdays, weights=masses, minlength=7) / masses.sum() - true).sum())


def test_weekdays_have_their_shares_where_single_days_stand_out_too() -> None:
    """The noise of each day is a third of its rows. The tree of the week counts all days of a weekday at once."""
    rng, column = np.random.default_rng(4), FineDate(minimum=date(2025, 1, 1), maximum=date(2025, 12, 30))
    days = np.arange(column.places)
    often = np.array([9.0, 8.0, 8.0, 10.0, 12.0, 4.0, 2.0])[column.weekdays]
    drawn = rng.choice(days, 60_000, p=often / often.sum())
    values = pa.array((np.datetime64("2025-01-01") + drawn).astype("datetime64[D]"))
    descent = descend(column, values, noise=50.0)
    found = descent.found()
    assert isinstance(found, FineDate)
    assert found.leaves is not None
    assert weekday_error(found, values, np.array(found.leaves.masses, dtype=np.float64)) < 0.01
    alone = descent._tree.estimate()  # the control: without what the week says
    assert weekday_error(found, values, alone[: column.places]) > 0.03


def test_no_day_takes_the_rows_of_its_week() -> None:
    """A child that stands out by chance keeps no more than its share and what stands out of it. Its siblings keep theirs."""
    noise, even = np.full(7, 100.0), np.ones(7)
    chance = divide(560.0, np.array([360.0, 50, 20, 40, 10, 50, 30]), noise=noise, widths=even)
    assert chance.max() < 200
    assert chance.min() > 40
    atom = divide(560.0, np.array([530.0, 5, 20, -40, 10, 50, -15]), noise=noise, widths=even)
    assert atom[0] > 500
    whole_range = divide(560.0, np.array([360.0, 50, 20, 40, 10, 50, 30]), noise=noise, widths=even, is_range=True)
    assert whole_range.tolist() == [560.0, 0, 0, 0, 0, 0, 0]  # most of a declared range may be empty


def test_times_follow_the_week_and_are_whole_steps() -> None:
    found = descend(COLUMNS["datetime"], values_of("datetime"), noise=5.0).found()
    drawn = found.decode(np.arange(3000) % found.cells, np.random.default_rng(3)).to_pylist()
    assert all(each.second == 0 for each in drawn)
    assert np.mean([(each.hour, each.minute) == (9, 30) for each in drawn]) == pytest.approx(0.5, abs=0.06)
    assert np.mean([8 <= each.hour < 18 for each in drawn]) > 0.95


def test_empty_parts_of_the_range_stay_empty() -> None:
    column = FineInteger(minimum=0, maximum=999_999)
    values = pa.array(np.random.default_rng(1).integers(0, 1000, 10_000))
    beyond = []
    for seed in range(20):
        descent = descend(column, values, noise=30.0, seed=seed)
        counts, _ = descent.evidence()
        rows = np.repeat(np.arange(len(counts)), counts)
        beyond.append(np.mean(descent.found().decode(rows, np.random.default_rng(1)).to_numpy() > 2000))
    clipped = np.maximum(30 / np.sqrt(7) * np.random.default_rng(1).normal(size=(20, 15)), 0).sum(axis=1) / 10_000
    assert np.mean(beyond) < 0.0015
    assert (
        clipped.mean() > 0.005
    )  # the control: noise that is only clipped at zero fills the fifteen empty nodes of the first level


def test_the_same_noisy_counts_lead_to_the_same_column() -> None:
    one, other = (descend(COLUMNS["integer"], values_of("integer"), noise=20.0, seed=4) for _ in range(2))
    assert one.found() == other.found()
    assert np.array_equal(one.evidence()[0], other.evidence()[0])


@settings(max_examples=30)
@given(st.lists(st.integers(-1000, 1000), min_size=1), st.randoms(use_true_random=False))
def test_whatever_the_noise_says_there_is_an_answer(noise: list[int], chance: object) -> None:
    for column in COLUMNS.values():
        descent = TreeDescent(column, share=SHARE)
        while (candidates := descent.candidates) is not None:
            drawn = np.array([chance.choice(noise) for _ in range(candidates.size)], dtype=np.int64)  # type: ignore[attr-defined]
            descent.take(drawn, least=900, noise=200.0)
        found = descent.found()
        assert 1 <= found.cells <= MOST_CELLS
        codes = np.arange(found.cells)
        assert np.array_equal(encode(found, found.decode(codes, np.random.default_rng(1))), codes)


def test_children_that_stand_out_keep_their_counts_and_the_others_follow_their_parent() -> None:
    noise, widths = np.full(4, 10.0), np.array([1.0, 1.0, 2.0, 4.0])
    alone = divide(500.0, np.array([495.0, 12.0, -9.0, 2.0]), noise=noise, widths=widths)
    assert alone.tolist() == [500.0, 0.0, 0.0, 0.0]
    none = divide(40.0, np.array([12.0, 9.0, 8.0, 11.0]), noise=noise, widths=widths)
    assert none == pytest.approx(40 * widths / 8)  # equal density: the counts differ by less than their noise
    both = divide(300.0, np.array([150.0, 50.0, 60.0, 40.0]), noise=noise, widths=widths)
    assert both == pytest.approx(project(np.array([150.0, 50.0, 60.0, 40.0]), 300.0))


def test_rows_that_do_not_stand_out_lie_near_those_that_do_and_not_at_the_end_of_the_range() -> None:
    counts = np.array(
        [900, 70, 60, 65, 70, 400]
    )  # the last one counts nulls, which are no neighbours of the range's end
    level = Partition(np.arange(5) * 10, np.zeros(6, dtype=np.int64), counts, noise=30.0, apart=1)
    found = estimate([level], size=50)
    assert found.sum() == pytest.approx(counts.sum())
    assert found[1] > found[2] > found[3] > found[4]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8), st.floats(0.1, 500))
def test_a_projection_is_non_negative_and_has_its_sum(counts: list[float], total: float) -> None:
    projected = project(np.array(counts), total)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(total)


def test_a_level_that_is_counted_again_makes_the_estimate_more_precise() -> None:
    def level(counts: list[int], parents: list[int]) -> Partition:
        starts: npt.NDArray[np.int64] = np.array([0, 4])
        return Partition(starts, np.array(parents), np.array(counts), noise=10.0, apart=0)

    levels = [level([400, 600], [0, 0]), level([420, 580], [0, 1])]
    assert estimate(levels, size=8).tolist() == [410.0, 590.0]
