"""Overlaps: what functions share is scaled once, and every step is downhill."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dpcore.marginals.workload import Axes
from dpcore.models.curvature import Vector
from dpcore.models.overlaps import Overlaps

SHAPE = (3, 4, 2)
SETS: list[Axes] = [(), (0,), (1,), (0, 1), (1, 2), (0, 1, 2), (2, 0)]


def counts(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.5, 100.0, SHAPE) + 0.01


def marginal(table: np.ndarray, axes: Axes) -> np.ndarray:
    return np.asarray(np.einsum(table, range(table.ndim), axes))


def overlaps_of(sets: Sequence[Axes], *, without: Sequence[int] = ()) -> Overlaps:
    """Return the overlaps of functions of some sets, of which the largest lacks some cells."""
    codes = {}
    for axes in sets:
        shape = tuple(SHAPE[axis] for axis in axes)
        codes[axes] = np.indices(shape).reshape(len(shape), int(np.prod(shape)))
    codes[sets[-1]] = np.delete(codes[sets[-1]], without, axis=1)
    return Overlaps(codes.items())


def matrix_of(scaled: Callable[[Vector], Vector], size: int) -> np.ndarray:
    return np.stack([scaled(row) for row in np.eye(size)], axis=1)


@pytest.mark.parametrize("without", [[], [0, 5]])
@pytest.mark.parametrize("pull", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("seed", range(4))
def test_a_step_is_always_downhill(seed: int, pull: float, without: list[int]) -> None:
    expected = np.concatenate([marginal(counts(seed), axes).ravel() for axes in SETS[:-1]])
    last = np.delete(marginal(counts(seed), SETS[-1]).ravel(), without)
    expected = np.concatenate([expected, last])
    pulls = pull * np.random.default_rng(seed).uniform(0.5, 2.0, len(expected))
    inverse = matrix_of(overlaps_of(SETS, without=without).scaling(expected, pulls), len(expected))
    np.testing.assert_allclose(inverse, inverse.T, rtol=1e-6, atol=1e-9 * np.abs(inverse).max())
    roots = np.sqrt(np.diag(inverse))
    assert np.linalg.eigvalsh(inverse / np.outer(roots, roots)).min() > 1e-9


def test_a_main_effect_that_functions_share_is_scaled_once() -> None:
    table = np.multiply.outer(np.multiply.outer([10.0, 30.0, 60.0], [0.1, 0.2, 0.3, 0.4]), [0.5, 0.5])
    sets: list[Axes] = [(0,), (0, 1), (0, 2)]
    expected = np.concatenate([marginal(table, axes).ravel() for axes in sets])
    effect = np.array([3.0, 1.0, -1.0])  # no rows on average: 10 x 3 + 30 - 60 = 0
    spread = [effect, np.repeat(effect, 4), np.repeat(effect, 2)]
    moved = 3 * marginal(table, (0,)) * effect  # all three functions move it
    slope = np.concatenate([moved, np.outer(moved, [0.1, 0.2, 0.3, 0.4]).ravel(), np.outer(moved, [0.5, 0.5]).ravel()])
    tiny = np.full(len(expected), 1e-9)
    found = overlaps_of(sets).scaling(expected, tiny)(slope)
    counts_moved = found[:3] + found[3:15].reshape(3, 4)[:, 0] + found[15:].reshape(3, 2)[:, 0]
    np.testing.assert_allclose(counts_moved, 3 * effect, rtol=1e-4)
    alone = slope / expected
    np.testing.assert_allclose(alone, 3 * np.concatenate(spread))  # cell by cell, each function makes the whole step


def test_one_function_alone_is_scaled_nearly_as_by_its_hessian() -> None:
    expected, pull = np.array([10.0, 30.0, 60.0]), np.array([1.0, 2.0, 3.0])
    slope = np.array([5.0, -3.0, -2.0])
    found = Overlaps([((0,), np.array([[0, 1, 2]]))]).scaling(expected, pull)(slope)
    exact = np.linalg.solve(np.diag(expected + pull) - np.outer(expected, expected) / expected.sum(), slope)
    np.testing.assert_allclose(found - found.mean(), exact - exact.mean(), rtol=0.1)
