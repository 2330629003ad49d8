"""How much Gaussian noise a promise needs: enough, hardly more, and by the classic bound only where that is proved."""

import math
from fractions import Fraction

import pytest
from dp_accounting import get_sigma_gaussian
from hypothesis import given
from hypothesis import strategies as st

from dpcore.privacy.accounting import gaussian_gdp, gdp_to_delta
from dpcore.textbook.gaussian import analytic_gaussian_sigma, classic_gaussian_sigma
from dpcore.textbook.theorems import discrete_gaussian_delta

deltas = st.sampled_from([1e-12, 1e-6, 1e-2])
squares = st.sampled_from([1, 2, 9, 2.5])


@given(st.floats(min_value=1e-3, max_value=20), deltas, squares)
def test_the_analytic_sigma_is_enough_and_hardly_more(epsilon, delta, l2_squared):
    sigma = analytic_gaussian_sigma(epsilon, delta=delta, l2_squared=l2_squared)
    assert gdp_to_delta(gaussian_gdp(l2_squared=Fraction(l2_squared), sigma=sigma), epsilon=epsilon) <= delta
    less = gaussian_gdp(l2_squared=Fraction(l2_squared), sigma=sigma * (1 - 1e-9))
    assert gdp_to_delta(less, epsilon=epsilon) > delta


@given(st.floats(min_value=1e-3, max_value=0.999), deltas, squares)
def test_the_classic_sigma_is_its_formula_and_more_than_enough_below_1(epsilon, delta, l2_squared):
    sigma = classic_gaussian_sigma(epsilon, delta=delta, l2_squared=l2_squared)
    assert sigma == pytest.approx(math.sqrt(l2_squared * 2 * math.log(1.25 / delta)) / epsilon, rel=1e-12)
    assert gdp_to_delta(gaussian_gdp(l2_squared=Fraction(l2_squared), sigma=sigma), epsilon=epsilon) <= delta


def test_beyond_1_the_classic_formula_would_break_its_promise():
    """The control: why it is refused."""
    epsilon, delta = 10.0, 1e-10
    sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert gdp_to_delta(1 / Fraction(sigma) ** 2, epsilon=epsilon) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (5.0, 1e-9)])
def test_another_library_finds_the_same_sigma(epsilon, delta):
    ours = analytic_gaussian_sigma(epsilon, delta=delta, l2_squared=1)
    assert ours == pytest.approx(get_sigma_gaussian(epsilon, delta), rel=1e-6)


def test_discrete_noise_tends_to_the_profile_of_continuous_noise_and_exceeds_it_while_it_is_coarse():
    fine = discrete_gaussian_delta(0.01, sigma_squared=10**6, shift=10)
    assert fine == pytest.approx(gdp_to_delta(Fraction(100, 10**6), epsilon=0.01), rel=1e-3)
    assert discrete_gaussian_delta(1.0, sigma_squared=1, shift=1) > 1.1 * gdp_to_delta(1, epsilon=1.0)


def test_more_epsilon_is_less_delta_down_to_the_last_float():
    deltas = [discrete_gaussian_delta(epsilon, sigma_squared=4, shift=2) for epsilon in (0, 0.5, 1, 5, 50, 500, 5000)]
    assert deltas == sorted(deltas, reverse=True)
    assert 0 < deltas[-1] <= 5e-324
