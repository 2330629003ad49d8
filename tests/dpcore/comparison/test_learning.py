"""The classifier finds the optimum, its area is that of all pairs, and it tells apart what differs and nothing else."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

from dpcore.comparison.dependence import Grouped, cramers_v
from dpcore.comparison.learning import RIDGE, Logistic, area, predictions, recognition
from dpcore.comparison.rows import CodedRows


def rows(number: int, *, seed: int, bound: float) -> Grouped:
    """Rows of three columns: the second is the first, with a probability of `bound`, and otherwise random like the third."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, number)
    second = np.where(rng.random(number) < bound, first, rng.integers(0, 4, number))
    return Grouped(CodedRows([first, second, rng.integers(0, 3, number)]), (4, 4, 3))


def loss(weights: npt.NDArray[np.float64], indices: npt.NDArray[np.int64], truth: npt.NDArray[np.bool_]) -> float:
    scores = weights[:-1][indices].sum(axis=1) + weights[-1]
    return float(np.logaddexp(0, np.where(truth, -scores, scores)).mean() + RIDGE / 2 * (weights**2).sum())


def test_the_fit_is_the_optimum_that_another_optimiser_finds() -> None:
    rng = np.random.default_rng(1)
    indices = np.stack([rng.integers(0, 5, 3000), 5 + rng.integers(0, 7, 3000), 12 + rng.integers(0, 3, 3000)], axis=1)
    truth = rng.random(3000) < 1 / (1 + np.exp(-rng.normal(0, 1.5, 15)[indices].sum(axis=1)))
    fitted = Logistic.fit(indices, truth, sizes=[5, 7, 3])
    best = minimize(loss, np.zeros(16), args=(indices, truth), method="L-BFGS-B", options={"maxiter": 1000})
    found = loss(np.append(fitted.weights, fitted.constant), indices, truth)
    assert best.fun - 1e-9 <= found <= best.fun + 1e-4
    assert loss(np.zeros(16), indices, truth) > best.fun + 0.05  # the test has something to find


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(2)
    scores, truth = rng.integers(0, 6, 60).astype(float), rng.random(60) < 0.4
    pairs = [(one > other) + (one == other) / 2 for one in scores[truth] for other in scores[~truth]]
    assert area(scores, truth) == pytest.approx(np.mean(pairs))
    assert area(scores, np.zeros(60, dtype=bool)) == 0.5


def test_rows_of_the_same_kind_are_not_told_apart_and_others_are() -> None:
    true, alike, apart = rows(8000, seed=3, bound=0.8), rows(8000, seed=4, bound=0.8), rows(8000, seed=5, bound=0.0)
    told = recognition(true, alike, apart)
    # 4,000 rows are tested: the standard deviation of the area is below 0.01
    assert abs(told.release - 0.5) < 0.06
    assert abs(told.true - 0.5) < 0.06
    assert told.independent > 0.75  # columns alone would not tell, pairs do
    assert told.pmse < 0.01


def test_learning_on_a_release_loses_what_the_release_lost() -> None:
    true, good, bad = rows(6000, seed=6, bound=0.7), rows(6000, seed=7, bound=0.7), rows(6000, seed=8, bound=0.0)
    names, ordered = ("first", "second", "third"), (False, False, False)
    for made, low, high in ((good, 0.8, 0.95), (bad, 0.3, 0.7)):
        found = {each.column: each for each in predictions(true, made, names=names, ordered=ordered, target=None)}
        assert 0.8 < found["first"].learned_on_true < 0.95
        assert low < found["first"].learned_on_release < high
        assert abs(found["third"].learned_on_true - 0.5) < 0.06
    (only,) = predictions(true, good, names=names, ordered=ordered, target=1)
    assert only.column == "second"


def test_cramers_v_is_near_its_population_value_and_without_bias() -> None:
    # a table in which the second is the first with probability b has V = b
    dependent = rows(40_000, seed=9, bound=0.5).rows.counts((0, 1), (4, 4, 3))
    assert cramers_v(dependent) == pytest.approx(0.5, abs=0.03)
    found = [cramers_v(rows(300, seed=seed, bound=0.0).rows.counts((0, 1), (4, 4, 3))) for seed in range(40)]
    assert np.mean(found) < 0.06  # the usual estimate would be about 0.1
    assert cramers_v(np.array([[5.0, 3.0]])) == 0
