"""What every model must do: a model's test class inherits this and says how a new one is made."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import IMPOSSIBLE
from dpcore.models import Model, Weights

Functions = dict[Axes, Weights]

SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=6).map(tuple)
SHARED = settings(suppress_health_check=[HealthCheck.differing_executors])
"""Each kind of model inherits the tests, and finds its own examples."""
KINDS = st.sampled_from(["even", "sharp", "holes"])


def axes_of(shape: tuple[int, ...]) -> st.SearchStrategy[Axes]:
    return st.sets(st.integers(0, len(shape) - 1)).map(lambda chosen: tuple(sorted(chosen)))


@st.composite
def distributions(draw: st.DrawFn) -> tuple[tuple[int, ...], Functions]:
    """Draw a shape and a few functions, some of them without weight in places; the first cell always keeps its weight."""
    shape = draw(SHAPES)
    functions: Functions = {}
    for axes in draw(st.lists(axes_of(shape), max_size=4)):
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        kind = draw(KINDS)
        size = [shape[axis] for axis in axes]
        function = np.array(rng.normal(size=size) * 5 if kind == "sharp" else rng.uniform(-0.7, 0.7, size=size))
        if kind == "holes":
            function = np.where(rng.random(function.shape) < 0.3, IMPOSSIBLE, function)
        function.flat[0] = 0.0
        functions[axes] = function
    return shape, functions


def reference(shape: tuple[int, ...], functions: Functions, *, total: float) -> Weights:
    """Return the counts of all cells, computed the plain way."""
    cells = np.full(shape, 1.0)
    for axes, function in functions.items():
        cells = cells * np.exp(function).reshape([size if axis in axes else 1 for axis, size in enumerate(shape)])
    return cells * (total / cells.sum())


def summed(cells: Weights, axes: Axes) -> Weights:
    return np.asarray(cells.sum(axis=tuple(axis for axis in range(cells.ndim) if axis not in axes)))


def all_axes(shape: tuple[int, ...], *, most: int = 3) -> list[Axes]:
    return [axes for order in range(most + 1) for axes in combinations(range(len(shape)), order)]


class ModelContract:
    """Inherit it, and give it `new`."""

    def new(self, shape: tuple[int, ...], *, total: float) -> Model:
        raise NotImplementedError

    def test_a_new_model_is_uniform(self) -> None:
        model = self.new((2, 5, 3), total=60.0)
        assert model.shape == (2, 5, 3)
        np.testing.assert_allclose(model.marginal((0, 2)), np.full((2, 3), 10.0), rtol=1e-12)

    @SHARED
    @given(distributions(), st.floats(0.5, 1e6), st.data())
    def test_marginals_are_those_of_the_plain_computation(
        self, drawn: tuple[tuple[int, ...], Functions], total: float, data: st.DataObject
    ) -> None:
        shape, functions = drawn
        model = self.new(shape, total=total)
        model.assign({(0,): np.arange(float(shape[0]))})  # what was before does not matter
        model.marginal((0,))
        model.assign(functions)
        cells = reference(shape, functions, total=total)
        axes = data.draw(axes_of(shape))
        marginal = model.marginal(axes)
        assert marginal.dtype == np.float64
        assert marginal.shape == tuple(shape[axis] for axis in axes)
        np.testing.assert_allclose(marginal, summed(cells, axes), rtol=1e-11, atol=total * 1e-15)

    @SHARED
    @given(distributions())
    def test_the_mass_is_the_total(self, drawn: tuple[tuple[int, ...], Functions]) -> None:
        shape, functions = drawn
        model = self.new(shape, total=1234.5)
        model.assign(functions)
        for asked in all_axes(shape):
            assert model.marginal(asked).sum() == pytest.approx(1234.5, rel=1e-12)

    def test_rescaling_changes_the_counts_and_not_the_distribution(self) -> None:
        model = self.new((2, 2), total=1.0)
        model.assign({(1,): np.log([1.0, 3.0])})
        before = model.marginal((0, 1))
        model.rescale(10.0)
        assert model.total == 10.0
        np.testing.assert_allclose(model.marginal((0, 1)), 10 * before, rtol=1e-15)

    @pytest.mark.parametrize("total", [0.0, -1.0, math.nan, math.inf])
    def test_a_total_that_is_no_number_of_rows_is_refused(self, total: float) -> None:
        with pytest.raises(UsageError, match="positive number of rows"):
            self.new((2,), total=total)
        with pytest.raises(UsageError, match="positive number of rows"):
            self.new((2,), total=1.0).rescale(total)

    def test_an_impossible_cell_has_no_weight_whatever_other_functions_are(self) -> None:
        model = self.new((3, 4), total=5.0)
        for lift in (0.0, 700.0, -700.0):
            model.assign({(0,): np.array([IMPOSSIBLE + lift, 0.0, 1.0]), (1,): np.arange(4.0)})
            assert not model.marginal((0, 1))[0].any()

    def test_a_marginal_belongs_to_its_caller(self) -> None:
        model = self.new((2, 3), total=6.0)
        for axes in ((0,), (0, 1)):
            model.marginal(axes)[...] = 99.0
            assert model.marginal(axes).sum() == pytest.approx(6.0)

    def test_a_function_is_left_as_it_was(self) -> None:
        model = self.new((2, 3), total=6.0)
        function = np.array([-500.0, 3.0])
        model.assign({(0,): function})
        assert function.tolist() == [-500.0, 3.0]

    def test_a_function_may_lie_in_memory_in_any_order(self) -> None:
        model = self.new((2, 3, 4), total=1.0)
        weights = np.arange(1.0, 9.0).reshape(4, 2).T
        model.assign({(0, 2): np.log(weights)})
        np.testing.assert_allclose(model.marginal((0, 2)), weights / weights.sum(), rtol=1e-12)

    @pytest.mark.parametrize(
        "extremes", [(-6900.0, -7090.0), (7080.0, 7100.0), (-7440.0, 0.0), (0.0, 7100.0), (-7e4, 7e4)]
    )
    def test_extreme_functions_stay_finite(self, extremes: tuple[float, float]) -> None:
        model = self.new((2, 3), total=7.0)
        model.assign({(0,): np.array(extremes), (1,): np.array([-4600.0, -2300.0, 0.0])})
        cells = model.marginal((0, 1))
        assert np.isfinite(cells).all()
        assert cells.sum() == pytest.approx(7.0, rel=1e-12)
        shares = np.exp(np.array(extremes) - max(extremes))
        np.testing.assert_allclose(cells[:, 2], 7 * shares / shares.sum(), rtol=1e-9)

    def test_an_empty_axis_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no cells"):
            self.new((2, 0), total=6.0)
