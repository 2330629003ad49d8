"""What every model must do: a model's test class inherits this and says how a new one is made."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes
from dpcore.models import Model, Weights

Steps = list[tuple[Axes, Weights]]

SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=6).map(tuple)
FACTORS = st.sampled_from(["even", "sharp", "holes"])


def axes_of(shape: tuple[int, ...]) -> st.SearchStrategy[Axes]:
    return st.sets(st.integers(0, len(shape) - 1)).map(lambda chosen: tuple(sorted(chosen)))


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[int, ...], Steps]:
    """Draw a shape and a few factors to multiply by, some with zeros; the first cell always keeps its weight."""
    shape = draw(SHAPES)
    steps: Steps = []
    for axes in draw(st.lists(axes_of(shape), max_size=4)):
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        kind = draw(FACTORS)
        factor = rng.uniform(0.5, 2.0, size=[shape[axis] for axis in axes])
        if kind == "sharp":
            factor = np.exp(rng.normal(size=factor.shape) * 5)
        if kind == "holes":
            factor = np.where(rng.random(factor.shape) < 0.3, 0.0, factor)
        factor = np.array(factor)
        factor.flat[0] = 1.0
        steps.append((axes, factor))
    return shape, steps


def along(shape: tuple[int, ...], axes: Axes, factor: Weights) -> Weights:
    return factor.reshape([size if axis in axes else 1 for axis, size in enumerate(shape)])


def reference(shape: tuple[int, ...], steps: Steps, *, total: float) -> Weights:
    """Return the counts of all cells, computed the plain way."""
    cells = np.full(shape, 1.0)
    for axes, factor in steps:
        cells = cells * along(shape, axes, factor)
        cells /= cells.sum()
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

    @given(histories(), st.floats(0.5, 1e6), st.data())
    def test_marginals_after_multiplications_are_those_of_the_plain_computation(
        self, history: tuple[tuple[int, ...], Steps], total: float, data: st.DataObject
    ) -> None:
        shape, steps = history
        model = self.new(shape, total=total)
        for axes, factor in steps:
            if data.draw(st.booleans()):  # a marginal in between may be remembered, and must not be stale
                model.marginal(axes)
            model.multiply(axes, factor)
        cells = reference(shape, steps, total=total)
        axes = data.draw(axes_of(shape))
        marginal = model.marginal(axes)
        assert marginal.dtype == np.float64
        assert marginal.shape == tuple(shape[axis] for axis in axes)
        np.testing.assert_allclose(marginal, summed(cells, axes), rtol=1e-12, atol=total * 1e-15)

    @given(histories())
    def test_the_mass_stays_the_total(self, history: tuple[tuple[int, ...], Steps]) -> None:
        shape, steps = history
        model = self.new(shape, total=1234.5)
        for axes, factor in steps:
            model.multiply(axes, factor)
            for asked in all_axes(shape):
                assert model.marginal(asked).sum() == pytest.approx(1234.5, rel=1e-12)

    def test_rescaling_changes_the_counts_and_not_the_distribution(self) -> None:
        model = self.new((2, 2), total=1.0)
        model.multiply((1,), np.array([1.0, 3.0]))
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

    def test_a_cell_of_weight_zero_stays_at_zero(self) -> None:
        model = self.new((3, 4), total=5.0)
        model.multiply((0,), np.array([0.0, 1.0, 1.0]))
        for factor in (1e300, 1e-300, 1.7e308):
            model.multiply((0,), np.array([factor, 1.0, 2.0]))
            assert not model.marginal((0, 1))[0].any()

    def test_a_marginal_belongs_to_its_caller(self) -> None:
        model = self.new((2, 3), total=6.0)
        for axes in ((0,), (0, 1)):
            model.marginal(axes)[...] = 99.0
            assert model.marginal(axes).sum() == pytest.approx(6.0)

    def test_the_factor_is_left_as_it_was(self) -> None:
        model = self.new((2, 3), total=6.0)
        factor = np.array([1e-200, 3.0])
        model.multiply((0,), factor)
        assert factor.tolist() == [1e-200, 3.0]

    def test_a_factor_may_lie_in_memory_in_any_order(self) -> None:
        model = self.new((2, 3, 4), total=1.0)
        factor = np.arange(1.0, 9.0).reshape(4, 2).T
        model.multiply((0, 2), factor)
        np.testing.assert_allclose(model.marginal((0, 2)), factor / factor.sum(), rtol=1e-13)

    @pytest.mark.parametrize(
        "entries",
        [[1e-300, 1e-308], [1e308, 1.7e308], [5e-324, 0.0], [0.0, 1.7e308], [1e-300, 1e300], [5e-324, 1.7e308]],
    )
    def test_extreme_factors_stay_finite_however_often_they_come(self, entries: list[float]) -> None:
        model = self.new((2, 3), total=7.0)
        for _ in range(5):
            model.multiply((0,), np.array(entries))
            model.multiply((0,), np.array(entries))
            model.multiply((1,), np.array([1e-200, 1e-100, 1.0]))
        cells = model.marginal((0, 1))
        assert np.isfinite(cells).all()
        assert cells.sum() == pytest.approx(7.0, rel=1e-12)
        shares = (np.array(entries) / max(entries)) ** 10
        np.testing.assert_allclose(cells[:, 2], 7 * shares / shares.sum(), rtol=1e-9)

    def test_a_swing_back_from_an_extreme_loses_nothing_that_can_be_held(self) -> None:
        model = self.new((2, 3), total=2.0)
        for _ in range(20):
            model.multiply((0,), np.array([1e-90, 1.0]))
            model.multiply((0,), np.array([1.0, 1e-90]))
        np.testing.assert_allclose(model.marginal((0,)), [1.0, 1.0], rtol=1e-12)

    def test_thousands_of_multiplications_do_not_add_up_their_rounding(self) -> None:
        model = self.new((3, 4), total=1.0)
        rng = np.random.default_rng(5)
        logs = np.zeros((3, 4))
        for _ in range(3000):
            factor = rng.uniform(0.9, 1.1, size=4)
            model.multiply((1,), factor)
            logs += np.log(factor)
        expected = np.exp(logs - logs.max())
        np.testing.assert_allclose(model.marginal((0, 1)), expected / expected.sum(), rtol=1e-11)
        assert model.marginal(()).sum() == pytest.approx(1.0, rel=1e-13)

    @pytest.mark.parametrize("entry", [-1e-300, -1.0, math.nan, math.inf, -math.inf])
    def test_a_negative_or_non_finite_factor_is_refused_and_changes_nothing(self, entry: float) -> None:
        model = self.new((2, 3), total=6.0)
        with pytest.raises(UsageError, match="finite numbers from zero up"):
            model.multiply((1,), np.array([1.0, entry, 1.0]))
        np.testing.assert_allclose(model.marginal((0, 1)), np.ones((2, 3)), rtol=1e-14)

    @pytest.mark.parametrize("entry", [-1.0, math.nan, math.inf])
    def test_such_a_factor_is_refused_also_where_there_is_no_weight(self, entry: float) -> None:
        model = self.new((2, 3), total=6.0)
        model.multiply((1,), np.array([1.0, 0.0, 1.0]))
        with pytest.raises(UsageError, match="finite numbers from zero up"):
            model.multiply((1,), np.array([1.0, entry, 1.0]))

    def test_a_factor_that_leaves_nothing_is_refused_and_changes_nothing(self) -> None:
        model = self.new((2, 3), total=6.0)
        model.multiply((0,), np.array([1.0, 0.0]))
        with pytest.raises(UsageError, match="leave at least one possible cell"):
            model.multiply((0,), np.array([0.0, 1.0]))
        np.testing.assert_allclose(model.marginal((0,)), [6.0, 0.0], rtol=1e-14)

    def test_a_factor_of_another_shape_is_refused(self) -> None:
        model = self.new((2, 3), total=6.0)
        with pytest.raises(UsageError, match="shape"):
            model.multiply((1,), np.ones(2))
        with pytest.raises(UsageError, match="shape"):
            model.multiply((0, 1), np.ones((3, 2)))

    @pytest.mark.parametrize("axes", [(1, 0), (0, 0), (2,), (-1,)])
    def test_axes_that_are_not_ascending_positions_are_refused(self, axes: Axes) -> None:
        with pytest.raises(UsageError, match="ascending positions"):
            self.new((2, 3), total=6.0).marginal(axes)

    def test_an_empty_axis_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no cells"):
            self.new((2, 0), total=6.0)
