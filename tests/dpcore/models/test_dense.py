"""The dense model: the contract, what only it can do, and the sums it is made of."""

import itertools
import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes
from dpcore.models import MAX_CELLS, DenseModel
from dpcore.models.passes import sum_to
from tests.contracts.model import ModelContract, all_axes, summed

# Small and long, alike and mixed axes, so that every way through the passes is taken: vectors, matrices, chunks, remainders.
SHAPES = [
    (10,) * 5,
    (9, 16, 7, 5, 2, 2, 10),
    (2,) * 17,
    (3,) * 11,
    (40, 50, 60),
    (300, 7, 31),
    (7, 300, 31),
    (4099, 3, 7),
    (7, 4099, 3),
    (3, 7, 4099),
    (2, 9001, 5),
    (40_000, 2),
    (2, 40_000),
    (1, 1, 500, 1, 40, 1),
    (70_000,),
    (1, 1),
    (),
]


def patterns(shape: tuple[int, ...]) -> list[Axes]:
    """Return axes of all kinds: few, most, leading, trailing, alternating."""
    every = tuple(range(len(shape)))
    most = [tuple(axis for axis in every if axis not in left) for left in combinations(every, 2)]
    chosen = [*all_axes(shape, most=2), *most, every, every[::2], every[1::2], every[: len(every) // 2]]
    return list(dict.fromkeys(chosen))[:: max(1, len(chosen) // 40)]


class TestDenseModel(ModelContract):
    def new(self, shape: tuple[int, ...], *, total: float) -> DenseModel:
        return DenseModel(shape, total=total)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_agree_with_plain_numpy_for_all_kinds_of_axes(shape: tuple[int, ...]) -> None:
    array = np.asarray(np.random.default_rng(0).random(shape))
    for axes in patterns(shape):
        np.testing.assert_allclose(sum_to(array, axes), summed(array, axes), rtol=1e-12)


@given(st.lists(st.integers(1, 70), min_size=1, max_size=4).map(tuple), st.data())
def test_sums_agree_with_plain_numpy_for_any_shape(shape: tuple[int, ...], data: st.DataObject) -> None:
    while math.prod(shape) > 200_000:
        shape = shape[1:]
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1)))))
    array = np.random.default_rng(1).random(shape)
    np.testing.assert_allclose(sum_to(array, axes), summed(array, axes), rtol=1e-12)


@pytest.mark.parametrize("axes", [(1, 0), (0, 0), (2,), (-1,)])
def test_axes_that_are_not_ascending_positions_are_refused(axes: Axes) -> None:
    with pytest.raises(UsageError, match="ascending positions"):
        DenseModel((2, 3), total=6.0).marginal(axes)


def test_a_universe_beyond_the_limit_is_refused_with_its_size_before_memory_is_taken() -> None:
    with pytest.raises(UsageError, match=r"1,000,000,000,000,000,000 cells is too large.*fewer columns, or coarser"):
        DenseModel((10,) * 18, total=1.0)
    with pytest.raises(UsageError, match="too large"):
        DenseModel((MAX_CELLS + 1,), total=1.0)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6).map(tuple), st.data())
def test_several_marginals_at_once_are_those_asked_one_by_one_in_their_order(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    model = DenseModel(shape, total=9.0)
    model.assign({tuple(range(len(shape))): np.log(np.random.default_rng(2).random(shape) + 0.1)})
    sets = data.draw(st.lists(st.sampled_from(all_axes(shape, most=6))))
    found = model.marginals(sets)
    assert list(found) == list(dict.fromkeys(sets))
    for axes, marginal in found.items():
        np.testing.assert_allclose(marginal, model.marginal(axes), rtol=1e-12)


def test_several_marginals_at_once_belong_to_their_caller() -> None:
    model = DenseModel((2, 3), total=6.0)
    model.marginals([(0, 1)])[0, 1][...] = 99.0
    assert model.marginal(()).sum() == pytest.approx(6.0)


def test_weights_are_probabilities_and_cannot_be_written_to() -> None:
    model = DenseModel((2, 3), total=6.0)
    model.assign({(0,): np.log([1e-30, 2e-30])})
    np.testing.assert_allclose(model.weights, np.repeat([[1 / 9], [2 / 9]], 3, axis=1), rtol=1e-14)
    with pytest.raises(ValueError, match="read-only"):
        model.weights[0, 0] = 1.0
    np.testing.assert_allclose(model.marginal((0,)), [2.0, 4.0], rtol=1e-14)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (3, 2, 4, 2), (2, 5, 1, 3)])
def test_potentials_give_the_exponential_of_their_sum(shape: tuple[int, ...]) -> None:
    rng, axes = np.random.default_rng(5), range(len(shape))
    sets = [part for size in range(len(shape) + 1) for part in itertools.combinations(axes, size)]
    functions = {part: rng.normal(0, 2, [shape[axis] for axis in part]) for part in sets}
    logarithm = np.zeros(shape)
    for part, function in functions.items():
        logarithm = logarithm + function.reshape([shape[axis] if axis in part else 1 for axis in axes])
    model = DenseModel(shape, total=10.0)
    model.assign(functions)
    np.testing.assert_allclose(model.weights, np.exp(logarithm) / np.exp(logarithm).sum(), rtol=1e-12)
    np.testing.assert_allclose(model.marginal((0,)).sum(), 10.0, rtol=1e-12)


def test_no_potentials_and_absurd_ones_give_a_distribution() -> None:
    model = DenseModel((2, 3), total=6.0)
    model.assign({(0,): np.array([-1e6, 1e6])})
    np.testing.assert_allclose(model.marginal((0,)), [0.0, 6.0])
    model.assign({})
    np.testing.assert_allclose(model.weights, np.full((2, 3), 1 / 6))
    with pytest.raises(UsageError, match="ascending positions"):
        model.assign({(1, 0): np.ones((3, 2))})
