"""Marginals by classes of cells are marginals, summed."""

from itertools import combinations

import numpy as np
import pytest

from dpcore.answers.merging import summed
from dpcore.marginals.resolutions import Resolutions
from dpcore.models import FactoredModel


@pytest.fixture
def model() -> FactoredModel:
    """A chain of cliques, with columns that are measured at several resolutions."""
    resolutions = Resolutions((6, 5, 4, 3, 7))
    halves, coarse = resolutions.coarsen(0, [0, 0, 0, 1, 1, 1]), resolutions.coarsen(4, [0, 0, 1, 1, 2, 2, 2])
    rng = np.random.default_rng(1)
    sets = [(0,), (0, 1), (1, 2), (halves, 3), (2, coarse), (3, 4)]
    made = FactoredModel(resolutions, total=1000.0)
    made.assign({axes: rng.normal(size=resolutions.shape_of(axes)) for axes in sets})
    return made


def test_classes_have_the_sums_of_their_cells_wherever_their_columns_lie(model: FactoredModel) -> None:
    rng, shape = np.random.default_rng(2), (6, 5, 4, 3, 7)
    for size in (1, 2, 3, 4):
        for columns in combinations(range(5), size):
            classes = [np.unique(rng.integers(0, 3, shape[column]), return_inverse=True)[1] for column in columns]
            expected = summed(model.marginal(columns), classes)
            assert np.allclose(model.merged(columns, classes), expected, rtol=1e-9)


def test_other_classes_have_other_sums(model: FactoredModel) -> None:
    one, other = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 0, 1])
    assert not np.allclose(model.merged((0,), [one]), model.merged((0,), [other]), rtol=1e-3)


def test_no_columns_and_single_classes_have_all_rows(model: FactoredModel) -> None:
    assert float(model.merged((), [])) == pytest.approx(1000.0)
    assert model.merged((0, 4), [np.zeros(6, dtype=int), np.zeros(7, dtype=int)]).item() == pytest.approx(1000.0)


def test_cells_without_a_class_are_left_out_wherever_their_columns_lie(model: FactoredModel) -> None:
    rng, shape = np.random.default_rng(3), (6, 5, 4, 3, 7)
    for size in (1, 2, 3, 4):
        for columns in combinations(range(5), size):
            kept = [rng.random(shape[column]) < 0.5 for column in columns]
            kept[0][0] = True
            whole = model.marginal(columns)
            expected = whole[np.ix_(*map(np.flatnonzero, kept))].sum()
            found = model.merged(columns, [np.where(each, 0, -1) for each in kept])
            assert found.shape == (1,) * size
            assert found.item() == pytest.approx(expected, rel=1e-9)


def test_a_column_with_many_classes_is_summed_where_it_lies(model: FactoredModel) -> None:
    classes = [np.array([0, -1, 0, -1, 0, -1]), np.arange(7)]
    assert np.allclose(model.merged((0, 4), classes), model.marginal((0, 4))[::2].sum(axis=0, keepdims=True), rtol=1e-9)


def test_a_table_may_have_many_columns() -> None:
    rng, columns = np.random.default_rng(4), 60
    model = FactoredModel(Resolutions((3,) * columns), total=100.0)
    model.assign({(at, at + 1): rng.normal(size=(3, 3)) for at in range(columns - 1)})
    asked = (40, 43, 59)
    classes = [np.array([0, 1, -1])] * 3
    assert np.allclose(model.merged(asked, classes), model.marginal(asked)[:2, :2, :2], rtol=1e-9)
