"""The arithmetic of prices and of zCDP: inverses, orders, proofs, and the directions in which it may be wrong."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.privacy.accounting import (
    AMOUNT_OF_ONE,
    cap_amount,
    discrete_laplace_zcdp,
    epsilon_to_gdp,
    epsilon_to_zcdp,
    exponential_zcdp,
    gaussian_gdp,
    gaussian_zcdp,
    gdp_to_delta,
    gdp_to_epsilon,
    gdp_to_pure,
    pure_gdp,
    pure_zcdp,
    spend_amount,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from dpcore.textbook.theorems import basic_composition, laplace_zcdp

epsilons = st.floats(min_value=1e-4, max_value=30)
rhos = st.floats(min_value=1e-5, max_value=50)
deltas = st.sampled_from([1e-15, 1e-12, 1e-9, 1e-6, 1e-3])


@given(rhos, deltas)
def test_epsilon_of_rho_and_rho_of_epsilon_are_inverse(rho, delta):
    epsilon = zcdp_to_epsilon(rho, delta=delta)
    assert epsilon_to_zcdp(epsilon, delta=delta) == pytest.approx(rho, rel=1e-9)


@given(epsilons, deltas)
def test_a_budget_never_shows_more_epsilon_than_was_promised(epsilon, delta):
    assert epsilon * (1 - 1e-9) <= zcdp_to_epsilon(epsilon_to_zcdp(epsilon, delta=delta), delta=delta) <= epsilon


@given(rhos, deltas)
def test_delta_of_rho_is_the_inverse_of_epsilon_of_rho(rho, delta):
    epsilon = zcdp_to_epsilon(rho, delta=delta)
    assert zcdp_to_delta(rho, epsilon=epsilon) == pytest.approx(delta, rel=1e-6)


@given(rhos, st.floats(min_value=1.0001, max_value=2), deltas)
def test_more_rho_is_more_epsilon_and_more_delta(rho, factor, delta):
    assert zcdp_to_epsilon(rho * factor, delta=delta) > zcdp_to_epsilon(rho, delta=delta)
    assert zcdp_to_delta(rho * factor, epsilon=rho) >= zcdp_to_delta(rho, epsilon=rho)
    assert zcdp_to_epsilon(rho, delta=delta / 2) > zcdp_to_epsilon(rho, delta=delta)


@given(rhos, deltas)
def test_epsilon_is_no_worse_than_the_simple_bound_and_no_better_than_any_order_allows(rho, delta):
    epsilon = zcdp_to_epsilon(rho, delta=delta)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    orders = 1 + np.geomspace(1e-3, 1e6, 2000)
    log_delta = (orders - 1) * (orders * rho - epsilon) - (orders - 1) * np.log1p(1 / (orders - 1)) - np.log(orders)
    assert log_delta.min() >= math.log(delta) - 1e-6


@given(epsilons)
def test_the_prices_of_pure_mechanisms_are_in_their_known_order(epsilon):
    generic = epsilon**2 / 2
    continuous, tight, selection = laplace_zcdp(epsilon), pure_zcdp(epsilon), float(exponential_zcdp(epsilon))
    assert continuous <= tight <= generic * (1 + 1e-15)
    assert selection == pytest.approx(generic / 4)
    assert discrete_laplace_zcdp(1 / Fraction(epsilon), l1=1, linf=1) == pytest.approx(tight, rel=1e-14)


def test_discrete_laplace_noise_costs_more_than_the_continuous_formula_says():
    assert discrete_laplace_zcdp(10.0, l1=1, linf=1) > 1.03 * laplace_zcdp(0.1)
    assert discrete_laplace_zcdp(1e6, l1=10**5, linf=10**5) == pytest.approx(laplace_zcdp(0.1), rel=1e-9)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0, 25.0])
@pytest.mark.parametrize("distance", [1, 2, 3, 7, 40])
def test_no_order_of_the_renyi_divergence_of_discrete_laplace_noise_exceeds_its_price(scale, distance):
    reach = int(60 * scale) + 2 * distance + 60
    k = np.arange(-reach, reach + distance + 1)
    log_p = -np.abs(k) / scale - np.log(np.exp(-np.abs(k) / scale).sum())
    loss = (np.abs(k - distance) - np.abs(k)) / scale
    orders = 1 + np.geomspace(1e-4, 1e3, 200)
    exponents = log_p[None, :] + (orders[:, None] - 1) * loss[None, :]
    peak = exponents.max(axis=1)
    divergence = (peak + np.log(np.exp(exponents - peak[:, None]).sum(axis=1))) / (orders - 1)
    price = discrete_laplace_zcdp(scale, l1=distance, linf=distance)
    assert (divergence / orders).max() <= price * (1 + 1e-9)
    assert (divergence / orders).max() >= price * (1 - 1e-3)


@pytest.mark.parametrize("distance", range(1, 13))
def test_the_third_cumulant_behind_that_price_has_no_positive_coefficient(distance):
    """The proof's last step, in whole numbers: uniform points with ends of weight 1 + v, for every v at once."""
    points = range(-distance, distance + 1, 2)
    coefficients: Counter[tuple[int, int]] = Counter()
    for triple in itertools.product(points, repeat=3):
        total = sum(triple)
        ends = sum(abs(x) == distance for x in triple)
        for power in range(ends + 1):
            coefficients[total, power] += math.comb(ends, power) * math.prod(3 * x - total for x in triple)
    assert all(value <= 0 for (total, _), value in coefficients.items() if total > 0)


@given(st.integers(1, 6), st.integers(1, 6), st.floats(min_value=0.2, max_value=50))
def test_a_movement_costs_most_when_it_is_concentrated(first, second, scale):
    apart = sum(discrete_laplace_zcdp(scale, l1=d, linf=d) for d in (first, second))
    together = discrete_laplace_zcdp(scale, l1=first + second, linf=first + second)
    at_most = discrete_laplace_zcdp(scale, l1=first + second, linf=max(first, second))
    assert apart == pytest.approx(at_most, rel=1e-12)
    assert at_most < together


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=1000))
def test_a_spend_is_rounded_up_and_a_cap_down_by_less_than_the_least_amount(amount):
    assert 0 <= spend_amount(amount) - amount * AMOUNT_OF_ONE < 1
    assert 0 <= amount * AMOUNT_OF_ONE - cap_amount(amount) < 1


@pytest.mark.parametrize("amount", [0, 0.0, -0.0, -1, -1e-300, math.nan, math.inf, -math.inf, 1e7, True, "1", None])
@pytest.mark.parametrize("amount_of", [spend_amount, cap_amount])
def test_an_amount_that_means_nothing_is_refused(amount_of, amount):
    with pytest.raises(UsageError):
        amount_of(amount)


def test_a_cap_that_would_round_to_nothing_is_refused_and_such_a_spend_costs_the_least_amount():
    with pytest.raises(UsageError, match="1e-12"):
        cap_amount(1e-13)
    assert spend_amount(1e-300) == 1


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_every_formula_refuses_arguments_that_mean_nothing(bad):
    calls = [
        lambda: zcdp_to_epsilon(bad, delta=1e-9),
        lambda: zcdp_to_epsilon(0.1, delta=bad),
        lambda: zcdp_to_delta(bad, epsilon=1.0),
        lambda: epsilon_to_zcdp(bad, delta=1e-9),
        lambda: epsilon_to_zcdp(1.0, delta=bad),
        lambda: laplace_zcdp(bad),
        lambda: pure_zcdp(bad),
        lambda: exponential_zcdp(bad),
        lambda: gaussian_zcdp(l2_squared=1, sigma=bad),
        lambda: discrete_laplace_zcdp(bad, l1=1, linf=1),
        lambda: basic_composition([(bad, 0.0)]),
        lambda: gdp_to_epsilon(bad, delta=1e-9),
        lambda: gdp_to_epsilon(0.1, delta=bad),
        lambda: gdp_to_delta(bad, epsilon=1.0),
        lambda: epsilon_to_gdp(bad, delta=1e-9),
        lambda: epsilon_to_gdp(1.0, delta=bad),
        lambda: gdp_to_pure(bad),
        lambda: pure_gdp(bad),
        lambda: gaussian_gdp(l2_squared=1, sigma=bad),
    ]
    for call in calls:
        with pytest.raises(UsageError):
            call()


@pytest.mark.parametrize("delta", [1.0, 1.5])
def test_a_delta_of_one_promises_nothing_and_is_refused(delta):
    for to_epsilon in (zcdp_to_epsilon, gdp_to_epsilon):
        with pytest.raises(UsageError, match="below 1"):
            to_epsilon(0.1, delta=delta)


@pytest.mark.parametrize(("l1", "linf"), [(1, 0), (1, 2), (0, 0), (2, -1)])
def test_sensitivities_that_contradict_each_other_are_refused(l1, linf):
    with pytest.raises(UsageError, match="linf <= l1"):
        discrete_laplace_zcdp(1.0, l1=l1, linf=linf)


def test_pure_parts_add():
    assert basic_composition([(0.5, 0.0), (0.25, 0.125)]) == (Fraction(3, 4), Fraction(1, 8))
