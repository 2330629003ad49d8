"""Cells taken together: by whole numbers alone, nested, neighbours where there is an order, and counted like any column."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpcore.audit.made_up import ROW
from dpcore.marginals.resolutions import Groups, Resolutions
from dpcore.strategies.grouping import coarser_versions
from dpcore.tables.histogram import LocalHistogram
from dpcore.universe import code_type

COUNTS = st.lists(st.integers(-50, 200), min_size=1, max_size=40).map(np.array)
LEAST = st.lists(st.integers(0, 500), min_size=1, max_size=4).map(sorted)


def versions(counts: np.ndarray, least: list[int], *, ordered: bool, apart: int = 0) -> list[list[int]]:
    return [groups.tolist() for groups in groupings(counts, least, ordered=ordered, apart=apart)]


def groupings(counts: np.ndarray, least: list[int], *, ordered: bool, apart: int = 0) -> Iterator[Groups]:
    return coarser_versions(((counts, rows) for rows in least), cells=len(counts), ordered=ordered, apart=apart)


def rows_by_group(counts: np.ndarray, groups: list[int]) -> np.ndarray:
    return np.bincount(groups, weights=np.maximum(counts, 0)).astype(int)


@given(counts=COUNTS, least=LEAST, ordered=st.booleans(), apart=st.integers(0, 2))
@example(counts=np.zeros(5, dtype=np.int64), least=[0, 0], ordered=True, apart=0)
def test_every_version_is_coarser_than_the_one_before_and_made_of_its_groups(
    counts: np.ndarray, least: list[int], ordered: bool, apart: int
) -> None:
    resolutions, size = Resolutions((len(counts),)), len(counts)
    for groups in groupings(counts, least, ordered=ordered, apart=min(apart, size - 1)):
        axis = resolutions.coarsen(
            0, groups
        )  # which refuses a gap, and a version that splits a group of an earlier one
        assert 1 < resolutions.shape[axis] < size
        size = resolutions.shape[axis]
    assert len(resolutions.versions(0)) <= 1 + len(least)


@given(counts=COUNTS, least=LEAST)
def test_groups_of_an_ordered_column_are_runs_of_neighbours(counts: np.ndarray, least: list[int]) -> None:
    for groups in groupings(counts, least, ordered=True):
        assert set(np.diff(groups).tolist()) <= {0, 1}


@given(counts=COUNTS, least=LEAST, apart=st.lists(st.integers(-5, 200), min_size=1, max_size=2))
def test_cells_apart_change_no_group_of_the_others(counts: np.ndarray, least: list[int], apart: list[int]) -> None:
    alone = versions(counts, least[:1], ordered=True)
    for groups in versions(np.append(counts, apart), least[:1], ordered=True, apart=len(apart)):
        inside = groups[: len(counts)]
        assert inside in ([*alone, [0] * len(counts), list(range(len(counts)))])


@given(counts=COUNTS, least=LEAST, missing=st.integers(0, 500))
def test_a_cell_apart_is_joined_only_while_it_has_too_few_rows_and_then_to_the_smallest_group(
    counts: np.ndarray, least: list[int], missing: int
) -> None:
    stayed = True
    for groups in groupings(np.append(counts, missing), least, ordered=True, apart=1):
        inside, its_own = groups[:-1], int(groups[-1])
        assert set(np.diff(inside).tolist()) <= {0, 1}
        held = rows_by_group(counts, inside.tolist())
        if stayed and its_own in inside:
            assert 2 * missing < max(least)
            assert held[its_own] == held.min()
            stayed = False
        assert stayed == (its_own not in inside)  # once joined, always joined


@given(counts=COUNTS, rows=st.integers(1, 500))
def test_of_two_neighbouring_groups_one_has_enough_rows_at_least(counts: np.ndarray, rows: int) -> None:
    for groups in versions(counts, [rows], ordered=True):
        held = rows_by_group(counts, groups)
        assert (np.maximum(held[1:], held[:-1]) >= rows).all()
        assert held[-1] >= rows / 2


@given(counts=COUNTS, rows=st.integers(1, 500))
def test_no_group_of_an_unordered_column_has_less_than_half_of_enough_rows(counts: np.ndarray, rows: int) -> None:
    for groups in versions(counts, [rows], ordered=False):
        assert (rows_by_group(counts, groups) >= rows / 2).all()


@given(counts=COUNTS, rows=st.integers(1, 500))
def test_rare_values_are_one_group_and_common_ones_stay_alone_but_for_one(counts: np.ndarray, rows: int) -> None:
    for groups in versions(counts, [rows], ordered=False) if counts.max() >= rows else ():
        sizes = np.bincount(groups)
        together = int(sizes.argmax())
        assert (np.delete(sizes, together) == 1).all()
        rare = np.flatnonzero(counts < rows)
        assert {groups[cell] for cell in rare} == {together}
        assert len(rare) <= sizes[together] <= len(rare) + 1


@pytest.mark.parametrize(
    ("counts", "least", "ordered", "expected"),
    [
        ([5, 5, 5, 5], [10], True, [[0, 0, 1, 1]]),
        ([5, 5, 5, 5, 5], [10], True, [[0, 0, 1, 1, 2]]),  # half a group is one
        ([5, 5, 5, 5, 4], [10], True, [[0, 0, 1, 1, 1]]),  # less is none
        ([1, 30, 1, 1, 30], [10], True, [[0, 1, 2, 2, 3]]),  # who has enough alone is not blurred by neighbours
        ([5] * 8, [10, 20], True, [[0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1]]),
        ([50, 3, 40, 4, 3], [10], False, [[0, 2, 1, 2, 2]]),
        ([50, 1, 40, 1, 1], [10], False, [[0, 1, 1, 1, 1]]),  # too few for a group: the rarest other takes them in
        ([50, 4, 40, 10, 11], [10], False, [[0, 3, 1, 3, 2]]),
        ([50, 5, 40, 10, 11], [10], False, []),  # half of enough may stay alone
        ([50, 10, 40, 10], [10], False, []),  # enough is enough
        ([6, 2, 5, 8, 3], [10], False, [[1, 0, 0, 1, 0]]),  # all are rare: the rarest first, until they have enough
        ([6, 6, 6, 6, 6], [10], False, [[0, 0, 1, 1, 2]]),  # half a group is one
        ([4] * 7, [10], False, [[0, 0, 0, 1, 1, 1, 1]]),  # less is none
        ([6] * 8, [10, 20], False, [[0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1]]),
        ([2, 3, 1], [10], False, []),  # one group would say nothing
        ([2, 3, 1], [10], True, []),
    ],
)
def test_what_is_taken_together(counts: list[int], least: list[int], ordered: bool, expected: list[list[int]]) -> None:
    assert versions(np.array(counts), least, ordered=ordered) == expected


@pytest.mark.parametrize(
    ("counts", "least", "apart", "expected"),
    [
        ([5, 5, 5, 5, 30], [10], 1, [[0, 0, 1, 1, 2]]),
        ([5, 5, 5, 5, 5], [10], 1, [[0, 0, 1, 1, 2]]),  # half of enough may stay alone
        ([5, 6, 5, 5, 4], [10], 1, [[0, 0, 1, 1, 1]]),  # too few: the smallest group takes them in
        ([5, 5, 5, 6, 4], [10], 1, [[0, 0, 1, 1, 0]]),
        ([5, 5, 5, 6, 3, 2], [10], 2, [[0, 0, 1, 1, 2, 2]]),  # other and missing together have half of enough
        ([5, 5, 5, 6, 3, 1], [10], 2, [[0, 0, 1, 1, 0, 0]]),
        ([5, 6, 6, 6, 10, 4], [10], 2, [[0, 0, 1, 1, 2, 2]]),  # one that has enough may be the smallest
        ([20, 20, 4], [10], 1, [[0, 1, 0]]),
        ([20, 20, 6], [10], 1, []),
        ([2, 3, 1, 30], [10], 1, [[0, 0, 0, 1]]),  # whether there is a value at all
        ([2, 3, 1, 1], [10], 1, []),
        ([5, 5, 5, 6, 4, 9], [10, 30], 2, [[0, 0, 1, 1, 2, 2]]),
        ([5] * 8 + [4, 3], [10, 20], 2, [[0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]]),
    ],
)
def test_cells_apart_are_taken_together_by_their_rarity(
    counts: list[int], least: list[int], apart: int, expected: list[list[int]]
) -> None:
    assert versions(np.array(counts), least, ordered=True, apart=apart) == expected


def test_a_version_that_changes_nothing_is_left_out_and_a_later_one_is_not() -> None:
    counts = np.array([30, 30, 30, 30])
    assert versions(counts, [10, 20, 30, 60], ordered=True) == [[0, 0, 1, 1]]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("least", [[0], [1], [5, 10]])
@pytest.mark.parametrize("counts", [[0], [40], [-40], [0] * 6, [-3] * 6])
def test_one_cell_or_no_rows_give_no_version(counts: list[int], least: list[int], ordered: bool) -> None:
    assert versions(np.array(counts), least, ordered=ordered) == []


@given(counts=COUNTS, least=LEAST, ordered=st.booleans())
def test_negative_noisy_counts_are_no_rows(counts: np.ndarray, least: list[int], ordered: bool) -> None:
    positive = np.maximum(counts, 0)
    assert versions(counts, least, ordered=ordered) == versions(positive, least, ordered=ordered)


@given(counts=COUNTS, least=LEAST, ordered=st.booleans(), factor=st.sampled_from([1, 3, 10**14 + 1]))
def test_the_same_counts_give_the_same_groups_at_any_scale_and_stay_as_they_were(
    counts: np.ndarray, least: list[int], ordered: bool, factor: int
) -> None:
    before = counts.copy()
    larger = versions(counts * factor, [rows * factor for rows in least], ordered=ordered)
    assert versions(counts, least, ordered=ordered) == larger
    assert (counts == before).all()


@pytest.mark.parametrize(
    ("ordered", "enough", "one_less"), [(True, [[0, 1, 1]], [[0, 0, 1]]), (False, [[0, 1, 1]], [[1, 0, 0]])]
)
def test_one_row_in_2_to_the_53_decides(ordered: bool, enough: list[list[int]], one_less: list[list[int]]) -> None:
    rows = 2**53 + 1  # which a float takes for 2^53
    small = rows // 2 + 1
    assert float(rows) == float(rows - 1)
    assert versions(np.array([rows, small, small]), [rows], ordered=ordered) == enough
    assert versions(np.array([rows - 1, small, small]), [rows], ordered=ordered) == one_less


@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 299)), max_size=60),
    group_sizes=st.lists(st.integers(1, 40), min_size=1, max_size=20),
)
def test_a_histogram_counts_groups_as_it_counts_cells(rows: list[tuple[int, int]], group_sizes: list[int]) -> None:
    groups = np.resize(np.repeat(np.arange(len(group_sizes)), group_sizes), 300)
    table, shape = np.array(rows, dtype=np.int64).reshape(-1, 2), (7, 300)
    cells, counts = np.unique(table, axis=0, return_counts=True)
    codes = [cells[:, axis].astype(code_type(size)) for axis, size in enumerate(shape)]
    histogram = LocalHistogram.of(codes=codes, counts=counts.astype(np.int64), shape=shape, protection=ROW)
    before = histogram.marginal((0, 1))
    groups = np.unique(groups, return_inverse=True)[1].astype(np.intp)
    histogram.coarsen(1, groups)
    expected = np.zeros((7, groups.max() + 1), dtype=np.int64)
    np.add.at(expected, (slice(None), groups), before)
    assert (histogram.marginal((0, 2)) == expected).all()
    assert (histogram.marginal((2, 0)) == expected.T).all()
    assert (histogram.marginal((0, 1)) == before).all()
