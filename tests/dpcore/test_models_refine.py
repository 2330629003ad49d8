"""Refining: towards what was measured, by multiplicative steps, and not into the noise."""

import numpy as np
import pytest

from dpcore.measurements import Measurement
from dpcore.models import DenseModel, Evidence, Potentials, refine

SHAPE = (4, 5, 6)
TRIPLE = [(0, 1), (0, 2), (1, 2)]


def truth() -> np.ndarray:
    return np.random.default_rng(3).gamma(0.4, size=SHAPE) * 60


def evidence_of(counts: np.ndarray, *, noise: float, seed: int) -> Evidence:
    rng, evidence = np.random.default_rng(seed), Evidence()
    for axes in TRIPLE:
        exact = counts.sum(axis=tuple(axis for axis in range(3) if axis not in axes))
        values = np.rint(exact + rng.normal(0, noise, exact.shape)).astype(np.int64)
        evidence.add(Measurement(step="m", axes=axes, cell=None, values=values, noise=noise))
    return evidence


def squared_error(model: DenseModel, evidence: Evidence) -> float:
    return sum(
        float(((target.counts - model.marginal(axes)) ** 2).sum()) / target.variance for axes, target in evidence
    )


def refined(evidence: Evidence, *, steps: int) -> DenseModel:
    model = DenseModel(SHAPE, total=evidence.total)
    refine(model, evidence, Potentials(), steps=steps)
    return model


def test_it_leads_to_exact_marginals() -> None:
    counts = truth()
    model = refined(evidence_of(counts, noise=0.3, seed=1), steps=3000)
    for axes in TRIPLE:
        exact = counts.sum(axis=tuple(axis for axis in range(3) if axis not in axes))
        assert np.abs(model.marginal(axes) - exact).sum() < 0.02 * exact.sum()


def test_more_steps_never_raise_the_error_against_what_was_measured() -> None:
    evidence = evidence_of(truth(), noise=3.0, seed=2)
    errors = [squared_error(refined(evidence, steps=steps), evidence) for steps in (0, 1, 5, 20, 80)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 5


def test_it_stops_where_noise_begins() -> None:
    evidence = evidence_of(truth(), noise=20.0, seed=4)
    enough, far_more = refined(evidence, steps=2000), refined(evidence, steps=20000)
    assert np.array_equal(enough.weights, far_more.weights)
    assert 0.4 * evidence.cells < squared_error(enough, evidence) <= evidence.cells


def test_a_step_is_that_of_multiplicative_weights() -> None:
    evidence = Evidence()
    evidence.add(Measurement(step="m", axes=(0,), cell=None, values=np.array([60, 20]), noise=2.0))
    model = DenseModel((2, 3), total=80.0)
    refine(model, evidence, Potentials({}, rate=0.1), steps=1)
    factor = np.exp(0.1 * np.array([20, -20]) / 4)
    np.testing.assert_allclose(model.marginal((0,)), 80 * factor / factor.sum(), rtol=1e-12)


def test_it_goes_on_from_where_it_was() -> None:
    evidence = evidence_of(truth(), noise=1.0, seed=5)
    model, again = DenseModel(SHAPE, total=evidence.total), DenseModel(SHAPE, total=evidence.total)
    state = Potentials()
    for _ in range(4):
        state = refine(model, evidence, state, steps=10)
    refine(again, evidence, Potentials(), steps=40)
    np.testing.assert_allclose(model.weights, again.weights, rtol=1e-9)


@pytest.mark.parametrize("values", [[10**15, -(10**15)], [0, 0], [-5, -5], [1, 0]])
def test_absurd_counts_leave_a_distribution(values: list[int]) -> None:
    evidence = Evidence()
    evidence.add(Measurement(step="m", axes=(0,), cell=None, values=np.array(values), noise=1e-3))
    model = DenseModel((2, 2), total=evidence.total)
    refine(model, evidence, Potentials(), steps=200)
    assert np.isfinite(model.weights).all()
    assert model.weights.sum() == pytest.approx(1)
