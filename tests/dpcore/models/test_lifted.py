"""A model with grids among its functions."""

import numpy as np
import pytest

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.models import DenseModel, Evidence, FactoredModel, Model, refine
from dpcore.models.lifted import Grid, LiftedModel, flattened, key_of

GRID = Grid((0, 2), (np.array([0, 1, 0]), np.array([0, 0, 1, 1])))
CROSSING = Grid((0,), (np.array([0, 1, 1]),))


def models() -> list[Model]:
    shape = (3, 2, 4)
    return [DenseModel(shape, total=100.0), FactoredModel(Resolutions(shape), total=100.0)]


@pytest.mark.parametrize("model", models(), ids=["dense", "factored"])
def test_a_function_of_a_grid_is_shared_by_the_cells_of_a_class(model: Model) -> None:
    function = np.log([[1.0, 2.0], [3.0, 4.0]])
    lifted = LiftedModel(model, [GRID])
    lifted.assign({key_of(0): function})
    counts = lifted.marginal((0, 2))
    expected = np.exp(function)[np.ix_(*GRID.groups)]
    np.testing.assert_allclose(counts, 100 * expected / expected.sum())
    np.testing.assert_allclose(lifted.marginal(key_of(0)), GRID.summed(counts))


def test_functions_of_grids_are_added_to_those_of_their_columns() -> None:
    plain = {(0,): np.array([1.0, 2.0, 3.0])}
    found = flattened({**plain, key_of(1): np.array([10.0, 20.0])}, [GRID, CROSSING])
    assert {axes: function.tolist() for axes, function in found.items()} == {(0,): [11.0, 22.0, 23.0]}


@pytest.mark.parametrize("model", models(), ids=["dense", "factored"])
def test_a_fit_learns_the_counts_of_grids_that_are_not_nested(model: Model) -> None:
    lifted = LiftedModel(model, [GRID, CROSSING])
    evidence = Evidence()
    true = np.array([[50.0, 10.0], [15.0, 25.0]])
    evidence.add(Measurement("ask/a/1", key_of(0), None, true.astype(np.int64), 0.5))
    evidence.add(Measurement("ask/b/1", key_of(1), None, np.array([20, 80]), 0.5))
    refine(lifted, evidence, {}, tries=200, per_cell=1.0)
    np.testing.assert_allclose(lifted.marginal(key_of(0)), true, atol=1.5)
    np.testing.assert_allclose(lifted.marginal(key_of(1)), [20, 80], atol=1.5)
