"""Gaussian differential privacy: its conversions against 1200 bits, and its prices against the tests they must defeat."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcore.errors import UsageError
from dpcore.privacy.accounting import (
    epsilon_to_gdp,
    epsilon_to_zcdp,
    gaussian_gdp,
    gaussian_zcdp,
    gdp_to_delta,
    gdp_to_epsilon,
    gdp_to_pure,
    pure_gdp,
    pure_zcdp,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from dpcore.privacy.accounting.normal import log_odds, log_odds_quantile, newton
from dpcore.privacy.accounting.rounding import real
from tests.dpcore.textbook.theorems.test_vectors import VECTORS, family

mp = mpmath.MPContext()
mp.prec = 1200

epsilons = st.floats(min_value=1e-4, max_value=30)
squares = st.floats(min_value=1e-10, max_value=1e4)
deltas = st.sampled_from([1e-30, 1e-15, 1e-9, 1e-6, 1e-3, 0.3])

EXTREMES = [1e-12, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 40.0, 1e3, 1e6, 1e12]


def exact_delta(mu_squared: float, epsilon: float) -> mpmath.mpf:
    mu, promised = mp.sqrt(mp.mpf(mu_squared)), mp.mpf(epsilon)
    tail = [mp.erfc((promised / mu + side * mu / 2) / mp.sqrt(2)) / 2 for side in (-1, 1)]
    return tail[0] - mp.exp(promised) * tail[1]


@pytest.mark.parametrize("mu_squared", EXTREMES)
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-12, 1e-6, 0.1, 0.5, 0.999])
def test_epsilon_is_enough_and_the_least_float_but_a_few_that_is(mu_squared, delta):
    epsilon = gdp_to_epsilon(mu_squared, delta=delta)
    assert exact_delta(mu_squared, epsilon) <= delta
    if epsilon > 0:
        assert exact_delta(mu_squared, epsilon * (1 - 1e-15)) > delta


@pytest.mark.parametrize("mu_squared", EXTREMES)
@pytest.mark.parametrize("epsilon", [0, 1e-12, 1e-3, 1.0, 40.0, 1e6])
def test_delta_is_enough_and_the_least_float_but_a_few_that_is(mu_squared, epsilon):
    delta, exact = gdp_to_delta(mu_squared, epsilon=epsilon), exact_delta(mu_squared, epsilon)
    assert exact <= delta <= 1
    assert delta <= exact * (1 + mp.mpf(2) ** -50) or delta == math.ulp(0.0)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1e-2, 1.0, 40.0, 1e5])
@pytest.mark.parametrize("delta", [1e-30, 1e-12, 1e-6, 0.1, 0.5, 0.999])
def test_a_budget_is_one_part_in_a_trillion_below_the_most_that_keeps_the_promise(epsilon, delta):
    mu_squared = epsilon_to_gdp(epsilon, delta=delta)
    assert exact_delta(mu_squared, epsilon) < delta
    assert exact_delta(mu_squared * (1 + 1.001e-12), epsilon) > delta


def test_a_promise_too_small_for_any_budget_is_refused_and_one_hardly_larger_is_not():
    with pytest.raises(UsageError, match="choose larger ones"):
        epsilon_to_gdp(1e-25, delta=1e-25)
    assert epsilon_to_gdp(1e-12, delta=1e-30) < 1e-24


@given(epsilons, deltas)
def test_a_budget_never_shows_more_epsilon_than_was_promised(epsilon, delta):
    shown = gdp_to_epsilon(epsilon_to_gdp(epsilon, delta=delta), delta=delta)
    assert shown <= epsilon
    # where delta alone all but covers the promise, a little of mu is much of epsilon
    assert shown >= epsilon * (1 - 1e-9) or epsilon < delta


@given(squares, deltas)
def test_mu_of_epsilon_of_mu_is_mu_again(mu_squared, delta):
    epsilon = gdp_to_epsilon(mu_squared, delta=delta)
    if epsilon > 0:
        assert epsilon_to_gdp(epsilon, delta=delta) == pytest.approx(mu_squared, rel=1e-9)
        assert gdp_to_delta(mu_squared, epsilon=epsilon) == pytest.approx(delta, rel=1e-6)


@given(squares, st.floats(min_value=1.0001, max_value=2), deltas)
def test_more_mu_is_more_epsilon_and_more_delta(mu_squared, factor, delta):
    epsilon = gdp_to_epsilon(mu_squared, delta=delta)
    assert gdp_to_epsilon(mu_squared * factor, delta=delta) > epsilon or epsilon == 0
    assert gdp_to_epsilon(mu_squared, delta=delta / 2) > epsilon or epsilon == 0
    assert gdp_to_delta(mu_squared * factor, epsilon=epsilon) >= gdp_to_delta(mu_squared, epsilon=epsilon)


@given(squares, deltas)
def test_gaussian_noise_promises_more_by_its_own_profile_than_by_way_of_zcdp(mu_squared, delta):
    assert gdp_to_epsilon(mu_squared, delta=delta) <= zcdp_to_epsilon(mu_squared / 2, delta=delta)
    assert gdp_to_delta(mu_squared, epsilon=1.0) <= zcdp_to_delta(mu_squared / 2, epsilon=1.0)


def test_the_same_promise_buys_several_percent_less_noise_than_by_way_of_zcdp():
    sigma_by_gdp = 1 / math.sqrt(epsilon_to_gdp(1.0, delta=1e-9))
    sigma_by_zcdp = 1 / math.sqrt(2 * epsilon_to_zcdp(1.0, delta=1e-9))
    assert 0.93 < sigma_by_gdp / sigma_by_zcdp < 0.96


def test_nothing_is_lost_where_delta_alone_covers_the_loss():
    assert gdp_to_epsilon(1e-12, delta=1e-3) == 0.0
    assert gdp_to_delta(1e-4, epsilon=1e6) == math.ulp(0.0)
    assert gdp_to_delta(1e6, epsilon=0) == 1.0


@pytest.mark.parametrize("mu_squared", [1e-31, 1e31])
def test_a_mu_beyond_the_precision_is_refused(mu_squared):
    with pytest.raises(UsageError, match="mu squared must be at"):
        gdp_to_epsilon(mu_squared, delta=1e-9)


def test_the_profile_of_the_discrete_gaussian_exceeds_that_of_its_mu_so_that_it_has_no_price():
    profiles = [vector for vector in VECTORS if family(vector) == "discrete_gaussian_profile"]
    above = [
        vector["expected"] > gdp_to_delta(1 / Fraction(vector["inputs"]["sigma2"]), epsilon=vector["inputs"]["eps"])
        for vector in profiles
    ]
    assert any(above)


def best_errors(mu: float, false_alarms: np.ndarray) -> np.ndarray:
    """The least rate of misses of a test of N(0, 1) against N(mu, 1), for each rate of false alarms."""
    return stats.norm.cdf(stats.norm.isf(false_alarms) - mu)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0, 12.0])
def test_randomised_response_is_no_easier_to_test_than_its_mu_and_easier_than_a_thousandth_less(epsilon):
    false_alarms = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 4001), [1 / (1 + math.exp(epsilon))]])
    misses = np.maximum(1 - math.exp(epsilon) * false_alarms, math.exp(-epsilon) * (1 - false_alarms))
    mu = math.sqrt(pure_gdp(epsilon))
    assert (misses >= best_errors(mu, false_alarms) - 1e-13).all()
    assert (misses < best_errors(0.999 * mu, false_alarms) - 1e-13).any()


@pytest.mark.parametrize("epsilon", [1e-30, 1e-12, 1e-3, 0.5, 1.0, 30.0, 1e3, 1e6, 1e12])
def test_the_mu_of_a_pure_epsilon_is_rounded_up_and_undone_rounding_down(epsilon):
    mu_squared = pure_gdp(epsilon)
    tail = mp.erfc(mp.sqrt(mp.mpf(mu_squared) / 8)) / 2
    assert mp.log(1 / tail - 1) >= epsilon
    slightly_less = mp.erfc(mp.sqrt(mp.mpf(mu_squared * (1 - 1e-15)) / 8)) / 2
    assert mp.log(1 / slightly_less - 1) < epsilon
    if mu_squared > 1e-30:
        assert gdp_to_pure(mu_squared) == pytest.approx(epsilon, rel=1e-15)
        assert pure_gdp(gdp_to_pure(mu_squared * (1 - 1e-15))) <= mu_squared


@given(epsilons)
def test_a_pure_epsilon_is_dearer_in_gdp_than_in_zcdp(epsilon):
    assert pure_gdp(epsilon) > 2 * pure_zcdp(epsilon)
    assert pure_gdp(epsilon) <= math.pi / 2 * epsilon**2 * (1 + 1e-14)


def test_gaussian_noise_has_an_exact_price_which_is_twice_its_rho():
    assert gaussian_gdp(l2_squared=2, sigma=Fraction(1, 3)) == 18
    assert gaussian_gdp(l2_squared=2, sigma=0.1) == 2 * gaussian_zcdp(l2_squared=2, sigma=0.1)


@given(st.floats(min_value=1e-20, max_value=1e6))
def test_the_quantile_of_log_odds_lies_above_the_root_whatever_the_number_of_steps(odds):
    root = log_odds_quantile(real.mpf(odds))
    assert log_odds(root) >= odds * (1 - real.mpf(2) ** -250)
    assert log_odds(root * (1 - real.mpf(2) ** -100)) < odds


def test_a_search_that_never_settles_ends_all_the_same():
    assert newton(real.mpf(1), better=lambda x: -x) == 1
