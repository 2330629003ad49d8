"""Marginals that are summed from joint counts of chunks equal a naive count of all rows."""

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.tables.counting import Chunk, Coarse, count_sets, cover
from dpcore.tables.counting import marginals as counting_sets
from dpcore.universe import code_type

SIZES = st.sampled_from([1, 2, 3, 7, 30, 128, 255, 256, 257, 300])


def naive(table: np.ndarray, weights: np.ndarray | None, shape: list[int], axes: tuple[int, ...]) -> np.ndarray:
    """Count row by row, with Python's own whole numbers."""
    counts = np.zeros([shape[axis] for axis in axes], dtype=np.int64)
    for place, row in enumerate(table.tolist()):
        counts[tuple(row[axis] for axis in axes)] += 1 if weights is None else int(weights[place])
    return counts


def chunks_of(table: np.ndarray, weights: np.ndarray | None, shape: list[int], cuts: list[int]) -> list[Chunk]:
    codes = [table[:, axis].astype(code_type(size)) for axis, size in enumerate(shape)]
    ends = sorted({0, *(cut % (len(table) + 1) for cut in cuts), len(table)})
    return [
        ([code[begin:end] for code in codes], None if weights is None else weights[begin:end])
        for begin, end in pairwise(ends)
    ]


@given(
    data=st.data(),
    shape=st.lists(SIZES, min_size=1, max_size=6),
    rows=st.integers(0, 120),
    seed=st.integers(0, 2**32 - 1),
    most_weight=st.sampled_from([None, 1, 1_000]),
    limits=st.tuples(st.integers(1, 50), st.integers(1, 50), st.integers(1, 3_000), st.integers(1, 3_000)),
)
def test_any_sets_of_any_blocks_are_counted_as_by_hand(
    *,
    data: st.DataObject,
    shape: list[int],
    rows: int,
    seed: int,
    most_weight: int | None,
    limits: tuple[int, int, int, int],
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, shape, (rows, len(shape)))
    weights = None if most_weight is None else rng.integers(0, most_weight + 1, rows).astype(np.uint16)
    chunks = chunks_of(table, weights, shape, data.draw(st.lists(st.integers(0, 200), max_size=6)))
    coarse = []
    for column in data.draw(st.lists(st.integers(0, len(shape) - 1), max_size=3)):
        groups = rng.integers(0, 5, shape[column])
        coarse.append(Coarse(column, groups.astype(np.uint8)))
        table = np.column_stack([table, groups[table[:, column]]])
    everything = [*shape, *(5 for _ in coarse)]
    axes = st.lists(st.integers(0, len(everything) - 1), max_size=3, unique=True).map(tuple)
    sets = [one for one in data.draw(st.lists(axes, max_size=8)) if np.prod([everything[axis] for axis in one]) < 1e6]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting_sets, "FEW_ROWS", data.draw(st.sampled_from([0, 10, 10_000])))
        patch.setattr(counting_sets, "BATCH_ROWS", limits[0])
        patch.setattr(counting_sets, "KEY_ROWS", limits[1])
        patch.setattr(counting_sets, "MOST_JOINT_CELLS", limits[2])
        patch.setattr(cover.cover, "__kwdefaults__", {"most_cells": limits[3]})
        found = count_sets(chunks, shape=everything, sets=sets, coarse=coarse)
    for one, counts in zip(sets, found, strict=True):
        assert counts.dtype == np.int64
        assert counts.flags.c_contiguous
        assert np.array_equal(counts, naive(table, weights, everything, one))


def test_many_rows_on_all_threads_are_counted_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting_sets, "BATCH_ROWS", 1 << 14)
    monkeypatch.setattr(counting_sets, "FEW_ROWS", 1 << 14)
    shape = [7, 300, 2, 50, 11]
    rng = np.random.default_rng(3)
    table = rng.integers(0, shape, (200_000, len(shape)))
    sets = [axes[::-1] for axes in combinations(range(len(shape)), 2)]
    found = count_sets(chunks_of(table, None, shape, [5, 70_000, 70_001]), shape=shape, sets=sets)
    for axes, counts in zip(sets, found, strict=True):
        flat = np.ravel_multi_index(table[:, axes].T, counts.shape)
        assert np.array_equal(counts.ravel(), np.bincount(flat, minlength=counts.size))


def test_weights_beyond_32_bits_are_added_exactly() -> None:
    weights = np.array([2**40 + 1, 2**40 + 3, 5], dtype=np.uint64)
    codes = [np.array([0, 0, 1], dtype=np.uint8)]
    ((counts),) = count_sets([(codes, weights)], shape=[2], sets=[(0,)])
    assert counts.tolist() == [2**41 + 4, 5]


def test_without_rows_everything_is_zero() -> None:
    assert [counts.tolist() for counts in count_sets([], shape=[2, 3], sets=[(), (0,)])] == [0, [0, 0]]


def test_blocks_are_gone_through_again_only_when_the_joint_counts_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watched:
        passes = 0

        def __iter__(self) -> Iterator[Chunk]:
            self.passes += 1
            return iter([([np.zeros(10, dtype=np.uint8)] * 3, None)])

    once, often = Watched(), Watched()
    sets = [(0,), (1,), (2,)]
    count_sets(once, shape=[4, 4, 4], sets=sets)
    monkeypatch.setattr(counting_sets, "MOST_JOINT_CELLS", 4)
    count_sets(often, shape=[4, 4, 4], sets=sets)
    assert often.passes - once.passes == 2


def test_what_breaks_in_a_thread_is_raised() -> None:
    with pytest.raises(IndexError):
        count_sets([([np.zeros(3, dtype=np.uint8)], None)], shape=[2, 2], sets=[(1,)])
