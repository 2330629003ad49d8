"""Fits to other measurements of the same marginals share one model, and end where fresh ones do."""

import numpy as np
import pytest

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.models.fitting import How, Transcript, fit

SHAPE, NOISE = (4, 3, 5, 2), 20.0


def transcript(seed: int) -> Transcript:
    """Measure single columns, then pairs, of a table whose columns depend on each other."""
    rng = np.random.default_rng(seed)
    counts = np.random.default_rng(1).gamma(0.4, 60.0, SHAPE)

    def measured(step: str, axes: tuple[int, ...]) -> Measurement:
        true = counts.sum(axis=tuple(axis for axis in range(4) if axis not in axes))
        return Measurement(step, axes, None, np.rint(true + rng.normal(0, NOISE, true.shape)).astype(np.int64), NOISE)

    first = tuple(measured(f"one-way/{axis}", (axis,)) for axis in range(4))
    pairs = [(0, 1), (1, 2), (2, 3)]
    return Transcript(first, tuple(measured(f"round-{at:03}/measure", axes) for at, axes in enumerate(pairs, start=1)))


def test_a_model_that_is_used_again_is_fitted_as_a_fresh_one() -> None:
    resolutions = Resolutions(SHAPE)
    dense, _ = fit(SHAPE, transcript(2), orders={})
    factored, _ = fit(resolutions, transcript(2), orders={})
    for seed in (3, 4):
        expected, functions = fit(SHAPE, transcript(seed), orders={})
        again, own = fit(SHAPE, transcript(seed), orders={}, model=dense)
        assert again is dense
        assert np.array_equal(again.marginal((0, 2)), expected.marginal((0, 2)))
        assert all(np.array_equal(own[axes], functions[axes]) for axes in functions)
        fresh, _ = fit(resolutions, transcript(seed), orders={})
        shared, _ = fit(resolutions, transcript(seed), orders={}, model=factored)
        assert shared is factored
        assert np.allclose(shared.marginal((0, 2)), fresh.marginal((0, 2)), rtol=1e-9)
        assert not np.allclose(shared.marginal((0, 2)), dense.marginal((0, 2)), rtol=1e-9)  # they allow other numbers


def test_a_fit_that_starts_from_another_continues_it() -> None:
    close = How(per_cell=1.0)
    model, functions = fit(SHAPE, transcript(2), orders={})
    expected, _ = fit(SHAPE, transcript(2), orders={}, how=close)
    continued, _ = fit(SHAPE, transcript(2), orders={}, how=How(per_cell=1.0, start=functions))
    errors = [_error(each, transcript(2)) for each in (model, continued, expected)]
    assert errors[0] > errors[1] == pytest.approx(errors[2], rel=0.1)


def test_with_no_tries_a_fit_stays_where_it_starts() -> None:
    model, functions = fit(SHAPE, transcript(2), orders={})
    expected = model.marginal((0, 1))
    stays, _ = fit(SHAPE, transcript(2), orders={}, how=How(tries=0, start=functions))
    assert np.allclose(stays.marginal((0, 1)), expected)


def _error(model: object, measured: Transcript) -> float:
    marginal = model.marginal  # type: ignore[attr-defined]
    every = (*measured.first, *measured.later)
    return sum(float(np.sum((each.values - marginal(each.axes)) ** 2)) / NOISE**2 for each in every)
