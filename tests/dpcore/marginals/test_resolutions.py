"""Columns and coarser versions of them: nested, without gaps, and each told by every finer one."""

from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from tests.dpcore.models.factored_reference import resolutions


def no_pair_is_parted(before: list[int], after: list[int]) -> bool:
    """Tell whether cells that are together stay together."""
    return all(
        after[one] == after[two] for one, two in combinations(range(len(before)), 2) if before[one] == before[two]
    )


def in_order(groups: list[int]) -> list[int]:
    """Return groups that count from 0 without a gap."""
    return [sorted(set(groups)).index(group) for group in groups]


def test_the_first_axes_are_the_columns_themselves() -> None:
    of = Resolutions((4, 2))
    assert of.columns == 2
    assert of.shape == (4, 2)
    assert [of.column(axis) for axis in range(2)] == [0, 1]
    assert [of.versions(column) for column in range(2)] == [(0,), (1,)]


def test_a_coarser_version_is_the_next_axis_of_its_column() -> None:
    of = Resolutions((6, 4))
    assert of.coarsen(1, [1, 0, 1, 0]) == 2
    assert of.coarsen(0, [0, 0, 1, 1, 2, 2]) == 3
    assert of.coarsen(0, [0, 0, 1, 1, 0, 0]) == 4
    assert of.columns == 2
    assert of.shape == (6, 4, 2, 3, 2)
    assert of.versions(0) == (0, 3, 4)
    assert of.versions(1) == (1, 2)
    assert [of.column(axis) for axis in range(5)] == [0, 1, 1, 0, 0]


def test_groups_lead_from_any_version_to_any_coarser_one() -> None:
    of = Resolutions((6,))
    thirds, ends = of.coarsen(0, [2, 2, 0, 0, 1, 1]), of.coarsen(0, [0, 0, 1, 1, 0, 0])
    assert of.groups(0, 0).tolist() == [0, 1, 2, 3, 4, 5]
    assert of.groups(0, thirds).tolist() == [2, 2, 0, 0, 1, 1]
    assert of.groups(0, ends).tolist() == [0, 0, 1, 1, 0, 0]
    assert of.groups(thirds, ends).tolist() == [1, 0, 0]
    assert of.groups(ends, ends).tolist() == [0, 1]


@given(resolutions(columns=3, cells=9, versions=4))
def test_the_versions_of_a_column_are_nested(of: Resolutions) -> None:
    for column in range(of.columns):
        versions = of.versions(column)
        assert list(versions) == sorted(versions)
        assert {of.column(axis) for axis in versions} == {column}
        for finer, coarser in combinations_with_replacement(versions, 2):
            groups = of.groups(finer, coarser)
            assert groups.shape == (of.shape[finer],)
            assert set(groups.tolist()) == set(range(of.shape[coarser]))
        for finest, middle, coarsest in combinations_with_replacement(versions, 3):
            np.testing.assert_array_equal(
                of.groups(middle, coarsest)[of.groups(finest, middle)], of.groups(finest, coarsest)
            )


@given(st.integers(1, 6), st.data())
def test_a_version_is_taken_exactly_if_it_parts_no_cells_of_any_before(cells: int, data: st.DataObject) -> None:
    grouping = st.lists(st.integers(0, 2), min_size=cells, max_size=cells).map(in_order)
    of, taken = Resolutions((cells,)), [list(range(cells))]
    for groups in data.draw(st.lists(grouping, max_size=4)):
        if all(no_pair_is_parted(before, groups) for before in taken):
            assert of.coarsen(0, groups) == len(taken)
            taken.append(groups)
        else:
            with pytest.raises(UsageError, match="whole cells of the version before"):
                of.coarsen(0, groups)
        assert of.versions(0) == tuple(range(len(taken)))
        for axis, known in enumerate(taken):
            assert of.groups(0, axis).tolist() == known


@pytest.mark.parametrize(
    "groups",
    [
        [0, 0, 2, 2],
        [1, 1, 2, 2],
        [-1, -1, 0, 0],
        [-1, -1, 1, 1],
        [0, 0, 1],
        [0, 0, 1, 1, 1],
        [],
        [[0, 0], [1, 1]],
        [0.0, 0.0, 1.0, 1.0],
        [0, 0, 1, 0.5],
        [0, 0, 1, np.nan],
        [False, False, True, True],
        ["0", "0", "1", "1"],
    ],
    ids=[
        "a gap",
        "from one",
        "a negative group",
        "as many as from zero",
        "too few",
        "too many",
        "none",
        "a table",
        "numbers that are not whole by type",
        "a half",
        "not a number",
        "truths",
        "texts",
    ],
)
def test_groups_that_do_not_count_from_zero_for_every_cell_are_refused(groups: list[int]) -> None:
    of = Resolutions((4, 3))
    with pytest.raises(UsageError, match="a group for every cell of its column: give whole numbers from 0"):
        of.coarsen(0, groups)
    assert of.shape == (4, 3)
    assert of.versions(0) == (0,)


def test_a_version_that_splits_a_cell_is_refused_and_changes_nothing() -> None:
    of = Resolutions((4, 2))
    of.coarsen(0, [0, 0, 1, 1])
    with pytest.raises(UsageError, match="whole cells of the version before"):
        of.coarsen(0, [0, 1, 1, 1])
    assert of.shape == (4, 2, 2)
    assert of.versions(0) == (0, 2)
    assert of.coarsen(0, [0, 0, 0, 0]) == 3
    assert of.groups(2, 3).tolist() == [0, 0]


def test_columns_are_coarsened_independently_of_each_other() -> None:
    of = Resolutions((4, 4))
    of.coarsen(0, [0, 0, 1, 1])
    of.coarsen(1, [0, 1, 1, 0])
    assert of.groups(1, 3).tolist() == [0, 1, 1, 0]


def test_groups_belong_to_the_resolutions_and_not_to_their_caller() -> None:
    of, groups = Resolutions((3,)), np.array([0, 0, 1])
    of.coarsen(0, groups)
    groups[:] = 0
    assert of.groups(0, 1).tolist() == [0, 0, 1]


def test_a_column_is_named_as_it_is_and_a_version_by_its_number_of_groups() -> None:
    of = Resolutions((4, 2))
    halves, whole = of.coarsen(0, [0, 0, 1, 1]), of.coarsen(0, [0, 0, 0, 0])
    names = ["age", "sex"]
    assert of.named((), names) == ()
    assert of.named((0, 1), names) == ("age", "sex")
    assert of.named((whole, 1, halves), names) == ("age in 1 groups", "sex", "age in 2 groups")


def test_the_shape_and_the_cells_of_axes_are_those_of_their_versions() -> None:
    of = Resolutions((6, 5))
    thirds = of.coarsen(0, [0, 0, 1, 1, 2, 2])
    assert of.shape_of((1, thirds)) == (5, 3)
    assert of.cells((1, thirds)) == 15
    assert of.shape_of(()) == ()
    assert of.cells(()) == 1


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int64])
def test_groups_may_be_whole_numbers_of_any_size(kind: type[np.integer]) -> None:
    of = Resolutions((4,))
    assert of.groups(0, of.coarsen(0, np.array([0, 0, 1, 1], dtype=kind))).dtype == np.intp


@pytest.mark.parametrize("axis", [-1, 3, 99])
def test_an_axis_that_does_not_exist_is_refused(axis: int) -> None:
    of = Resolutions((4, 2))
    of.coarsen(0, [0, 0, 1, 1])
    asked = [
        lambda: of.column(axis),
        lambda: of.shape_of((0, axis)),
        lambda: of.cells((axis,)),
        lambda: of.named((axis,), ["age", "sex"]),
        lambda: of.groups(axis, axis),
    ]
    for ask in asked:
        with pytest.raises(UsageError, match="numbered from 0 to 2"):
            ask()


@pytest.mark.parametrize("column", [-1, 2, 3])
def test_a_column_that_does_not_exist_is_refused_also_if_it_is_another_axis(column: int) -> None:
    of = Resolutions((4, 2))
    of.coarsen(0, [0, 0, 1, 1])
    with pytest.raises(UsageError, match="numbered from 0 to 1"):
        of.versions(column)
    with pytest.raises(UsageError, match="numbered from 0 to 1"):
        of.coarsen(column, [0, 0])
    assert of.shape == (4, 2, 2)


@pytest.mark.parametrize(("finer", "coarser"), [(2, 0), (1, 2), (0, 1), (0, 9), (-1, 2)])
def test_groups_from_an_axis_to_no_coarser_version_of_it_are_refused(finer: int, coarser: int) -> None:
    of = Resolutions((4, 2))
    of.coarsen(0, [0, 0, 1, 1])
    with pytest.raises(UsageError, match="a coarser version of the same column"):
        of.groups(finer, coarser)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (3, -1)])
def test_there_is_a_column_and_each_has_a_cell(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="at least one column"):
        Resolutions(shape)
