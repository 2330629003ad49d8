"""Numerical composition: close to the exact theorems where there are any, from above, and refused where it would mislead."""

import math
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.privacy.accounting import gdp_to_epsilon
from dpcore.textbook.theorems import (
    Losses,
    approximate_losses,
    discrete_gaussian_delta,
    discrete_gaussian_losses,
    gaussian_losses,
    laplace_losses,
    numeric_composition,
    optimal_composition,
)
from dpcore.textbook.theorems.numeric import LEAST_DELTA
from tests.dpcore.textbook.theorems.test_optimal import together, told

ERROR = 1e-7
"""More than the transform's error in any epsilon here, relatively."""


@given(st.floats(min_value=0.01, max_value=2), st.integers(1, 40), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_equal_prices_are_close_to_the_optimal_theorem_and_above(epsilon, count, delta):
    exact = optimal_composition(epsilon, delta=1e-12, count=count, total_delta=delta)
    ours = numeric_composition([(approximate_losses(epsilon, delta=1e-12), count)], delta=delta)
    assert exact * (1 - ERROR) <= ours <= exact * 1.001 + 1e-4 * epsilon


@settings(max_examples=10)  # each composes as many distributions
@given(st.lists(st.floats(min_value=1e-4, max_value=0.5), min_size=1, max_size=6), st.sampled_from([1e-9, 1e-6, 1e-2]))
def test_gaussians_together_are_a_gaussian(squares, delta):
    exact = gdp_to_epsilon(sum(map(Fraction, squares)), delta=delta)
    ours = numeric_composition([(gaussian_losses(square), 1) for square in squares], delta=delta)
    assert exact * (1 - ERROR) <= ours <= exact * 1.002 + 1e-5


@pytest.mark.parametrize("total", [Fraction(1, 20), Fraction(1, 1000)])
def test_different_prices_are_composed_closely_and_from_above(total):
    odds = [Fraction(11, 10), Fraction(6, 5), Fraction(3, 2), Fraction(3, 2), Fraction(2)]
    lost = Fraction(1, 10**5)
    exact = together([told(each, lost) for each in odds]).epsilon(delta=total)
    ours = numeric_composition([(approximate_losses(math.log(each), delta=lost), 1) for each in odds], delta=total)
    assert exact * (1 - ERROR) <= ours <= exact * (1 + 1e-3)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 7.0])
def test_discrete_noise_has_its_own_profile(sigma):
    epsilon = numeric_composition([(discrete_gaussian_losses(sigma), 1)], delta=1e-6)
    assert discrete_gaussian_delta(epsilon, sigma_squared=Fraction(sigma) ** 2, shift=1) <= 1e-6 * (1 + ERROR)
    assert discrete_gaussian_delta(epsilon * 0.99, sigma_squared=Fraction(sigma) ** 2, shift=1) > 1e-6


def test_a_laplace_answer_has_its_own_profile():
    delta = -math.expm1((0.3 - 0.7) / 2)  # the exact one at epsilon 0.3
    assert numeric_composition([(laplace_losses(0.7), 1)], delta=delta) == pytest.approx(0.3, rel=1e-4)


def test_a_few_large_ones_do_not_spoil_many_small_ones():
    exact = gdp_to_epsilon(2.001, delta=1e-9)
    ours = numeric_composition([(gaussian_losses(1.0), 2), (gaussian_losses(1e-6), 1000)], delta=1e-9)
    assert exact <= ours <= exact * 1.001
    many = optimal_composition(1e-3, delta=0, count=1000, total_delta=1e-6)
    ours = numeric_composition(
        [(approximate_losses(1e-3, delta=0), 1000), (approximate_losses(3.0, delta=0), 1)], delta=1e-6
    )
    assert 3.0 < ours < 3.0 + 2 * many


@pytest.mark.parametrize("shift", [-1, 0])
def test_losses_one_grid_point_lower_would_be_noticed(shift):
    """The control: the same masses one grid point lower, as rounding down gives, are below the exact composition."""
    sound = approximate_losses(0.1, delta=0)

    class Moved:
        """The library, with every loss moved by some grid points."""

        def __init__(self, library):
            self.PrivacyLossDistribution = self
            self._library = library.PrivacyLossDistribution

        def create_from_rounded_probability(self, masses, infinite, spacing):
            moved = {place + shift: mass for place, mass in masses.items()}
            return self._library.create_from_rounded_probability(moved, infinite, spacing)

    moved = Losses(sound.size, lambda library, spacing: sound.on_grid(Moved(library), spacing))
    exact = optimal_composition(0.1, delta=0, count=100, total_delta=1e-6)
    assert (numeric_composition([(moved, 100)], delta=1e-6) >= exact * (1 - ERROR)) is (shift == 0)


def test_losses_that_add_up_within_a_step_are_repeated_with_it():
    one, three = discrete_gaussian_losses(5.0), discrete_gaussian_losses(5.0, count=3)
    assert numeric_composition([(three, 4)], delta=1e-6) == numeric_composition([(one, 12)], delta=1e-6)


def test_a_delta_below_what_is_told_outright_or_below_the_transforms_error_is_refused():
    with pytest.raises(UsageError, match="allow a larger delta"):
        numeric_composition([(approximate_losses(0.5, delta=1e-6), 1)], delta=1e-7)
    with pytest.raises(UsageError, match="a delta of at least 1e-11"):
        numeric_composition([(gaussian_losses(0.5), 1)], delta=LEAST_DELTA / 2)


def test_without_the_library_the_way_to_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[theorems\]'"):
        numeric_composition([(laplace_losses(0.5), 1)], delta=1e-6)
