"""A fit that stops at the noise weakens trends; they are kept, and the columns' marginals with them."""

from collections.abc import Sequence

import numpy as np
import pytest

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models import DenseModel, Evidence, FactoredModel, Functions, Model, refine, trends
from dpcore.models.trends import keep_trends

CELLS, ROWS, NOISE = 24, 40_000, 16.0
INNER = CELLS - 1
"""The last cell of each column, for nulls, is not in order."""

ORDERS = {0: INNER, 1: INNER}


def correlated(rho: float) -> np.ndarray:
    """Return the counts of two columns with a correlation, and a few nulls in each."""
    places = np.linspace(-2.5, 2.5, INNER)
    density = np.exp(-(places[:, None] ** 2 - 2 * rho * np.outer(places, places) + places**2) / (2 * (1 - rho**2)))
    counts = np.zeros((CELLS, CELLS))
    counts[:INNER, :INNER] = density * (0.96 * ROWS / density.sum())
    counts[-1, :INNER], counts[:INNER, -1] = 0.02 * ROWS / INNER, 0.02 * ROWS / INNER
    return np.rint(counts)


def trend(counts: np.ndarray) -> float:
    """Return the correlation of the ranks, nulls aside."""
    inner = counts[:INNER, :INNER] / counts[:INNER, :INNER].sum()
    ranks = np.arange(INNER)
    rows, columns = inner.sum(axis=1), inner.sum(axis=0)
    one, other = ranks - rows @ ranks, ranks - columns @ ranks
    return float(one @ inner @ other / np.sqrt((rows @ one**2) * (columns @ other**2)))


def measured(counts: np.ndarray, sets: Sequence[Axes], *, seed: int) -> Evidence:
    """Return noisy marginals: those of columns with a tenth of the noise."""
    rng, evidence = np.random.default_rng(seed), Evidence()
    for axes in sets:
        true = counts.sum(axis=tuple(axis for axis in range(counts.ndim) if axis not in axes))
        noise = NOISE if len(axes) > 1 else NOISE / 10
        values = np.rint(true + rng.normal(0, noise, true.shape)).astype(np.int64)
        evidence.add(Measurement("step", axes, cell=None, values=values, noise=noise))
    return evidence


def fitted(model: Model, evidence: Evidence, sets: Sequence[Axes]) -> Functions:
    model.rescale(evidence.total)
    base = refine(model, evidence, {}, tries=1)
    return refine(model, evidence, {axes: base[axes] for axes in sets}, tries=200)


@pytest.mark.parametrize("kind", [DenseModel, FactoredModel])
@pytest.mark.parametrize("rho", [0.5, -0.5])
def test_a_trend_that_a_fit_has_weakened_is_kept_and_so_are_the_columns(kind: type[Model], rho: float) -> None:
    counts, sets = correlated(rho), [(0,), (1,), (0, 1)]
    evidence, of = measured(counts, sets, seed=1), Resolutions(counts.shape)
    model: Model = DenseModel(of.shape, total=1.0) if kind is DenseModel else FactoredModel(of, total=1.0)
    functions = fitted(model, evidence, sets)
    before = {axes: model.marginal(axes) for axes in sets}
    assert abs(trend(before[0, 1])) < 0.6 * abs(trend(counts))  # the fit alone
    kept = keep_trends(model, evidence, functions, orders=ORDERS)
    assert trend(model.marginal((0, 1))) == pytest.approx(trend(counts), rel=0.1)
    for axes in sets[:2]:
        assert np.abs(model.marginal(axes) - before[axes]).sum() < 0.005 * ROWS
    assert np.abs(model.marginal((0, 1)) - counts).sum() < 1.01 * np.abs(before[0, 1] - counts).sum()
    after = model.marginal((0, 1))
    model.assign(kept)
    np.testing.assert_array_equal(model.marginal((0, 1)), after)


def test_a_trend_within_its_noise_is_left_alone() -> None:
    counts, sets = correlated(0.0), [(0,), (1,), (0, 1)]
    evidence, model = measured(counts, sets, seed=2), DenseModel(counts.shape, total=1.0)
    functions = fitted(model, evidence, sets)
    kept = keep_trends(model, evidence, functions, orders=ORDERS)
    assert {axes: function.tolist() for axes, function in kept.items()} == {
        axes: function.tolist() for axes, function in functions.items()
    }


def test_columns_without_an_order_have_no_trend() -> None:
    counts, sets = correlated(0.5), [(0,), (1,), (0, 1)]
    evidence, model = measured(counts, sets, seed=1), DenseModel(counts.shape, total=1.0)
    functions = fitted(model, evidence, sets)
    kept = keep_trends(model, evidence, functions, orders={0: INNER})
    assert all(kept[axes] is functions[axes] for axes in functions)


def test_a_pair_within_a_larger_marginal_has_its_trend_too() -> None:
    pair = correlated(0.5)
    counts = np.rint(np.stack([0.3 * pair, 0.7 * pair], axis=2))
    sets = [(0,), (1,), (2,), (0, 1, 2)]
    evidence, model = measured(counts, sets, seed=3), DenseModel(counts.shape, total=1.0)
    functions = fitted(model, evidence, sets)
    before = trend(model.marginal((0, 1)))
    keep_trends(model, evidence, functions, orders=ORDERS)
    assert before < 0.5 * trend(pair)
    assert trend(model.marginal((0, 1))) == pytest.approx(trend(pair), rel=0.2)


def test_of_two_measurements_of_a_pair_the_one_with_less_noise_counts() -> None:
    """A coarse version of a column is measured as well: its marginal has fewer cells, and so less noise together."""
    counts = correlated(0.5)
    of = Resolutions(counts.shape)
    coarse = of.coarsen(0, [*(np.arange(INNER) // 6), 4])
    evidence = measured(counts, [(0,), (1,), (0, 1)], seed=4)
    merged = np.add.reduceat(counts, [0, 6, 12, 18, INNER], axis=0)
    values = np.rint(merged.T + np.random.default_rng(5).normal(0, NOISE, merged.T.shape)).astype(np.int64)
    evidence.add(Measurement("step", (1, coarse), cell=None, values=values, noise=NOISE))
    model = FactoredModel(of, total=1.0)
    functions = fitted(model, evidence, [(0,), (1,), (0, 1), (1, coarse)])
    keep_trends(model, evidence, functions, orders=ORDERS)
    assert trend(model.marginal((0, 1))) == pytest.approx(trend(counts), rel=0.1)


def test_a_correction_that_other_counts_contradict_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """On hospital stays, the trend of a rare corner once moved a pair of columns by half of its rows."""
    counts, sets = correlated(0.5), [(0,), (1,), (0, 1)]
    evidence = measured(counts, sets, seed=1)
    model = DenseModel(counts.shape, total=1.0)
    functions = fitted(model, evidence, sets)
    before = model.marginal((0, 1)).copy()
    corner = np.zeros(counts.shape)
    corner[INNER - 3 : INNER, :3] = 12.0

    def too_far(_: object) -> Functions:
        model.assign(wrong)
        return wrong

    wrong = {**functions, (0, 1): functions[0, 1] + corner}
    monkeypatch.setattr(trends._Correction, "solve", too_far)
    kept = keep_trends(model, evidence, functions, orders=ORDERS)
    assert kept == dict(functions)
    assert model.marginal((0, 1)) == pytest.approx(before)
    model.assign(wrong)
    assert np.abs(model.marginal((0, 1)) - before).sum() > 0.5 * ROWS  # so far it would have gone
