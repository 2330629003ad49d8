"""The factored model at its edges: no axes, axes and functions that are none, and a tree deeper than the stack."""

import math
from functools import reduce
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models import DenseModel, FactoredModel, Weights
from tests.dpcore.models.factored_reference import axes_of, resolutions
from tests.dpcore.models.test_factored import normal, zeros


def test_the_marginal_of_no_columns_is_the_total_as_in_the_dense_model() -> None:
    of = Resolutions((2, 3, 2))
    model, dense = FactoredModel(of, total=6.0), DenseModel(of.shape, total=6.0)
    functions = normal(of, [(0, 1), (1, 2)], seed=5)
    for each in (model, dense):
        each.assign(functions)
        for found in (each.marginal(()), each.marginals([(0,), ()])[()]):
            assert isinstance(found, np.ndarray)
            assert found.shape == ()
            assert found == pytest.approx(6.0, rel=1e-14)
            found[...] = 99.0
    assert model.marginal(()) == pytest.approx(6.0)


def test_a_marginal_has_its_axes_in_the_order_asked() -> None:
    of = Resolutions((2, 3, 4))
    halves = of.coarsen(2, [0, 1, 1, 0])
    model = FactoredModel(of, total=1.0)
    model.assign(normal(of, [(1, 0), (2, 1)], seed=5))
    for axes in [(0, 1), (0, 2), (0, 1, halves), (0, 1, 2)]:
        for order in permutations(range(len(axes))):
            turned = tuple(axes[place] for place in order)
            np.testing.assert_allclose(model.marginal(turned), model.marginal(axes).transpose(order), rtol=1e-12)


UNKNOWN, TWICE = "no such axis", "name each column once"


@pytest.mark.parametrize(
    ("axes", "message"),
    [((-1,), UNKNOWN), ((4,), UNKNOWN), ((0, 9), UNKNOWN), ((0, 0), TWICE), ((0, 1, 0), TWICE), ((0, 3), TWICE)],
    ids=["negative", "too large", "one of two", "twice", "twice among others", "two versions of a column"],
)
def test_axes_that_are_not_of_different_columns_are_refused_whatever_is_asked(axes: Axes, message: str) -> None:
    of = Resolutions((4, 3, 2))
    of.coarsen(0, [0, 0, 1, 1])
    model = FactoredModel(of, total=6.0)
    shape = tuple(model.shape[axis] for axis in axes if axis < 4)
    asked = [
        lambda: model.marginal(axes),
        lambda: model.marginals([(0, 1), axes]),
        lambda: model.cells_with(axes),
        lambda: model.scope(axes),
        lambda: model.assign({(0, 1): np.zeros((4, 3)), axes: np.zeros(shape)}),
    ]
    for ask in asked * 2:  # nor is what was refused remembered as allowed
        with pytest.raises(UsageError, match=message):
            ask()


def test_an_axis_that_was_added_after_the_model_was_made_is_refused() -> None:
    of = Resolutions((4, 3))
    model = FactoredModel(of, total=6.0)
    halves = of.coarsen(0, [0, 0, 1, 1])
    with pytest.raises(UsageError, match="Add coarser versions before making the model"):
        model.marginal((halves,))


@pytest.mark.parametrize("shape", [(3, 2), (2,), (), (2, 3, 1), (6,), (1, 3), (2, 1)])
def test_a_function_of_another_shape_is_refused_and_changes_nothing(shape: tuple[int, ...]) -> None:
    check_a_refusal({(1, 2): np.ones((3, 2)), (0, 1): np.zeros(shape)}, "does not match axes of shape")


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf])
def test_a_function_with_an_entry_that_is_no_number_is_refused_and_changes_nothing(entry: float) -> None:
    check_a_refusal({(1, 2): np.ones((3, 2)), (0, 1): np.array([[0.0, 0.0, 0.0], [0.0, entry, 0.0]])}, "not finite")


def check_a_refusal(functions: dict[Axes, Weights], message: str) -> None:
    of = Resolutions((2, 3, 2))
    model = FactoredModel(of, total=6.0)
    model.assign(normal(of, [(0, 2)], seed=4))
    before, cells = model.marginal((0, 1, 2)), model.cells
    with pytest.raises(UsageError, match=message):
        model.assign(functions)
    assert model.cells == cells
    np.testing.assert_array_equal(model.marginal((0, 1, 2)), before)


def test_a_chain_of_a_thousand_columns_is_no_deeper_than_the_stack() -> None:
    columns = 1000
    of = Resolutions((2, 3) * (columns // 2))
    rng = np.random.default_rng(4)
    moves = [rng.dirichlet(np.ones(of.shape[at + 1]), size=of.shape[at]) for at in range(columns - 1)]
    nearly_copy = np.array([[0.999, 0.0005, 0.0005], [0.0005, 0.999, 0.0005]])
    back = np.array([[0.999, 0.001], [0.001, 0.999], [0.5, 0.5]])
    moves[:200] = [nearly_copy, back] * 100  # so that the first column still says something a hundred columns later
    model = FactoredModel(of, total=1.0)
    model.assign({(at, at + 1): np.log(move) for at, move in enumerate(moves)} | {(0,): np.log([0.3, 0.7])})
    for one, two in [(0, 100), (0, columns - 1), (1, columns - 1), (399, 600)]:
        between = reduce(np.matmul, moves[one:two])
        begin = reduce(np.matmul, moves[:one], np.array([0.3, 0.7]))
        np.testing.assert_allclose(model.marginal((one, two)), begin[:, None] * between, rtol=0, atol=1e-11)
    ends = model.marginal((0, 100))
    assert np.abs(ends - np.outer(ends.sum(axis=1), ends.sum(axis=0))).max() > 0.05
    rows = model.rows(500, rng=rng)
    assert len(rows) == columns
    assert np.abs(np.bincount(rows[0], minlength=2) / 500 - [0.3, 0.7]).max() < 0.01


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_what_lies_beyond_an_edge_is_what_a_walk_finds_there(data: st.DataObject) -> None:
    of = data.draw(resolutions(columns=8))
    model = FactoredModel(of, total=1.0)
    model.assign(zeros(of, data.draw(st.lists(axes_of(of, most=3), max_size=8))))
    tree = model._tree
    assert len(tree.beyond) == 2 * (len(tree.cliques) - 1)
    for (there, here), scope in tree.beyond.items():
        found, waiting = 0, [(there, here)]
        while waiting:
            clique, before = waiting.pop()
            found |= tree.cliques[clique]
            waiting += [(other, clique) for other in tree.neighbours[clique] if other != before]
        assert found == scope
