"""Both models under constraints: no weight where no row can be, the same distribution elsewhere, and a fit that leaves such cells out."""

import itertools
import math

import numpy as np
import pytest

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import Zeros
from dpcore.models import DenseModel, Evidence, FactoredModel, refine
from dpcore.models.lifted import Grid, LiftedModel, key_of
from dpcore.models.refine import misfit
from dpcore.models.trends import keep_trends

SHAPE = (6, 7, 2, 5, 4)
ROWS = 20_000


def constraints() -> Zeros:
    """Return constraints on a chain of three columns, which exclude about half of all cells."""
    rng = np.random.default_rng(11)
    tables = {(0, 1): rng.random((6, 7)) < 0.5, (1, 2): rng.random((7, 2)) < 0.8}
    tables[0, 1][:, 0] = tables[0, 1][0] = True
    tables[1, 2][:, 0] = True
    return Zeros(tables)


def possible(zeros: Zeros) -> np.ndarray:
    first, second = zeros.possible.values()
    return np.broadcast_to((first[:, :, None] & second[None])[..., None, None], SHAPE)


def functions(seed: int, *, size: float = 1.0) -> dict[Axes, np.ndarray]:
    rng = np.random.default_rng(seed)
    sets = [(0, 1), (1, 3), (0, 4), (2, 3), (2,)]
    return {axes: size * rng.normal(size=[SHAPE[axis] for axis in axes]) for axes in sets}


def both_models(zeros: Zeros, given: dict[Axes, np.ndarray]) -> tuple[DenseModel, FactoredModel]:
    dense, factored = (
        DenseModel(SHAPE, total=float(ROWS), zeros=zeros),
        FactoredModel(Resolutions(SHAPE), total=float(ROWS), zeros=zeros),
    )
    for model in (dense, factored):
        model.assign(given)
    return dense, factored


@pytest.mark.parametrize("size", [0.0, 1.0, 150.0])  # with the last one, factors are added as logarithms
def test_both_models_are_the_unconstrained_one_given_the_constraints(size: float) -> None:
    zeros, given = constraints(), functions(1, size=size)
    free = DenseModel(SHAPE, total=float(ROWS))
    free.assign(given)
    weights = np.where(possible(zeros), free.weights, 0.0)
    weights = weights / weights.sum() * ROWS
    dense, factored = both_models(zeros, given)
    for order in (1, 2, 3, 5):
        for axes in itertools.combinations(range(5), order):
            wanted = weights.sum(axis=tuple(axis for axis in range(5) if axis not in axes))
            for model in (dense, factored):
                found = model.marginal(axes)
                assert np.allclose(found, wanted, rtol=1e-7, atol=1e-7)
                mask = model.possible(axes)
                assert mask is None or not found[~mask].any()  # exactly zero, not almost


@pytest.mark.parametrize("size", [1.0, 150.0])
def test_no_row_is_drawn_where_none_can_be(size: float) -> None:
    zeros = constraints()
    allowed = possible(zeros)
    for model in both_models(zeros, functions(2, size=size)):
        rows = model.rows(50_000, rng=np.random.default_rng(1))
        assert allowed[tuple(rows)].all()


def test_a_grid_is_possible_where_one_of_its_cells_is() -> None:
    dense, _ = both_models(constraints(), {})
    grid = Grid((0, 1), (np.array([0, 1, 1, 1, 1, 1]), np.arange(7)))
    wanted = np.stack([constraints().possible[0, 1][0], constraints().possible[0, 1][1:].any(axis=0)])
    found = LiftedModel(dense, [grid]).possible(key_of(0))
    assert found is None or np.array_equal(found, wanted)
    assert LiftedModel(dense, [grid]).possible((0, 1)) is not None


def truth(zeros: Zeros) -> np.ndarray:
    rng = np.random.default_rng(5)
    counts = np.where(possible(zeros), rng.gamma(0.3, size=SHAPE), 0.0)
    return counts * ROWS / counts.sum()


class Blind(DenseModel):
    """The planted variant: what is excluded counts as a known zero in the evidence."""

    def possible(self, axes: Axes) -> None:
        return None


def fitted(kind: type[DenseModel], zeros: Zeros, counts: np.ndarray, *, noise: float, seed: int) -> float:
    """Fit all triples, and return the mean error of their shares."""
    rng, evidence, triples = np.random.default_rng(seed), Evidence(), list(itertools.combinations(range(5), 3))
    exact = {axes: counts.sum(axis=tuple(axis for axis in range(5) if axis not in axes)) for axes in triples}
    for axes in triples:
        mask = zeros.support(axes, Resolutions(SHAPE))
        noisy = np.rint(exact[axes] + rng.normal(0, noise, exact[axes].shape)).astype(np.int64)
        values = noisy if mask is None or kind is DenseModel else np.where(mask, noisy, 0)
        evidence.add(Measurement("m", axes, None, values, noise))
    model = kind(SHAPE, total=evidence.total, zeros=zeros)
    refine(model, evidence, {}, tries=150)
    return float(np.mean([np.abs(model.marginal(axes) - exact[axes]).sum() / ROWS for axes in triples]))


def test_a_fit_leaves_out_what_is_excluded_and_one_that_zeroes_it_stops_too_early() -> None:
    zeros = constraints()
    counts = truth(zeros)
    right, planted = (
        np.mean([fitted(kind, zeros, counts, noise=40.0, seed=seed) for seed in range(3)])
        for kind in (DenseModel, Blind)
    )
    assert right < 0.97 * planted  # the bar that the planted variant fails


def test_functions_of_excluded_cells_stay_zero() -> None:
    zeros, evidence = constraints(), Evidence()
    evidence.add(Measurement("m", (0, 1), None, np.full((6, 7), 100), 1.0))
    model = DenseModel(SHAPE, total=evidence.total, zeros=zeros)
    found = refine(model, evidence, {}, tries=20)
    mask = model.possible((0, 1))
    assert mask is not None
    assert not found[0, 1][~mask].any()
    assert found[0, 1][mask].any()
    assert math.isclose(float(model.marginal((0, 1)).sum()), evidence.total)


@pytest.mark.parametrize("kind", ["dense", "factored"])
def test_counts_that_are_excluded_decide_neither_about_trends_nor_about_a_start(kind: str) -> None:
    ordered = np.arange(8)[:, None] <= np.arange(8)[None, :]
    zeros, resolutions = Zeros({(0, 1): ordered}), Resolutions((8, 8))
    rng = np.random.default_rng(5)
    true = np.where(ordered, np.rint(4000 * np.exp(-np.abs(np.subtract.outer(np.arange(8), np.arange(8))))), 0)

    def found(excluded: int) -> tuple[np.ndarray, tuple[float, int, int]]:
        model = (
            DenseModel((8, 8), total=1.0, zeros=zeros)
            if kind == "dense"
            else FactoredModel(resolutions, total=1.0, zeros=zeros)
        )
        singles = [
            Measurement("one", (0,), cell=None, values=true.sum(axis=1).astype(np.int64), noise=5.0),
            Measurement("two", (1,), cell=None, values=true.sum(axis=0).astype(np.int64), noise=5.0),
        ]
        base = refine(model, Evidence.of(singles), {}, tries=5)
        noisy = np.where(ordered, true + noise, excluded).astype(np.int64)
        pair = Measurement("three", (0, 1), cell=None, values=noisy, noise=5.0)
        model.make_room([(0, 1)])
        model.rescale(float(true.sum()))
        with_pair = Evidence.of([*singles, pair])
        error = misfit(model, base, with_pair)
        given = {**base, (0, 1): np.zeros((8, 8))}
        model.assign(given)
        keep_trends(model, with_pair, given, orders={0: 8, 1: 8})
        return model.marginal((0, 1)), error

    noise = rng.normal(0, 5, (8, 8))
    (marginal, error), (other, other_error) = found(0), found(-70)
    assert error == other_error
    assert error.cells == 8 + 8 + 36
    assert np.allclose(marginal, other)
