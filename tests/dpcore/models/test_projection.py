"""A projection is the marginal, multiplied along each column by a matrix, wherever the columns lie."""

from functools import partial
from itertools import combinations, pairwise

import numpy as np
import pytest

from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models import DenseModel, FactoredModel
from dpcore.models.model import Matrix, Model
from dpcore.models.projection import contracted, projected

SHAPE = (6, 5, 4, 3, 7)


def factored() -> FactoredModel:
    """Return a chain of cliques, with columns that are measured at several resolutions."""
    resolutions = Resolutions(SHAPE)
    halves, coarse = resolutions.coarsen(0, [0, 0, 0, 1, 1, 1]), resolutions.coarsen(4, [0, 0, 1, 1, 2, 2, 2])
    rng = np.random.default_rng(1)
    model = FactoredModel(resolutions, total=1000.0)
    sets = [(0,), (0, 1), (1, 2), (halves, 3), (2, coarse), (3, 4)]
    model.assign({axes: rng.normal(size=resolutions.shape_of(axes)) for axes in sets})
    return model


def dense() -> DenseModel:
    model = DenseModel(SHAPE, total=1000.0)
    model.assign({(0, 1, 2, 3, 4): np.log(np.random.default_rng(1).random(SHAPE))})
    return model


def random_matrix(cells: int, rng: np.random.Generator) -> Matrix:
    """Return a condition, groups, a sum, or the cells as they are."""
    kinds = [
        lambda: (rng.random((cells, 1)) < 0.5).astype(np.float64),
        lambda: np.eye(3)[rng.integers(0, 3, cells)],
        lambda: rng.normal(size=(cells, 2)),
        lambda: None,
    ]
    return kinds[rng.integers(4)]()


@pytest.mark.parametrize("model", [factored(), dense()], ids=["factored", "dense"])
def test_a_projection_is_the_marginal_multiplied_by_the_matrices(model: Model) -> None:
    rng = np.random.default_rng(2)
    assert projected(model, (), []) == pytest.approx(1000.0)
    for size in (1, 2, 3, 4, 5):
        for columns in combinations(range(5), size):
            matrices = [random_matrix(SHAPE[column], rng) for column in columns]
            expected = model.marginal(columns)
            for place, matrix in enumerate(matrices):
                if matrix is not None:
                    expected = np.moveaxis(np.tensordot(expected, matrix, axes=(place, 0)), -1, place)
            assert np.allclose(contracted(model.marginal(columns), matrices), expected, rtol=1e-9, atol=1e-9)
            assert np.allclose(projected(model, columns, matrices), expected, rtol=1e-9, atol=1e-9)


def test_a_condition_on_all_of_many_columns_needs_no_joint_table() -> None:
    rng, columns = np.random.default_rng(4), 60
    model = FactoredModel(Resolutions((3,) * columns), total=100.0)
    model.assign({(at, at + 1): rng.normal(size=(3, 3)) for at in range(columns - 1)})
    some, inside = (40, 43, 59), np.array([[1.0], [1.0], [0.0]])
    two = inside.ravel() > 0
    expected = model.marginal(some)[np.ix_(two, two, two)]
    assert projected(model, some, [inside] * 3).item() == pytest.approx(expected.sum())
    assert np.allclose(projected(model, some, [None] * 3)[np.ix_(two, two, two)], expected)
    every = tuple(range(columns))
    mass = partial(projected, model)
    assert mass(every, [np.ones((3, 1))] * columns).item() == pytest.approx(100.0)
    assert mass(every, [inside] * columns).item() == pytest.approx(chained(model, every))


def chained(model: FactoredModel, columns: Axes) -> float:
    """Return the rows of which no column has its last cell, by the chain rule of neighbours."""
    first, *rest = (model.marginal(pair) for pair in pairwise(columns))
    rows = first[:2, :2].sum(axis=0)
    for pair in rest:
        rows = rows @ (pair[:2] / pair[:2].sum(axis=1, keepdims=True))[:, :2]
    return float(rows.sum())
