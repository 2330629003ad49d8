"""Sums of whole weights move by no more than their sensitivity."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.mechanisms.weighing import MOST_WEIGHT, Weighing
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity

GROUPS, VALUES = 2, 3
WEIGHTS = st.lists(st.lists(st.integers(-9, 9), min_size=2, max_size=2), min_size=VALUES, max_size=VALUES)


def protection(neighbours: Neighbours) -> Protection:
    return Protection(unit="person", rows_per_unit=2, neighbours=neighbours)


def movements(weighing: Weighing, neighbours: Neighbours, others: np.ndarray) -> np.ndarray:
    """How far every possible unit of two rows moves the sums of a table with some other rows."""
    cells = [*np.eye(GROUPS * VALUES, dtype=np.int64), np.zeros(GROUPS * VALUES, dtype=np.int64)]
    units = np.array([one + other for one, other in product(cells, cells)])
    tables = (others + units).reshape(-1, GROUPS, VALUES)
    sums = weighing.totals(tables).reshape(len(tables), -1)
    if neighbours is Neighbours.ADD_REMOVE:
        return sums - sums[-1]  # the last one has no row
    return (sums[:, None] - sums[None]).reshape(-1, sums.shape[1])


def reached(moved: np.ndarray) -> Sensitivity:
    sizes = np.abs(moved)
    return Sensitivity(
        int(sizes.sum(axis=1).max()), int((sizes**2).sum(axis=1).max(initial=0)), int(sizes.max(initial=0))
    )


def within(found: Sensitivity, most: Sensitivity) -> bool:
    return found.l1 <= most.l1 and found.l2_squared <= most.l2_squared and found.linf <= most.linf


@pytest.mark.parametrize("neighbours", list(Neighbours))
@given(weights=WEIGHTS, grain=st.integers(1, 4), others=st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_no_unit_moves_the_sums_farther(
    neighbours: Neighbours, weights: list[list[int]], grain: int, others: list[int]
) -> None:
    weighing = Weighing(np.array(weights, dtype=np.int64), grain)
    most = weighing.sensitivity(protection(neighbours))
    assert within(reached(movements(weighing, neighbours, np.array(others))), most)


def test_the_sensitivity_is_reached_and_a_smaller_one_is_not_enough() -> None:
    weighing, nobody = Weighing(np.array([[-9, 4], [0, 4], [9, 4]])), np.zeros(GROUPS * VALUES, dtype=np.int64)
    found = reached(movements(weighing, Neighbours.ADD_REMOVE, nobody))
    assert found == weighing.sensitivity(protection(Neighbours.ADD_REMOVE))
    assert not within(found, protection(Neighbours.ADD_REMOVE).sensitivity)  # planted: 1 instead of the bound
    replaced = reached(movements(weighing, Neighbours.REPLACE_ONE, nobody))
    assert replaced.l2_squared > 2 * found.l2_squared  # from one end to the other: squares do not just add up
    assert within(replaced, weighing.sensitivity(protection(Neighbours.REPLACE_ONE)))


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_a_count_is_the_case_of_weight_one(neighbours: Neighbours) -> None:
    one = Weighing(np.ones((4, 1), dtype=np.int64))
    assert one.sensitivity(protection(neighbours)) == protection(neighbours).sensitivity


@pytest.mark.parametrize("make", [lambda: Weighing(np.array([[MOST_WEIGHT + 1]])), lambda: Weighing(np.eye(1), 0)])
def test_weights_whose_sums_do_not_fit_are_refused(make: Callable[[], Weighing]) -> None:
    with pytest.raises(UsageError, match="report this"):
        make()
