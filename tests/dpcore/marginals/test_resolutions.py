"""Columns and coarser versions of them: nested, without gaps, and each told by every finer one."""

from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from tests.dpcore.models.factored_reference import resolutions


def in_order(groups: list[int]) -> list[int]:
    """Return groups that count from 0 without a gap."""
    return [sorted(set(groups)).index(group) for group in groups]


def test_axes_are_the_columns_and_then_their_coarser_versions_in_the_order_of_coarsening() -> None:
    of = Resolutions((6, 4))
    groups = np.array([1, 0, 1, 0], dtype=np.uint8)
    assert [of.coarsen(1, groups), of.coarsen(0, [2, 2, 0, 0, 1, 1]), of.coarsen(0, [0, 0, 1, 1, 0, 0])] == [2, 3, 4]
    groups[:] = 0  # they belong to the resolutions now
    assert (of.columns, of.shape) == (2, (6, 4, 2, 3, 2))
    assert (of.versions(0), of.versions(1)) == ((0, 3, 4), (1, 2))
    assert [of.column(axis) for axis in range(5)] == [0, 1, 1, 0, 0]
    steps = {
        (0, 0): [0, 1, 2, 3, 4, 5],
        (0, 3): [2, 2, 0, 0, 1, 1],
        (3, 4): [1, 0, 0],
        (4, 4): [0, 1],
        (1, 2): [1, 0, 1, 0],
    }
    assert {pair: of.groups(*pair).tolist() for pair in steps} == steps
    assert (of.shape_of((1, 3)), of.cells((1, 3)), of.shape_of(()), of.cells(())) == ((4, 3), 12, (), 1)
    assert of.named((4, 1, 0), ["age", "sex"]) == ("age in 2 groups", "sex", "age")


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
            through = of.groups(middle, coarsest)[of.groups(finest, middle)]
            np.testing.assert_array_equal(through, of.groups(finest, coarsest))


@given(st.integers(1, 6), st.data())
def test_a_version_is_taken_exactly_if_it_parts_no_cells_of_any_before(cells: int, data: st.DataObject) -> None:
    grouping = st.lists(st.integers(0, 2), min_size=cells, max_size=cells).map(in_order)
    of, taken = Resolutions((cells,)), [list(range(cells))]
    for groups in data.draw(st.lists(grouping, max_size=4)):
        pairs = list(combinations(range(cells), 2))
        if all(groups[a] == groups[b] for before in taken for a, b in pairs if before[a] == before[b]):
            assert of.coarsen(0, groups) == len(taken)
            taken.append(groups)
        else:
            with pytest.raises(UsageError, match="whole cells of the version before"):
                of.coarsen(0, groups)
        assert of.versions(0) == tuple(range(len(taken)))
        assert [of.groups(0, axis).tolist() for axis in range(len(taken))] == taken


GAPS = [[0, 0, 2, 2], [1, 1, 2, 2], [-1, -1, 0, 0], [0, 0, 1], [0, 0, 1, 1, 1], [], [[0, 0], [1, 1]], [0.0, 0.0, 1.0, 1.0], [False, False, True, True], ["0", "0", "1", "1"]]  # fmt: skip


@pytest.mark.parametrize("groups", GAPS, ids=str)
def test_groups_that_do_not_count_from_zero_for_every_cell_are_refused(groups: list[int]) -> None:
    of = Resolutions((4, 3))
    with pytest.raises(UsageError, match="a group for every cell of its column: give whole numbers from 0"):
        of.coarsen(0, groups)
    assert (of.shape, of.versions(0)) == ((4, 3), (0,))


def test_what_does_not_exist_is_refused() -> None:
    of = Resolutions((4, 2))
    of.coarsen(0, [0, 0, 1, 1])
    for axis in (-1, 3):
        for ask in (of.column, of.versions, lambda axis: of.shape_of((0, axis)), lambda axis: of.coarsen(axis, [0, 0])):
            with pytest.raises(UsageError, match="There is no such"):
                ask(axis)
    for pair in ((2, 0), (1, 2), (0, 1), (0, 9), (-1, 2)):
        with pytest.raises(UsageError, match="a coarser version of the same column"):
            of.groups(*pair)
    for shape in ((), (3, 0), (3, -1)):
        with pytest.raises(UsageError, match="at least one column"):
            Resolutions(shape)


def test_classes_of_cells_are_an_axis_that_no_model_knows() -> None:
    of = Resolutions((3, 2))
    grouped, axis = of.with_grouping(0, [0, 1, 0])
    assert (axis, grouped.shape, grouped.versions(0), grouped.groups(0, axis).tolist()) == (
        2,
        (3, 2, 2),
        (0,),
        [0, 1, 0],
    )
    assert (grouped.is_version(axis), grouped.is_version(0), grouped.nested.shape, of.shape) == (
        False,
        True,
        (3, 2),
        (3, 2),
    )
