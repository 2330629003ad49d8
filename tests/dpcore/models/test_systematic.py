"""Rows from a model: exact totals, the right expectation, and less error than independent draws."""

import math
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpcore.errors import UsageError
from dpcore.models import DenseModel
from dpcore.models.systematic import CHUNK_ROWS, sample_cells, sample_chunks

Sampler = Callable[[NDArray[np.float64], int, np.random.Generator], NDArray[np.int64]]

WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e3)), min_size=1, max_size=40).filter(any).map(np.array)


def ours(weights: NDArray[np.float64], rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return sample_cells(weights, rows, rng=rng)


def rounded_to_the_nearest(weights: NDArray[np.float64], rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sample wrongly: always the offset one half, which favours the same cells every time."""
    ends = np.cumsum(weights)
    return np.searchsorted(ends, (np.arange(rows) + 0.5) * ends[-1] / rows, side="right")


def late_offset(weights: NDArray[np.float64], rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sample wrongly: an offset that tends to the upper end."""
    ends = np.cumsum(weights)
    return np.searchsorted(ends, (np.arange(rows) + math.sqrt(rng.random())) * ends[-1] / rows, side="right")


def largest_deviation(sampler: Sampler, weights: NDArray[np.float64], *, rows: int, draws: int) -> float:
    """Return the worst cell's distance of its mean count from the expected one, in standard errors of rounding."""
    expected = rows * weights / weights.sum()
    counts = sum(
        np.bincount(sampler(weights, rows, np.random.default_rng(seed)), minlength=weights.size)
        for seed in range(draws)
    )
    part = expected % 1
    error = np.sqrt(part * (1 - part) / draws) + 1e-9
    return float(np.max(np.abs(counts / draws - expected) / error))


def test_every_cell_gets_its_expected_count_on_average() -> None:
    weights = np.random.default_rng(0).gamma(0.4, size=30)
    assert largest_deviation(ours, weights, rows=17, draws=2000) < 4.5


@pytest.mark.parametrize("biased", [rounded_to_the_nearest, late_offset])
def test_the_check_of_the_average_rejects_a_biased_sampler(biased: Sampler) -> None:
    weights = np.random.default_rng(0).gamma(0.4, size=30)
    assert largest_deviation(biased, weights, rows=17, draws=2000) > 6


@given(WEIGHTS, st.integers(0, 5000), st.integers(0, 2**32))
def test_counts_add_up_and_are_the_expected_ones_rounded_down_or_up(
    weights: NDArray[np.float64], rows: int, seed: int
) -> None:
    cells = sample_cells(weights, rows, rng=np.random.default_rng(seed))
    assert cells.dtype == np.int64
    assert cells.shape == (rows,)
    counts = np.bincount(cells, minlength=weights.size)
    assert counts.size == weights.size
    assert not counts[weights == 0].any()
    assert (np.abs(counts - rows * weights / weights.sum()) < 1 + 1e-9).all()


@given(WEIGHTS, st.integers(1, 500), st.integers(0, 2**32))
def test_every_run_of_neighbouring_cells_is_rounded_too(weights: NDArray[np.float64], rows: int, seed: int) -> None:
    counts = np.bincount(sample_cells(weights, rows, rng=np.random.default_rng(seed)), minlength=weights.size)
    ahead = np.cumsum(counts - rows * weights / weights.sum())
    assert ahead.max() - ahead.min() < 1 + 1e-9


def test_many_more_rows_than_cells_follow_the_distribution_to_one_row() -> None:
    counts = np.bincount(sample_cells(np.array([1.0, 2.0, 0.0, 1.0]), 1_000_000, rng=np.random.default_rng(0)))
    assert counts[2] == 0
    assert np.abs(counts - [250_000, 500_000, 0, 250_000]).max() <= 1


class LastMoment(np.random.Generator):
    """A generator whose uniform draws are the largest below one."""

    def random(self) -> float:  # type: ignore[override]
        return float(np.nextafter(1.0, 0.0))


@pytest.mark.parametrize("weights", [[1.0, 0.0], [0.1] * 10 + [0.0] * 3, [5e-324, 0.0], [1e300, 1e-300, 0.0]])
def test_rounding_at_the_very_end_draws_no_cell_without_weight(weights: list[float]) -> None:
    for rows in (1, 3, 7, 1000):
        cells = sample_cells(np.array(weights), rows, rng=LastMoment(np.random.PCG64(0)))
        assert (np.array(weights)[cells] > 0).all()


def test_the_same_seed_gives_the_same_rows_and_another_seed_others() -> None:
    weights = np.random.default_rng(0).random(50)
    first, again, other = (sample_cells(weights, 40, rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_the_order_of_rows_says_nothing_about_the_cells() -> None:
    cells = sample_cells(np.ones(2000), 2000, rng=np.random.default_rng(0))
    assert sorted(cells.tolist()) == list(range(2000))
    assert abs(np.corrcoef(cells, np.arange(2000))[0, 1]) < 0.1


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -0.5], [1.0, math.nan], [1.0, math.inf]])
def test_weights_that_are_no_distribution_are_refused(weights: list[float]) -> None:
    with pytest.raises(UsageError, match="Rows need a distribution"):
        sample_cells(np.array(weights), 3, rng=np.random.default_rng(0))


def test_a_negative_number_of_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="use 0 or more"):
        sample_cells(np.ones(3), -1, rng=np.random.default_rng(0))


def test_rows_of_a_model_are_codes_of_its_columns() -> None:
    model = DenseModel((3, 1, 4), total=1.0)
    model.assign({(0, 2): np.log(np.arange(1.0, 13.0).reshape(3, 4))})
    codes = model.rows(660, rng=np.random.default_rng(0))
    assert [column.dtype for column in codes] == [np.int64] * 3
    counts = np.zeros((3, 1, 4))
    np.add.at(counts, codes, 1)
    np.testing.assert_allclose(counts[:, 0, :], 660 / 78 * np.arange(1.0, 13.0).reshape(3, 4), atol=1)


def test_no_rows_of_a_model_are_a_column_of_no_codes_each() -> None:
    codes = DenseModel((3, 4), total=1.0).rows(0, rng=np.random.default_rng(0))
    assert [column.shape for column in codes] == [(0,), (0,)]


def test_rows_are_nearer_to_the_model_than_independent_draws() -> None:
    shape, rows = (6, 5, 7, 2, 4), 3000
    model = DenseModel(shape, total=rows)
    rng = np.random.default_rng(1)
    model.assign({axes: rng.normal(size=[shape[axis] for axis in axes]) for axes in combinations(range(5), 2)})

    def error(cells: NDArray[np.int64]) -> float:
        counts = np.bincount(cells, minlength=math.prod(shape)).reshape(shape) - rows * model.weights
        pairs = [tuple(set(range(5)) - set(pair)) for pair in combinations(range(5), 2)]
        return float(np.mean([np.abs(counts.sum(axis=left)).sum() for left in pairs]))

    weights = model.weights.ravel()
    drawn = np.repeat(np.arange(weights.size), rng.multinomial(rows, weights))
    assert error(sample_cells(weights, rows, rng=rng)) < error(drawn) / 2


Chunks = Iterator[NDArray[np.int64]]


def an_offset_for_each_chunk(weights: NDArray[np.float64], rows: int, rng: np.random.Generator, size: int) -> Chunks:
    """Sample wrongly: each chunk by itself, so that the errors of all of them add up."""
    for start in range(0, rows, size):
        yield sample_cells(weights, min(size, rows - start), rng=rng)


def slices_of_the_whole(weights: NDArray[np.float64], rows: int, rng: np.random.Generator, size: int) -> Chunks:
    """Sample wrongly: the first chunk has the first cells only."""
    ends = np.cumsum(weights)
    cells = np.searchsorted(ends, (np.arange(rows) + rng.random()) * ends[-1] / rows, side="right")
    for start in range(0, rows, size):
        yield rng.permutation(cells[start : start + size])


def in_chunks(weights: NDArray[np.float64], rows: int, rng: np.random.Generator, size: int) -> Chunks:
    return sample_chunks(weights, rows, rng=rng, chunk_rows=size)


def worst_off(chunks: list[NDArray[np.int64]], weights: NDArray[np.float64]) -> tuple[float, float]:
    """Return how far a cell's count is from its expectation, at worst: in all chunks together, and in one of them."""
    shares = weights / weights.sum()
    counts = [np.bincount(chunk, minlength=weights.size) for chunk in chunks]
    together = np.sum(counts, axis=0) - sum(map(len, chunks)) * shares
    alone = [count - len(chunk) * shares for count, chunk in zip(counts, chunks, strict=True)]
    return float(np.abs(together).max()), float(np.abs(alone).max())


@given(WEIGHTS, st.integers(1, 3000), st.integers(1, 500), st.integers(0, 2**32))
def test_all_chunks_together_and_each_alone_are_systematic_samples(
    weights: NDArray[np.float64], rows: int, size: int, seed: int
) -> None:
    chunks = list(sample_chunks(weights, rows, rng=np.random.default_rng(seed), chunk_rows=size))
    lengths = [len(chunk) for chunk in chunks]
    assert sum(lengths) == rows
    assert max(lengths) <= size
    assert max(lengths) - min(lengths) <= 1
    together, alone = worst_off(chunks, weights)
    assert together < 1 + 1e-9
    # A chunk has every K-th row: rounding its own length adds less than one row to what rounding adds anyway.
    assert alone < 2 + 1e-9
    assert not np.bincount(np.concatenate(chunks), minlength=weights.size)[weights == 0].any()


@pytest.mark.parametrize(
    ("wrong", "together", "alone"), [(an_offset_for_each_chunk, 2.0, 0.0), (slices_of_the_whole, 0.0, 50.0)]
)
def test_chunks_that_add_up_badly_or_are_unlike_each_other_are_noticed(
    wrong: Callable[[NDArray[np.float64], int, np.random.Generator, int], Chunks], together: float, alone: float
) -> None:
    weights = np.random.default_rng(0).gamma(0.4, size=30)
    found = worst_off(list(wrong(weights, 20_000, np.random.default_rng(1), 200)), weights)
    ours = worst_off(list(in_chunks(weights, 20_000, np.random.default_rng(1), 200)), weights)
    assert found[0] > together
    assert found[1] > alone
    assert ours[0] < 1 + 1e-9
    assert ours[1] < 2 + 1e-9


def all_at_once(weights: NDArray[np.float64], rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw as it is defined, without chunks."""
    ends = np.cumsum(weights)
    positions = np.minimum((np.arange(rows) + rng.random()) * (ends[-1] / rows), np.nextafter(ends[-1], 0.0))
    cells = np.searchsorted(ends, positions, side="right")
    rng.shuffle(cells)
    return cells


@pytest.mark.parametrize("rows", [1, 13_350, CHUNK_ROWS])
def test_up_to_a_chunk_the_rows_are_those_that_are_drawn_at_once(rows: int) -> None:
    weights = np.random.default_rng(0).gamma(0.4, size=5000)
    once = all_at_once(weights, rows, np.random.default_rng(rows))
    np.testing.assert_array_equal(sample_cells(weights, rows, rng=np.random.default_rng(rows)), once)
