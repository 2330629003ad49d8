"""Rows of a factored model: near to it where it was measured, and without any dependence that it does not have."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models import FactoredModel, Weights
from dpcore.models.factored.sampling import CHUNK_ROWS, GOLDEN
from tests.dpcore.models.factored_reference import (
    SEEDS,
    Codes,
    Functions,
    axes_of,
    counted,
    distribution,
    functions_of,
    marginal_of,
    resolutions,
)

Sampler = Callable[[FactoredModel, int, int], Codes]

SHAPE = (4, 3, 5)  # the first column depends on the second, and so does the third
FORK = ((0, 1), (1, 2))
SAME = np.where(np.eye(3) > 0, 0.0, -1000.0)  # one column says the group of another


def ours(model: FactoredModel, rows: int, seed: int) -> Codes:
    return model.rows(rows, rng=np.random.default_rng(seed))


def independent_draws(model: FactoredModel, rows: int, seed: int) -> Codes:
    """Draw every row for itself, from all cells."""
    columns = tuple(range(model.resolutions.columns))
    cells = model.marginal(columns) / model.total
    drawn = np.random.default_rng(seed).choice(cells.size, size=rows, p=cells.ravel() / cells.sum())
    return np.unravel_index(drawn, cells.shape)


def in_the_same_order(model: FactoredModel, rows: int, seed: int) -> Codes:
    """Draw a fork wrongly: in every clique the rows of a group get their cells in the same order, the first ones the first cells."""
    rng = np.random.default_rng(seed)
    middle = in_turn(model.marginal((1,)), rows, rng)
    outer = [np.zeros(rows, dtype=np.int64) for _ in range(2)]
    for cell in range(model.shape[1]):
        group = np.flatnonzero(middle == cell)
        outer[0][group] = in_turn(model.marginal((0, 1))[:, cell], len(group), rng)
        outer[1][group] = in_turn(model.marginal((1, 2))[cell], len(group), rng)
    return outer[0], middle, outer[1]


def in_turn(weights: Weights, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return cells in ascending order, each as often as its weight demands."""
    ends = np.cumsum(weights)
    return np.searchsorted(ends, (np.arange(rows) + rng.random()) * (ends[-1] / rows), side="right")


def fork(*, seed: int = 0, strength: float = 1.0) -> FactoredModel:
    rng = np.random.default_rng(seed)
    of = Resolutions(SHAPE)
    model = FactoredModel(of, total=1.0)
    model.assign({axes: rng.normal(0, strength, of.shape_of(axes)) for axes in FORK})
    return model


def independent_columns(*, seed: int = 0) -> FactoredModel:
    rng = np.random.default_rng(seed)
    of = Resolutions((4, 3, 5, 2))
    model = FactoredModel(of, total=1.0)
    model.assign({(axis,): rng.normal(size=size) for axis, size in enumerate(of.shape)})
    return model


def dependence(counts: Weights) -> float:
    """Return twice the information that one column has about another, in all rows: about the degrees of freedom where they are independent."""
    rows = counts.sum()
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(rows, 1)
    there = counts > 0
    return float(2 * (counts[there] * np.log(counts[there] / expected[there])).sum())


def dependence_given_the_middle(model: FactoredModel, sampler: Sampler, *, rows: int, seed: int) -> float:
    counts = counted(model.resolutions, sampler(model, rows, seed), (0, 1, 2))
    return sum(dependence(counts[:, cell]) for cell in range(SHAPE[1]))


def mean_dependence(model: FactoredModel, sampler: Sampler, *, rows: int, draws: int) -> float:
    return float(np.mean([dependence_given_the_middle(model, sampler, rows=rows, seed=seed) for seed in range(draws)]))


FREEDOM = SHAPE[1] * (SHAPE[0] - 1) * (SHAPE[2] - 1)


@pytest.mark.parametrize("rows", [400, 5000])
def test_columns_that_are_independent_given_their_separator_stay_so(rows: int) -> None:
    for seed in range(3):
        found = mean_dependence(fork(seed=seed), ours, rows=rows, draws=10)
        assert found < FREEDOM + 3 * math.sqrt(2 * FREEDOM / 10)


def test_the_check_of_independence_accepts_independent_draws() -> None:
    found = mean_dependence(fork(), independent_draws, rows=5000, draws=10)
    assert abs(found - FREEDOM) < 3 * math.sqrt(2 * FREEDOM / 10)


@pytest.mark.parametrize("rows", [400, 5000])
def test_the_check_of_independence_rejects_cells_given_in_the_same_order_in_both_cliques(rows: int) -> None:
    for seed in range(3):
        model = fork(seed=seed)
        assert mean_dependence(model, in_the_same_order, rows=rows, draws=2) > 5 * FREEDOM
        assert largest_error(model, in_the_same_order, FORK, rows=rows) < 3  # no marginal of a clique tells


def least_likely_pair(of: Resolutions, rows: Codes) -> float:
    """Return how probable so much dependence is among independent draws, for the pair of columns where it is the least."""
    return min(
        float(chi2.sf(dependence(counted(of, rows, (one, two))), (of.shape[one] - 1) * (of.shape[two] - 1)))
        for one, two in combinations(range(of.columns), 2)
    )


@pytest.mark.parametrize("rows", [300, 5000])
def test_independent_columns_stay_independent(rows: int) -> None:
    for seed in range(10):
        model = independent_columns(seed=seed)
        assert least_likely_pair(model.resolutions, ours(model, rows, seed)) > 1e-5


@pytest.mark.parametrize("rows", [300, 5000])
def test_the_check_of_independent_columns_rejects_those_in_the_same_order(rows: int) -> None:
    model, rng = independent_columns(), np.random.default_rng(0)
    assert least_likely_pair(model.resolutions, independent_draws(model, rows, 0)) > 1e-5
    alike = [in_turn(model.marginal((axis,)), rows, rng) for axis in range(4)]
    assert least_likely_pair(model.resolutions, alike) < 1e-30


def test_all_columns_together_are_nearer_to_the_model_than_independent_draws() -> None:
    model = fork(strength=0.7)
    expected = 3000 * model.marginal((0, 1, 2))

    def error(sampler: Sampler, seed: int) -> float:
        counts = counted(model.resolutions, sampler(model, 3000, seed), (0, 1, 2))
        return float(((counts - expected) ** 2 / expected).mean())

    for seed in range(10):
        assert error(ours, seed) < 0.5
        assert error(independent_draws, seed) > 0.5


def largest_error(model: FactoredModel, sampler: Sampler, sets: Sequence[Axes], *, rows: int) -> float:
    """Return by how many rows any cell of some marginals is off, at most."""
    drawn = sampler(model, rows, 7)
    return max(
        float(np.abs(counted(model.resolutions, drawn, axes) - rows / model.total * model.marginal(axes)).max())
        for axes in sets
    )


@pytest.mark.parametrize("rows", [300, 5000, 40_000])
def test_marginals_of_cliques_are_off_by_a_few_rows_however_many_there_are(rows: int) -> None:
    for seed in range(5):
        model = fork(seed=seed)
        assert largest_error(model, ours, FORK, rows=rows) < 6
        assert largest_error(model, independent_draws, FORK, rows=rows) > 6


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_was_assigned_comes_out_right_at_any_resolution(data: st.DataObject) -> None:
    of = data.draw(resolutions())
    model = FactoredModel(of, total=1.0)
    rng = np.random.default_rng(data.draw(SEEDS))
    sets = data.draw(st.lists(axes_of(of, most=3), min_size=1, max_size=5))
    model.assign({axes: np.asarray(rng.normal(size=of.shape_of(axes))) for axes in sets})
    assert largest_error(model, ours, sets, rows=2000) < 12


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from([0, 1, 2, 3, 50, 257]), SEEDS)
def test_there_are_exactly_as_many_rows_as_asked_for(data: st.DataObject, rows: int, seed: int) -> None:
    of = data.draw(resolutions())
    model = FactoredModel(of, total=9.0)
    model.assign(data.draw(functions_of(of)))
    codes = model.rows(rows, rng=np.random.default_rng(seed))
    assert len(codes) == of.columns
    for column, drawn in enumerate(codes):
        assert np.issubdtype(drawn.dtype, np.integer)
        assert drawn.shape == (rows,)
        assert ((drawn >= 0) & (drawn < of.shape[column])).all()


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 65_536, 65_537])
def test_codes_have_a_type_that_holds_them_and_none_that_is_larger_than_needed(size: int) -> None:
    of = Resolutions((size, 2))
    model = FactoredModel(of, total=1.0)
    last = np.full(size, -1000.0)
    last[-1] = 0.0
    model.assign({(0,): last})
    for sampled in (ours(model, 20, 0), ours(model, 0, 0)):
        assert np.iinfo(sampled[0].dtype).max >= size - 1
        assert sampled[0].dtype.itemsize <= (1 if size <= 256 else 2 if size <= 65_536 else 4)
    assert (ours(model, 20, 0)[0] == size - 1).all()


def with_holes(of: Resolutions, sets: Sequence[Axes], *, depth: float, seed: int) -> Functions:
    """Return functions that take a third of all cells down; the first cell of all is never among them."""
    rng = np.random.default_rng(seed)
    functions = {}
    for axes in sets:
        function = np.where(rng.random(of.shape_of(axes)) < 1 / 3, -depth, rng.normal(size=of.shape_of(axes)))
        first = tuple(of.groups(of.column(axis), axis)[0] for axis in axes)
        function[first] = 0.0
        functions[axes] = function
    return functions


def impossible_rows(of: Resolutions, functions: Functions, rows: Codes) -> int:
    """Return how many rows lie in a hole."""
    return int(np.count_nonzero(counted(of, rows, tuple(range(of.columns)))[distribution(of, functions) == 0]))


@settings(deadline=None, max_examples=100)
@given(st.data(), SEEDS)
def test_a_cell_of_probability_zero_is_never_drawn(data: st.DataObject, seed: int) -> None:
    of = data.draw(resolutions(columns=5))
    sets = data.draw(st.lists(axes_of(of, most=3), unique=True, max_size=4))
    functions = with_holes(of, sets, depth=1000.0, seed=seed)
    model = FactoredModel(of, total=1.0)
    model.assign(functions)
    assert impossible_rows(of, functions, ours(model, 500, seed)) == 0


def test_the_check_of_holes_finds_rows_where_they_are_shallow() -> None:
    of = Resolutions((3, 4, 3))
    model = FactoredModel(of, total=1.0)
    model.assign(with_holes(of, FORK, depth=3.0, seed=0))
    assert impossible_rows(of, with_holes(of, FORK, depth=1000.0, seed=0), ours(model, 500, 0)) > 0


class FirstMoment(np.random.Generator):
    """A generator whose uniform draws are all zero."""

    def random(self) -> float:  # type: ignore[override]
        return 0.0


class LastMoment(np.random.Generator):
    """A generator whose uniform draws are the largest below one."""

    def random(self) -> float:  # type: ignore[override]
        return float(np.nextafter(1.0, 0.0))


@pytest.mark.parametrize("rows", [1, 2, 13])
def test_the_very_first_share_draws_no_cell_without_weight(rows: int) -> None:
    of = Resolutions((3, 4, 4))
    for seed in range(20):
        functions = {axes: np.random.default_rng(seed).normal(size=of.shape_of(axes)) for axes in ((0, 1), (0, 2))}
        for function in functions.values():
            function[:, 0] = -1000.0
        model = FactoredModel(of, total=1.0)
        model.assign(functions)
        drawn = model.rows(rows, rng=FirstMoment(np.random.PCG64(seed)))
        assert impossible_rows(of, functions, drawn) == 0


@pytest.mark.parametrize("rows", [1, 2, 13])
def test_rounding_at_the_very_end_leaves_a_row_in_its_group(rows: int) -> None:
    of = Resolutions((6, 3, 5))
    groups = np.array([0, 0, 1, 1, 2, 2])
    thirds = of.coarsen(0, groups)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        model = FactoredModel(of, total=1.0)
        model.assign({(1, 2, thirds): rng.normal(size=(3, 5, 3)), (0,): rng.normal(size=6), (1, thirds): SAME})
        drawn = model.rows(rows, rng=LastMoment(np.random.PCG64(seed)))
        assert (groups[drawn[0]] == drawn[1]).all()


@pytest.mark.parametrize("first", ["the column itself", "its coarser version"])
def test_a_row_lies_in_the_same_group_in_every_clique(first: str) -> None:
    of = Resolutions((6, 3, 4, 5))
    groups = np.array([1, 0, 2, 2, 0, 1])
    thirds = of.coarsen(0, groups)
    rng = np.random.default_rng(3)
    functions: Functions = {(1, thirds): SAME, (1,): rng.normal(size=3), (0, 2): rng.normal(size=(6, 4))}
    if first == "its coarser version":
        functions[1, 3, thirds] = rng.normal(size=(3, 5, 3))
    model = FactoredModel(of, total=1.0)
    model.assign(functions)
    assert (0 in model._tree.axes[model._tree.root]) == (first == "the column itself")  # the root is drawn first
    rows = ours(model, 2000, 5)
    assert (groups[rows[0]] == rows[1]).all()
    assert not (groups[np.random.default_rng(0).permutation(rows[0])] == rows[1]).all()
    assert largest_error(model, ours, [(0, 2), (1, thirds), (0,), (thirds,)], rows=2000) < 6
    probabilities = distribution(of, functions)
    np.testing.assert_allclose(counted(of, rows, (0, 1, 2)), 2000 * marginal_of(of, probabilities, (0, 1, 2)), atol=12)


class AlwaysTheSame(np.random.Generator):
    """A generator whose uniform draws are all one half."""

    def random(self) -> float:  # type: ignore[override]
        return 0.5


def largest_bias(generator: type[np.random.Generator]) -> float:
    """Return the worst cell's distance of its mean count from the expected one, in standard errors."""
    model, rows, draws = fork(strength=0.7), 7, 1500
    counts = np.array(
        [
            counted(model.resolutions, model.rows(rows, rng=generator(np.random.PCG64(seed))), (0, 1, 2))
            for seed in range(draws)
        ]
    )
    expected = rows * model.marginal((0, 1, 2))
    return float(np.max(np.abs(counts.mean(axis=0) - expected) / np.sqrt(expected / draws)))


def test_every_cell_gets_its_expected_count_on_average() -> None:
    assert largest_bias(np.random.Generator) < 4.5


def test_the_check_of_the_average_rejects_offsets_that_are_not_random() -> None:
    assert largest_bias(AlwaysTheSame) > 20


def test_the_same_seed_gives_the_same_rows_and_another_seed_others() -> None:
    model = fork()
    first, again, other = (np.array(ours(model, 200, seed)).tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_rows_follow_the_functions_that_were_assigned_last() -> None:
    model = fork()
    ours(model, 100, 0)
    model.assign({(0, 2): np.where(np.arange(20).reshape(4, 5) == 13, 0.0, -1000.0)})
    rows = ours(model, 100, 0)
    assert set(rows[0].tolist()) == {2}
    assert set(rows[2].tolist()) == {3}


def test_the_total_of_the_model_does_not_matter() -> None:
    model = fork()
    before = np.array(ours(model, 200, 1))
    model.rescale(12345.0)
    np.testing.assert_array_equal(np.array(ours(model, 200, 1)), before)


def in_sequence(codes: NDArray[np.int64]) -> float:
    """Return how much a row's code says about one of the next rows, or its place does: the largest correlation."""
    places = np.corrcoef(codes, np.arange(len(codes)))[0, 1]
    return max(abs(places), *(abs(np.corrcoef(codes[:-lag], codes[lag:])[0, 1]) for lag in range(1, 14)))


def test_neither_the_place_of_a_row_nor_the_rows_before_say_anything_about_it() -> None:
    for column in ours(fork(), 4000, 1):
        assert in_sequence(column) < 0.08


def test_the_check_of_the_sequence_rejects_rows_in_the_order_in_which_they_are_drawn() -> None:
    ends = np.cumsum(fork().marginal((1,)))
    assert in_sequence(in_turn(fork().marginal((1,)), 4000, np.random.default_rng(1))) > 0.5
    assert in_sequence(np.searchsorted(ends, np.arange(4000) * GOLDEN % 1.0)) > 0.5


def test_three_hundred_thousand_rows_of_fourteen_columns() -> None:
    rng = np.random.default_rng(5)
    of = Resolutions((9, 16, 7, 15, 6, 5, 2, 8, 10, 41, 5, 2, 4, 3))
    halves = of.coarsen(9, np.arange(41) // 21)
    links = [(int(rng.integers(column)), column) for column in range(1, of.columns)]
    functions = {axes: rng.normal(size=of.shape_of(axes)) for axes in [*links, (1, 3, halves)]}
    model = FactoredModel(of, total=1.0)
    model.assign(functions)
    rows = ours(model, 300_000, 0)
    assert CHUNK_ROWS < 300_000  # so that there is more than one chunk
    assert [column.shape for column in rows] == [(300_000,)] * 14
    for axes in functions:
        error = np.abs(counted(of, rows, axes) - 300_000 * model.marginal(axes))
        assert error.max() < 15


@pytest.mark.parametrize(
    ("shape", "rows"), [((2,) * 14, 1000), ((10,) * 9, 20_000), ((1000, 2, 2), 300), ((100, 2, 2), 300)]
)
def test_independent_columns_stay_independent_also_where_every_row_is_the_only_one_of_its_kind(
    shape: tuple[int, ...], rows: int
) -> None:
    model = FactoredModel(Resolutions(shape), total=1.0)
    kept = [axis for axis, size in enumerate(shape) if size * 20 < rows]
    for seed in range(4):
        drawn = ours(model, rows, seed)
        assert least_likely_pair(Resolutions([shape[axis] for axis in kept]), [drawn[axis] for axis in kept]) > 1e-6


def test_columns_independent_given_a_separator_stay_so_where_another_tells_all_rows_apart() -> None:
    of = Resolutions((500, 3, 3, 3))  # the second column is the separator
    rng = np.random.default_rng(0)
    model = FactoredModel(of, total=1.0)
    model.assign({(0, 1): rng.normal(size=(500, 3)), (1, 2): rng.normal(size=(3, 3)), (1, 3): rng.normal(size=(3, 3))})
    for seed in range(6):
        counts = counted(of, ours(model, 1500, seed), (1, 2, 3))
        assert chi2.sf(sum(dependence(counts[cell]) for cell in range(3)), 12) > 1e-6


@pytest.mark.parametrize("rows", [1, 2, 13])
def test_the_very_last_share_draws_no_cell_without_weight(rows: int) -> None:
    of = Resolutions((3, 4, 4))
    for seed in range(20):
        functions = {axes: np.random.default_rng(seed).normal(size=of.shape_of(axes)) for axes in ((0, 1), (0, 2))}
        for function in functions.values():
            function[:, -1] = -1000.0
        model = FactoredModel(of, total=1.0)
        model.assign(functions)
        assert impossible_rows(of, functions, model.rows(rows, rng=LastMoment(np.random.PCG64(seed)))) == 0
