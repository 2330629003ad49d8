"""The classifier finds the optimum, its area is that of all pairs, and it tells apart what differs and nothing else."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

from dpcore.comparison.dependence import Grouped, cramers_v, dependence
from dpcore.comparison.learning import MOST_TARGETS, RIDGE, Logistic, area, predictions, recognition
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
    columns: Any = {
        "names": ("first", "second", "third"),
        "ordered": (False, False, False),
        "dependence": dependence(true, good).true,
    }
    for made, low, high in ((good, 0.8, 0.95), (bad, 0.3, 0.7)):
        found = {each.column: each for each in predictions(true, made, **columns, target=None)}
        assert 0.8 < found["first"].learned_on_true < 0.95
        assert low < found["first"].learned_on_release < high
        assert abs(found["third"].learned_on_true - 0.5) < 0.06
    (only,) = predictions(true, good, **columns, target=1)
    assert only.column == "second"


def test_of_many_columns_those_that_depend_most_on_another_are_predicted() -> None:
    rng = np.random.default_rng(10)
    codes = [rng.integers(0, 3, 3000) for _ in range(12)]
    codes[11] = np.where(rng.random(3000) < 0.9, codes[9], codes[11])  # the last columns are worth predicting
    codes[10] = np.where(rng.random(3000) < 0.5, codes[9], codes[10])
    table = Grouped(CodedRows(codes), (3,) * 12)
    names = [f"column {number}" for number in range(12)]
    known = dependence(table, table).true
    found = predictions(table, table, names=names, ordered=[False] * 12, dependence=known, target=None)
    assert len(found) == MOST_TARGETS
    assert [each.column for each in found[:3]] == ["column 9", "column 11", "column 10"]
    assert all(each.learned_on_true > 0.7 for each in found[:3])
    assert all(abs(each.learned_on_true - 0.5) < 0.1 for each in found[3:])


def test_cramers_v_is_near_its_population_value_and_without_bias() -> None:
    # a table in which the second is the first with probability b has V = b
    dependent = rows(40_000, seed=9, bound=0.5).rows.counts((0, 1), (4, 4, 3))
    assert cramers_v(dependent) == pytest.approx(0.5, abs=0.03)
    found = [cramers_v(rows(300, seed=seed, bound=0.0).rows.counts((0, 1), (4, 4, 3))) for seed in range(40)]
    assert np.mean(found) < 0.06  # the usual estimate would be about 0.1
    assert cramers_v(np.array([[5.0, 3.0]])) == 0
