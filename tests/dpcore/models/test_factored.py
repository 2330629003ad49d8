"""The factored model: the same distribution as cell by cell, for any tree, any resolutions and universes of any size."""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import combinations, permutations
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.marginals.measurements import LEAST_NOISE, Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models import DenseModel, Evidence, FactoredModel, Model, Weights, passes, refine
from dpcore.models.factored import across
from dpcore.models.factored.scopes import Scopes, axes_in, inside
from dpcore.models.factored.tree import JunctionTree
from tests.contracts.model import ModelContract
from tests.dpcore.models.factored_reference import axes_of, distribution, functions_of, marginal_of, resolutions

EXACT = 1e-9
CYCLE = [(1, 3), (2, 3), (0, 2), (0, 1)]


def zeros(of: Resolutions, sets: Iterable[Axes]) -> dict[Axes, Weights]:
    return {axes: np.zeros(of.shape_of(axes)) for axes in sets}


def normal(of: Resolutions, sets: Iterable[Axes], *, seed: int) -> dict[Axes, Weights]:
    rng = np.random.default_rng(seed)
    return {axes: np.asarray(rng.normal(size=of.shape_of(axes))) for axes in sets}


class TestFactoredModel(ModelContract):
    def new(self, shape: tuple[int, ...], *, total: float) -> FactoredModel:
        return FactoredModel(Resolutions(shape), total=total)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_marginal_is_that_of_the_plain_computation(data: st.DataObject) -> None:
    of = data.draw(resolutions())
    functions = data.draw(functions_of(of))
    model = FactoredModel(of, total=1.0)
    model.assign(functions)
    probabilities = distribution(of, functions)
    for axes in data.draw(st.lists(axes_of(of, most=5), min_size=1, max_size=8)):
        found = model.marginal(axes)
        assert found.shape == of.shape_of(axes)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, marginal_of(of, probabilities, axes), rtol=0, atol=EXACT)


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_what_was_assigned_before_leaves_no_trace(data: st.DataObject) -> None:
    of = data.draw(resolutions())
    model = FactoredModel(of, total=1.0)
    for _ in range(3):
        functions = data.draw(functions_of(of, sets=4, most=3))
        model.assign(functions)
        probabilities = distribution(of, functions)
        for axes in data.draw(st.lists(axes_of(of, most=4), max_size=4)):
            expected = marginal_of(of, probabilities, axes)
            np.testing.assert_allclose(model.marginal(axes), expected, rtol=0, atol=EXACT)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_without_coarser_versions_it_agrees_with_the_dense_model(data: st.DataObject) -> None:
    of = data.draw(resolutions(versions=0))
    functions = data.draw(functions_of(of))
    model, dense = FactoredModel(of, total=50.0), DenseModel(of.shape, total=50.0)
    model.assign(functions)
    dense.assign(functions)
    sets = data.draw(st.lists(axes_of(of, most=5), max_size=8))
    found, expected = model.marginals(sets), dense.marginals(sets)
    assert list(found) == list(expected)
    for axes in found:
        np.testing.assert_allclose(found[axes], expected[axes], rtol=0, atol=50 * EXACT)


@pytest.mark.parametrize(("few", "ordered"), [(0, 1), (3, 4), (passes._FEW, across.MOST_ORDERED)])
@pytest.mark.parametrize("asked", [(0, 7), (1, 3, 5), (0, 2, 4, 6), (0, 3, 5, 6, 7)])
def test_marginals_across_a_whole_tree_are_exact_with_every_mixture_of_resolutions(
    asked: Axes, few: int, ordered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "_FEW", few)  # 0: cells are sorted, and looked up
    monkeypatch.setattr(across, "MOST_ORDERED", ordered)  # 1: each factor is the one with the smallest product
    of = Resolutions((4, 3, 4, 2, 4, 3, 4, 3))
    halves = {column: of.coarsen(column, [0, 1, 0, 1]) for column in (0, 2, 4, 6)}
    links = [(0, 1), (1, halves[2]), (2, 3), (3, halves[4]), (4, 5), (halves[4], halves[6]), (6, 7), (2, halves[0])]
    functions = normal(of, links, seed=1)
    model = FactoredModel(of, total=1.0)
    model.assign(functions)
    assert model.cells < math.prod(of.shape[: of.columns]) / 100
    probabilities = distribution(of, functions)
    mixtures: list[Axes] = [()]
    for column in asked:
        mixtures = [(*begun, axis) for begun in mixtures for axis in of.versions(column)]
    for axes in mixtures:
        assert model._home(axes) is None
        np.testing.assert_allclose(model.marginal(axes), marginal_of(of, probabilities, axes), rtol=0, atol=EXACT)


def test_a_marginal_of_many_columns_does_not_try_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    of, tried = Resolutions([2] * 9 + [3] * 9), 0
    products_in = across.Across._products_in

    def counted(*arguments: Any) -> list[int]:
        nonlocal tried
        tried += 1
        return products_in(*arguments)

    monkeypatch.setattr(across.Across, "_products_in", counted)
    model = FactoredModel(of, total=1.0)
    links = [(hub, hub + 1) for hub in range(8)] + [(hub, hub + 9) for hub in range(9)]
    model.assign(normal(of, links, seed=3))
    outer = model.marginal(tuple(range(9, 18)))
    assert outer.sum() == pytest.approx(1.0)
    assert tried < 200  # all orders are 362,880
    for column in range(9, 18):
        apart = tuple(at for at in range(9) if at != column - 9)
        np.testing.assert_allclose(outer.sum(axis=apart), model.marginal((column,)), rtol=0, atol=EXACT)


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_cutting_off_the_ends_of_a_tree_changes_no_marginal(data: st.DataObject) -> None:
    of = data.draw(resolutions(cells=5, versions=3))
    functions = data.draw(functions_of(of))
    asked = data.draw(st.lists(axes_of(of, most=5), min_size=1, max_size=8))
    model = FactoredModel(of, total=1.0)
    model.assign(functions)
    cut = [model.marginal(axes) for axes in asked]
    model.assign(functions)
    with patch.object(across.Across, "_ends", lambda *_: []):
        whole = [model.marginal(axes) for axes in asked]
    for marginal, expected in zip(cut, whole, strict=True):
        np.testing.assert_allclose(marginal, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("remembered", [0, 100, across.MOST_BYTES])
def test_marginals_that_share_their_way_through_the_tree_do_not_disturb_each_other(
    remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(across, "MOST_BYTES", remembered)
    of = Resolutions((3, 2, 3, 2, 3, 2))
    for column in (0, 2, 4):
        of.coarsen(column, [0, 1, 0])
    functions = normal(of, [(column, column + 1) for column in range(5)], seed=8)
    model = FactoredModel(of, total=1.0)
    model.assign(functions)
    probabilities = distribution(of, functions)
    for order in range(5):
        for axes in combinations(range(len(of.shape)), order):
            if len({of.column(axis) for axis in axes}) == order:
                expected = marginal_of(of, probabilities, axes)
                np.testing.assert_allclose(model.marginal(axes), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("entry", [-1e5, -1000.0, -740.0, -715.0, -600.0, 600.0, 715.0, 740.0, 1000.0, 1e5])
def test_huge_entries_make_their_cells_impossible_or_certain(entry: float) -> None:
    of = Resolutions((3, 2, 2))
    functions = zeros(of, [(0, 1), (1, 2)])
    functions[0, 1][:, 1] = entry
    model = FactoredModel(of, total=1.0)
    model.assign(functions)
    for axes in [(0, 1), (1, 2), (0, 2), (0, 1, 2)]:
        expected = marginal_of(of, distribution(of, functions), axes)
        np.testing.assert_allclose(model.marginal(axes), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize(("taken", "given_back"), [(300.0, 300.0), (700.0, 690.0), (720.0, 720.0), (1e4, 1e4 + 5)])
def test_what_one_function_takes_another_can_give_back(taken: float, given_back: float) -> None:
    of = Resolutions((3, 2, 3))
    functions = normal(of, [(0, 1), (1, 2)], seed=7)
    functions[0, 1][:, 0] -= taken
    functions[1, 2][0, :] += given_back
    model = FactoredModel(of, total=1.0)
    model.assign(functions)
    for axes in [(0, 1), (1, 2), (0, 2), (0, 1, 2)]:
        expected = marginal_of(of, distribution(of, functions), axes)
        np.testing.assert_allclose(model.marginal(axes), expected, rtol=0, atol=EXACT)


class Forgetful(FactoredModel):
    """Make room wrongly: a set that lies in a clique by luck is not remembered."""

    def make_room(self, sets: Iterable[Axes]) -> None:
        super().make_room([axes for axes in sets if self._home(axes) is None])


def assign_a_cycle_and_then_both_of_its_chords(kind: type[FactoredModel]) -> None:
    """Assign functions of a cycle's pairs; one of its chords then lies in a clique, and the other wants another tree."""
    of = Resolutions((4, 2, 5, 5))
    model = kind(of, total=1.0)
    model.assign(normal(of, CYCLE, seed=2))
    assert model._home((0, 3)) is not None
    assert model._home((1, 2)) is None
    for sets in ([*CYCLE, (0, 3)], [*CYCLE, (0, 3), (1, 2)]):
        functions = normal(of, sets, seed=3)
        model.assign(functions)
        for axes in combinations(range(4), 3):
            expected = marginal_of(of, distribution(of, functions), axes)
            np.testing.assert_allclose(model.marginal(axes), expected, rtol=0, atol=EXACT)


def test_a_set_that_lay_in_a_clique_by_luck_still_does_when_the_tree_changes() -> None:
    assign_a_cycle_and_then_both_of_its_chords(FactoredModel)


def test_the_check_of_luck_rejects_a_model_that_forgets() -> None:
    with pytest.raises(AssertionError, match="a clique for every set"):
        assign_a_cycle_and_then_both_of_its_chords(Forgetful)


class LeastAlike(JunctionTree):
    """Join cliques wrongly: those that have the least in common."""

    def _shared(self, one: int, other: int) -> int:
        return -super()._shared(one, other)


def parted_axes(tree: JunctionTree) -> set[int]:
    """Return the axes whose cliques are not connected: walked down from the root, they are entered more than once."""
    entered = Counter(
        axis
        for clique in tree.order
        for axis in axes_in(tree.cliques[clique])
        if clique == tree.root or not tree.cliques[tree.parents[clique]] >> axis & 1
    )
    return {axis for axis, times in entered.items() if times > 1}


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_every_assigned_set_lies_in_a_clique_of_a_junction_tree(data: st.DataObject) -> None:
    of = data.draw(resolutions(columns=8))
    model, assigned = FactoredModel(of, total=1.0), set()
    for axes in data.draw(st.lists(axes_of(of, most=3), min_size=1, max_size=8)):
        assigned.add(axes)
        model.assign(zeros(of, assigned))
        tree = model._tree
        assert not parted_axes(tree)
        assert set().union(*map(axes_in, tree.cliques)) == set(range(len(of.shape)))
        assert not any(inside(one, other) for one, other in permutations(tree.cliques, 2))
        assert sorted(tree.order) == list(range(len(tree.cliques)))
        assert all(tree.order.index(tree.parents[clique]) < tree.order.index(clique) for clique in tree.parents)
        assert all(any(inside(model.scope(one), clique) for clique in tree.cliques) for one in assigned)


def test_the_check_of_the_tree_rejects_cliques_joined_without_regard_to_what_they_share() -> None:
    scopes = Scopes(Resolutions((2, 2, 2, 2, 2)))
    chain = [scopes.of((column, column + 1)) for column in range(4)]
    assert not parted_axes(JunctionTree(chain, scopes))
    assert parted_axes(LeastAlike(chain, scopes))


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_the_forecast_of_a_set_is_never_below_the_cells_that_it_takes(data: st.DataObject) -> None:
    of = data.draw(resolutions(columns=8))
    model, assigned = FactoredModel(of, total=1.0), set()
    sets = data.draw(st.lists(axes_of(of, most=3), min_size=1, max_size=8))
    for axes in sets:
        before = model.cells
        forecasts = {one: model.cells_with(one) for one in sets}  # remembered ones must not outlive the tree
        assert model.cells == before
        if model._home(axes) is not None:
            assert forecasts[axes] == before
        assigned.add(axes)
        model.assign(zeros(of, assigned))
        assert model.cells <= forecasts[axes]


def test_a_forecast_counts_what_must_be_joined_besides_the_set() -> None:
    model = FactoredModel(Resolutions((5, 5, 5, 5)), total=1.0)
    chain = [(0, 1), (1, 2), (2, 3)]
    model.assign(zeros(model.resolutions, chain))
    assert model.cells == 3 * 25
    assert model.cells_with((0, 2)) == 125 + 25
    assert model.cells_with((0, 3)) == 2 * 125  # a cycle: the set's own 25 cells would be far too few
    model.assign(zeros(model.resolutions, [*chain, (0, 3)]))
    assert model.cells == 2 * 125


def test_a_set_of_coarser_versions_takes_only_their_cells() -> None:
    of = Resolutions((30, 40, 5))
    halves, thirds = of.coarsen(0, np.arange(30) // 15), of.coarsen(1, np.arange(40) // 14)
    model = FactoredModel(of, total=1.0)
    assert model.cells == 30 + 40 + 5
    assert model.cells_with((halves, thirds)) == 30 + 40 + 5 + 6
    assert model.cells_with((0, 1)) == 30 * 40 + 5
    model.assign(zeros(of, [(halves, thirds)]))
    assert model.cells == 30 + 40 + 5 + 6


SHAPE = (4, 3, 5, 2, 3, 4)
MEASURED = [(0,), (3,), (0, 1), (1, 2), (0, 2), (2, 3), (3, 4, 5)]


def measured(*, seed: int, noise: float) -> Evidence:
    rng, evidence = np.random.default_rng(seed), Evidence()
    counts = rng.gamma(0.3, size=SHAPE)
    for axes in MEASURED:
        exact = counts.sum(axis=tuple(axis for axis in range(len(SHAPE)) if axis not in axes))
        values = np.rint(exact + rng.normal(0, noise, exact.shape)).astype(np.int64)
        evidence.add(Measurement(step="m", axes=axes, cell=None, values=values, noise=noise))
    return evidence


def largest_difference(one: Model, other: Model) -> float:
    """Return by how much two models differ in any marginal of up to three columns, relative to their total."""
    sets = [axes for order in range(1, 4) for axes in combinations(range(len(SHAPE)), order)]
    return max(float(np.abs(one.marginal(axes) - other.marginal(axes)).max()) for axes in sets) / one.total


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_refining_leads_to_the_same_marginals_as_in_the_dense_model(seed: int) -> None:
    evidence = measured(seed=seed, noise=0.1)
    dense, model = DenseModel(SHAPE, total=evidence.total), FactoredModel(Resolutions(SHAPE), total=evidence.total)
    by_cells = refine(dense, evidence, {}, tries=40)
    by_functions = refine(model, evidence, {}, tries=40)
    for axes in MEASURED:
        np.testing.assert_allclose(by_functions[axes], by_cells[axes], rtol=0, atol=EXACT)
    assert largest_difference(model, dense) < EXACT


def test_the_comparison_of_refined_models_tells_one_try_more_or_less() -> None:
    evidence = measured(seed=3, noise=0.1)
    dense, model = DenseModel(SHAPE, total=evidence.total), FactoredModel(Resolutions(SHAPE), total=evidence.total)
    refine(dense, evidence, {}, tries=5)
    refine(model, evidence, {}, tries=4)
    assert largest_difference(model, dense) > 1000 * EXACT


@pytest.mark.parametrize("seed", [2, 6, 21, 23, 29, 36])
def test_a_table_that_is_all_noise_leaves_a_distribution(seed: int) -> None:
    evidence = measured(seed=seed, noise=3000.0)
    model = FactoredModel(Resolutions(SHAPE), total=evidence.total)
    refine(model, evidence, {}, tries=150)  # where nothing agrees, the functions grow without end
    for axes in combinations(range(len(SHAPE)), 3):
        found = model.marginal(axes)
        assert np.isfinite(found).all()
        assert found.sum() == pytest.approx(model.total, rel=EXACT)


def test_refining_reaches_what_was_measured_of_coarser_versions() -> None:
    of = Resolutions((6, 4))
    thirds, halves = of.coarsen(0, [0, 0, 1, 1, 2, 2]), of.coarsen(1, [0, 1, 1, 0])
    evidence, targets = Evidence(), {(0,): [50, 10, 30, 30, 10, 70], (thirds, halves): [[50, 10], [20, 40], [60, 20]]}
    for axes, values in targets.items():
        evidence.add(Measurement(step="m", axes=axes, cell=None, values=np.array(values), noise=0.01))
    model = FactoredModel(of, total=evidence.total)
    refine(model, evidence, {}, tries=400)
    for axes, values in targets.items():
        np.testing.assert_allclose(model.marginal(axes), values, atol=2 * LEAST_NOISE)
    # Nothing was said of cells within a group: they share it.
    np.testing.assert_allclose(
        model.marginal((thirds, 1)), np.array(targets[thirds, halves])[:, [0, 1, 1, 0]] / 2, atol=0.2
    )


def test_a_chain_of_sixty_columns_is_the_markov_chain_computed_by_hand() -> None:
    columns, cells = 60, 10
    of = Resolutions((cells,) * columns)
    halves = of.coarsen(45, np.arange(cells) % 2)
    rng = np.random.default_rng(4)
    start = rng.dirichlet(np.ones(cells))
    moves = [rng.dirichlet(np.full(cells, 0.3), size=cells) + 1e-6 for _ in range(columns - 1)]
    moves = [move / move.sum(axis=1, keepdims=True) for move in moves]
    model = FactoredModel(of, total=1.0)
    model.assign({(0,): np.log(start)} | {(at, at + 1): np.log(move) for at, move in enumerate(moves)})
    assert model.cells <= 59 * 100 + 20

    def after(begin: int, end: int) -> Weights:
        return np.linalg.multi_dot([np.eye(cells), np.eye(cells), *moves[begin:end]])

    singles = [start @ after(0, column) for column in range(columns)]
    for column in range(columns):
        np.testing.assert_allclose(model.marginal((column,)), singles[column], rtol=EXACT)
    for one, two in [(0, 1), (58, 59), (20, 23), (0, 59)]:
        np.testing.assert_allclose(model.marginal((one, two)), singles[one][:, None] * after(one, two), rtol=EXACT)
    first, second, third = 3, 30, 45
    expected = (singles[first][:, None] * after(first, second))[:, :, None] * after(second, third)
    np.testing.assert_allclose(model.marginal((first, second, third)), expected, rtol=EXACT)
    in_halves = np.stack([expected[:, :, ::2].sum(axis=2), expected[:, :, 1::2].sum(axis=2)], axis=2)
    np.testing.assert_allclose(model.marginal((first, second, halves)), in_halves, rtol=EXACT)


def test_a_new_model_is_uniform_at_every_resolution() -> None:
    of = Resolutions((4, 3))
    uneven = of.coarsen(0, [0, 0, 0, 1])
    model = FactoredModel(of, total=24.0)
    assert model.shape == (4, 3, 2)
    assert model.total == 24.0
    np.testing.assert_allclose(model.marginal((0, 1)), np.full((4, 3), 2.0), rtol=1e-12)
    np.testing.assert_allclose(model.marginal((1, uneven)), np.repeat([[6.0, 2.0]], 3, axis=0), rtol=1e-12)


def test_rescaling_changes_the_counts_and_not_the_distribution() -> None:
    of = Resolutions((2, 2, 3))
    model = FactoredModel(of, total=1.0)
    model.assign(normal(of, [(0, 1), (1, 2)], seed=5))
    before = model.marginals([(0, 1), (0, 2)])
    model.rescale(10.0)
    assert model.total == 10.0
    for axes, marginal in before.items():
        np.testing.assert_allclose(model.marginal(axes), 10 * marginal, rtol=1e-15)


@pytest.mark.parametrize("total", [0.0, -1.0, math.nan, math.inf])
def test_a_total_that_is_no_number_of_rows_is_refused(total: float) -> None:
    with pytest.raises(UsageError, match="positive number of rows"):
        FactoredModel(Resolutions((2,)), total=total)
    with pytest.raises(UsageError, match="positive number of rows"):
        FactoredModel(Resolutions((2,)), total=1.0).rescale(total)


def test_a_marginal_belongs_to_its_caller() -> None:
    of = Resolutions((2, 3, 2))
    model = FactoredModel(of, total=6.0)
    model.assign(zeros(of, [(0, 1), (1, 2)]))
    for axes in ((0,), (0, 1), (0, 2)):
        model.marginal(axes)[...] = 99.0
        np.testing.assert_allclose(model.marginal(axes), 6.0 / of.cells(axes), rtol=1e-12)


def test_the_functions_are_left_as_they_were() -> None:
    of = Resolutions((2, 3, 2))
    functions = normal(of, [(0,), (1,), (0, 1), (1, 2)], seed=6)
    copies = {axes: function.copy() for axes, function in functions.items()}
    FactoredModel(of, total=1.0).assign(functions)
    for axes, function in functions.items():
        np.testing.assert_array_equal(function, copies[axes])


def test_a_function_may_lie_in_memory_in_any_order() -> None:
    of = Resolutions((2, 3, 4))
    function = np.log(np.arange(1.0, 9.0)).reshape(4, 2).T
    model = FactoredModel(of, total=36.0)
    model.assign({(0, 2): function})
    np.testing.assert_allclose(model.marginal((0, 2)), np.exp(function), rtol=1e-12)


def test_a_constant_changes_nothing() -> None:
    of = Resolutions((2, 3))
    model = FactoredModel(of, total=6.0)
    model.assign({(): np.array(1e6), (0, 1): np.full((2, 3), -1e6)})
    np.testing.assert_allclose(model.marginal((0, 1)), np.ones((2, 3)), rtol=1e-12)
