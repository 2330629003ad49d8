"""Joint counts hold every wanted marginal, within their limit of cells, and there are few of them."""

from itertools import combinations
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.tables.counting.cover import cover

SHAPE = (12, 3, 101, 16, 20, 31, 10, 101, 20, 52, 24, 8, 3, 2)


@given(data=st.data(), shape=st.lists(st.integers(1, 60), min_size=1, max_size=9), limit=st.integers(1, 5_000))
def test_every_marginal_lies_in_one_joint_count_and_only_a_marginal_alone_may_exceed_the_limit(
    data: st.DataObject, shape: list[int], limit: int
) -> None:
    axes = st.lists(st.integers(0, len(shape) - 1), max_size=4, unique=True).map(tuple)
    sets = data.draw(st.lists(axes, max_size=20, unique=True))
    joints = cover(sets, shape=shape, most_cells=limit)
    assert sorted(number for joint in joints for number in joint.marginals) == list(range(len(sets)))
    for joint in joints:
        parts = [set(sets[number]) for number in joint.marginals]
        assert all(part <= set(joint.axes) for part in parts)
        assert prod(shape[axis] for axis in joint.axes) <= limit or set(joint.axes) in parts


def test_all_pairs_of_fourteen_columns_are_counted_in_less_than_a_quarter_as_many_joint_counts() -> None:
    pairs = list(combinations(range(len(SHAPE)), 2))
    assert len(pairs) == 91
    assert len(cover(pairs, shape=SHAPE)) <= 22


@pytest.mark.parametrize("order", [1, 2, 3])
def test_small_columns_need_one_joint_count_for_everything(order: int) -> None:
    (joint,) = cover(list(combinations(range(10), order)), shape=[3] * 10)
    assert joint.axes == tuple(range(10))


def test_axes_that_make_nothing_complete_are_not_added() -> None:
    assert [joint.axes for joint in cover([(0, 1), (5,)], shape=[2] * 6)] == [(0, 1, 5)]


def test_nothing_wanted_is_nothing_counted() -> None:
    assert cover([], shape=SHAPE) == []
