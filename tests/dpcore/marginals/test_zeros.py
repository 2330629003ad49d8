"""Structural zeros: which cells of a marginal some possible row has."""

import itertools

import numpy as np
import pytest

from dpcore.errors import SpecError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.zeros import MOST_JOINED, NO_ZEROS, Zeros

SHAPE = (3, 4, 2, 5, 2)


def random_zeros(seed: int) -> Zeros:
    rng = np.random.default_rng(seed)
    tables = {axes: rng.random([SHAPE[axis] for axis in axes]) < 0.4 for axes in ((0, 1), (1, 2), (0, 1, 3))}
    for table in tables.values():
        table.ravel()[0] = True
    return Zeros(tables)


def joint(zeros: Zeros) -> np.ndarray:
    """Return which combinations of all columns are possible, cell by cell."""
    found = np.ones(SHAPE, dtype=bool)
    for axes, table in zeros.possible.items():
        found &= table.reshape([SHAPE[axis] if axis in axes else 1 for axis in range(len(SHAPE))])
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_support_of_every_marginal_is_that_of_the_joint_table(seed: int) -> None:
    zeros, resolutions = random_zeros(seed), Resolutions(SHAPE)
    whole = joint(zeros)
    for order in range(1, len(SHAPE) + 1):
        for axes in itertools.combinations(range(len(SHAPE)), order):
            wanted = whole.any(axis=tuple(axis for axis in range(len(SHAPE)) if axis not in axes))
            found = zeros.support(axes, resolutions)
            assert np.array_equal(np.ones(wanted.shape, dtype=bool) if found is None else found, wanted)


def test_a_coarse_cell_is_possible_if_one_of_its_cells_is() -> None:
    resolutions = Resolutions((4, 2))
    coarse = resolutions.coarsen(0, [0, 0, 1, 1])
    table = np.array([[True, False], [False, False], [True, True], [False, True]])
    assert Zeros({(0, 1): table}).support((1, coarse), resolutions).tolist() == [[True, True], [False, True]]


def test_columns_without_constraints_are_possible_altogether() -> None:
    assert NO_ZEROS.support((0, 1), Resolutions((2, 2))) is None
    assert random_zeros(1).support((4,), Resolutions(SHAPE)) is None


def test_functions_are_added_to_those_of_the_same_columns() -> None:
    zeros = Zeros({(0, 1): np.array([[True, False]])})
    added = zeros.added({(0, 1): np.array([[1.0, 2.0]]), (0,): np.array([3.0])})
    assert added[0, 1].tolist() == [[1.0, 2.0 - 1e6]]
    assert added[(0,)].tolist() == [3.0]


def test_too_many_connected_columns_are_refused() -> None:
    columns = MOST_JOINED + 1
    zeros = Zeros({(axis, axis + 1): np.eye(2, dtype=bool) for axis in range(columns - 1)})
    with pytest.raises(SpecError, match="constraints connect 51 columns, and at most 50"):
        zeros.support((0,), Resolutions((2,) * columns))
