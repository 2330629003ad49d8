"""Counts over the universe equal a naive count, for universes of any size."""

from math import prod
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.histogram import BLOCK_ROWS, Histogram
from dpcore.ingest.records import Records, code_type
from dpcore.universe import Integer, Universe

SIZES = st.sampled_from([1, 2, 3, 7, 255, 256, 257, 65536, 65537, 10_000_000])


def universe_of(shape: list[int]) -> Universe:
    return Universe({f"x{axis}": Integer(minimum=0, maximum=size - 1) for axis, size in enumerate(shape)})


def drawn(shape: list[int], *, rows: int, seed: int, cells: int) -> pd.DataFrame:
    """Draw rows from at most so many cells, the corners of the universe among them."""
    rng = np.random.default_rng(seed)
    corners = np.array([[0] * len(shape), [size - 1 for size in shape]])
    possible = np.concatenate([corners, rng.integers(0, shape, (cells, len(shape)))])
    return pd.DataFrame(possible[rng.integers(0, len(possible), rows)])


def counted(table: pd.DataFrame, shape: list[int]) -> Histogram:
    codes = [table[axis].to_numpy().astype(code_type(size)) for axis, size in enumerate(shape)]
    return Histogram.count(Records(codes), universe_of(shape))


@settings(deadline=None, max_examples=50)
@given(
    shape=st.lists(SIZES, min_size=1, max_size=12),
    rows=st.integers(0, 300),
    cells=st.integers(1, 300),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_every_marginal_equals_a_naive_count(
    shape: list[int], rows: int, cells: int, seed: int, data: st.DataObject
) -> None:
    table = drawn(shape, rows=rows, seed=seed, cells=cells)
    histogram = counted(table, shape)
    for _ in range(5):
        axes = tuple(data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=4, unique=True)))
        if prod(shape[axis] for axis in axes) > 100_000:
            continue
        marginal = histogram.marginal(axes)
        assert marginal.dtype == np.int64
        assert marginal.shape == tuple(shape[axis] for axis in axes)
        occurring = zip(*np.nonzero(marginal), strict=True)
        naive = table.groupby(list(axes)).size()
        assert {cell: marginal[cell] for cell in occurring} == dict(
            zip(naive.index.to_frame().itertuples(index=False, name=None), naive, strict=True)
        )


def test_a_universe_of_ten_to_the_thirty_five_cells_is_counted_exactly() -> None:
    shape = [10_000_000] * 5
    table = drawn(shape, rows=2000, seed=1, cells=500)
    histogram = counted(table, shape)
    assert universe_of(shape).size == 10**35
    assert sorted(histogram._counts.tolist()) == sorted(table.value_counts().tolist())
    cells = pd.DataFrame(dict(enumerate(histogram._codes))).astype(np.int64)
    assert not cells.duplicated().any()
    assert set(cells.itertuples(index=False, name=None)) == set(table.itertuples(index=False, name=None))


def test_memory_goes_with_the_distinct_rows() -> None:
    table = drawn([100, 100, 100], rows=5000, seed=2, cells=3)
    histogram = counted(table, [100, 100, 100])
    assert len(histogram._counts) == len(table.drop_duplicates())
    assert {codes.dtype for codes in histogram._codes} == {np.dtype(np.uint8)}


@pytest.mark.parametrize("rows", [0, 17])
def test_the_marginal_over_nothing_is_the_number_of_rows(rows: int) -> None:
    histogram = counted(drawn([3, 4], rows=rows, seed=3, cells=5), [3, 4])
    assert histogram.marginal(()).shape == ()
    assert int(histogram.marginal(())) == rows


def test_nobody_can_change_what_a_marginal_returns() -> None:
    histogram = counted(drawn([3, 4], rows=50, seed=4, cells=5), [3, 4])
    with pytest.raises(ValueError, match="read-only"):
        histogram.marginal((0,))[:] = -1
    assert histogram.marginal((0,)).sum() == 50


@pytest.mark.parametrize("axes", [(0,), (1, 0), (2, 0, 1), (3,)])
def test_many_blocks_of_rows_add_up_to_one_count(axes: tuple[int, ...]) -> None:
    shape = [256, 7, 100, 1]
    table = drawn(shape, rows=5 * BLOCK_ROWS + 5, seed=5, cells=150_000)
    histogram = counted(table, shape)
    assert len(histogram._counts) > 2 * BLOCK_ROWS
    flat = np.ravel_multi_index([table[axis] for axis in axes], [shape[axis] for axis in axes])
    naive = np.bincount(flat, minlength=prod(shape[axis] for axis in axes))
    assert np.array_equal(histogram.marginal(axes).ravel(), naive)


@pytest.mark.parametrize(("rows", "kept"), [(255, np.uint8), (256, np.uint16), (70_000, np.uint32)])
def test_a_cell_with_many_rows_is_counted_in_full(rows: int, kept: type[np.unsignedinteger[Any]]) -> None:
    histogram = counted(pd.DataFrame([[2, 1]] * rows), [3, 4])
    assert histogram._counts.dtype == kept
    assert histogram.marginal((1, 0)).max() == rows


def test_a_marginal_that_is_asked_for_again_is_the_same_and_the_oldest_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dpcore.histogram.KEPT_CELLS", 10)
    codes = [np.array([0, 1, 2, 2], dtype=np.uint8), np.array([0, 1, 1, 0], dtype=np.uint8)]
    histogram = Histogram(codes=codes, counts=np.array([5, 4, 3, 2]), shape=(3, 2))
    both = histogram.marginal((0, 1))
    assert histogram.marginal((0, 1)) is both
    assert histogram.marginal((0,)).tolist() == [5, 4, 5]
    assert histogram.marginal((1,)).tolist() == [7, 7]
    again = histogram.marginal((0, 1))
    assert again is not both
    assert again.tolist() == both.tolist() == [[5, 0], [0, 4], [2, 3]]
