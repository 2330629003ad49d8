"""Counts over the universe equal a naive count, for universes of any size."""

from math import prod
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.audit.made_up import ROW
from dpcore.tables import histogram as histogram_module
from dpcore.tables.histogram import LocalHistogram
from dpcore.tables.ingest.records import Records
from dpcore.universe import Integer, Universe, code_type

SIZES = st.sampled_from([1, 2, 3, 7, 255, 256, 257, 65536, 65537, 10_000_000])


def universe_of(shape: list[int]) -> Universe:
    return Universe({f"x{axis}": Integer(minimum=0, maximum=size - 1) for axis, size in enumerate(shape)})


def drawn(shape: list[int], *, rows: int, seed: int, cells: int) -> pd.DataFrame:
    """Draw rows from at most so many cells, the corners of the universe among them."""
    rng = np.random.default_rng(seed)
    corners = np.array([[0] * len(shape), [size - 1 for size in shape]])
    possible = np.concatenate([corners, rng.integers(0, shape, (cells, len(shape)))])
    return pd.DataFrame(possible[rng.integers(0, len(possible), rows)])


def counted(table: pd.DataFrame, shape: list[int], *, weights: np.ndarray | None = None) -> LocalHistogram:
    codes = [table[axis].to_numpy().astype(code_type(size)) for axis, size in enumerate(shape)]
    return LocalHistogram.count(Records.of(codes, weights=weights, protection=ROW), universe_of(shape))


def distinct(histogram: LocalHistogram) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the one chunk of a histogram that was made of distinct rows."""
    ((codes, counts),) = histogram._chunks
    return list(codes), counts


@settings(deadline=None)
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
    codes, counts = distinct(histogram)
    assert sorted(counts.tolist()) == sorted(table.value_counts().tolist())
    cells = pd.DataFrame(dict(enumerate(codes))).astype(np.int64)
    assert not cells.duplicated().any()
    assert set(cells.itertuples(index=False, name=None)) == set(table.itertuples(index=False, name=None))


def test_nobody_can_change_what_a_marginal_returns() -> None:
    histogram = counted(drawn([3, 4], rows=50, seed=4, cells=5), [3, 4])
    with pytest.raises(ValueError, match="read-only"):
        histogram.marginal((0,))[:] = -1
    assert histogram.marginal((0,)).sum() == 50


@pytest.mark.parametrize(("rows", "kept"), [(255, np.uint8), (256, np.uint16), (70_000, np.uint32)])
def test_a_cell_with_many_rows_is_counted_in_full(rows: int, kept: type[np.unsignedinteger[Any]]) -> None:
    histogram = counted(pd.DataFrame([[2, 1]] * rows), [3, 4])
    assert distinct(histogram)[1].dtype == kept
    assert histogram.marginal((1, 0)).max() == rows


def test_a_marginal_that_is_asked_for_again_is_the_same_and_the_oldest_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dpcore.tables.histogram.KEPT_CELLS", 10)
    codes = [np.array([0, 1, 2, 2], dtype=np.uint8), np.array([0, 1, 1, 0], dtype=np.uint8)]
    histogram = LocalHistogram.of(codes=codes, counts=np.array([5, 4, 3, 2]), shape=(3, 2), protection=ROW)
    both = histogram.marginal((0, 1))
    assert histogram.marginal((0, 1)) is both
    assert histogram.marginal((0,)).tolist() == [5, 4, 5]
    assert histogram.marginal((1,)).tolist() == [7, 7]
    again = histogram.marginal((0, 1))
    assert again is not both
    assert again.tolist() == both.tolist() == [[5, 0], [0, 4], [2, 3]]


WAYS = {
    "all cells at once": {},
    "distinct rows": {"SMALL_UNIVERSE": 0},
    "chunk by chunk": {"SMALL_UNIVERSE": 0, "DISTINCT_ROWS": 0},
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_table_of_any_size_is_counted_alike(monkeypatch: pytest.MonkeyPatch, way: str, weighted: bool) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(histogram_module, name, value)
    shape = [30, 7, 20]
    table = drawn(shape, rows=3_000, seed=6, cells=500)
    weights = np.random.default_rng(7).integers(0, 9, len(table)).astype(np.uint8) if weighted else None
    histogram = counted(table, shape, weights=weights)
    times = np.ones(len(table)) if weights is None else weights
    groups = np.arange(30) // 4
    histogram.coarsen(0, groups)
    histogram.coarsen(3, np.arange(8) // 2)
    columns = [*(table[axis].to_numpy() for axis in range(3)), groups[table[0]], groups[table[0]] // 2]
    sizes = [*shape, 8, 4]
    sets = [(), (0,), (2, 0), (3, 1), (1, 4, 2)]
    histogram.prepare(sets)
    for axes in sets:
        counts = histogram.marginal(axes)
        flat = np.zeros(len(table), dtype=np.int64)
        for axis in axes:
            flat = flat * sizes[axis] + columns[axis]
        assert counts.shape == tuple(sizes[axis] for axis in axes)
        assert np.array_equal(counts.ravel(), np.bincount(flat, weights=times, minlength=counts.size))


def test_what_is_prepared_is_counted_once_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    histogram = counted(drawn([3, 4, 5], rows=50, seed=8, cells=9), [3, 4, 5])
    asked = []
    count = LocalHistogram._counts
    monkeypatch.setattr(LocalHistogram, "_counts", lambda self, sets: asked.append(list(sets)) or count(self, sets))
    histogram.prepare([(0, 1), (1, 2), (0, 1)])
    histogram.prepare([(0, 1)])
    histogram.prepare([(1, 2), (2,)])
    assert histogram.marginal((1, 2)).sum() == 50
    assert asked == [[(0, 1), (1, 2)], [(2,)]]


def test_what_is_wanted_now_does_not_make_room_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histogram_module, "KEPT_CELLS", 10)
    histogram = counted(drawn([3, 4, 5], rows=50, seed=9, cells=9), [3, 4, 5])
    first = histogram.marginal((0,))
    histogram.marginal((1,))
    histogram.prepare([(2,), (0,)])
    assert histogram.marginal((0,)) is first
    assert set(histogram._kept) == {(0,), (2,)}
    histogram.prepare([(2,), (1,), (0,)])
    assert sum(counts.size for counts in histogram._kept.values()) == histogram._kept_cells <= 10
