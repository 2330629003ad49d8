"""Pairs of finite distributions: every measure against its definition, its inequalities, and the prices that rest on it."""

import math
from fractions import Fraction
from itertools import chain, combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcore.privacy.accounting import (
    exponential_gdp,
    exponential_zcdp,
    pure_gdp,
    pure_zcdp,
)
from dpcore.textbook.theorems import Pair

COIN = Pair.of([Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)])
UNEVEN = Pair.of([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], [Fraction(1, 10), Fraction(2, 5), Fraction(1, 2)])


@st.composite
def pairs(draw):
    size = draw(st.integers(2, 4))
    weights = st.lists(st.integers(1, 30), min_size=size, max_size=size)
    here, there = draw(weights), draw(weights)
    return Pair.of([Fraction(w, sum(here)) for w in here], [Fraction(w, sum(there)) for w in there])


def events(pair):
    places = range(len(pair.outcomes))
    return chain.from_iterable(combinations(places, size) for size in range(len(pair.outcomes) + 1))


@given(pairs(), st.fractions(min_value=Fraction(1, 2), max_value=4))
def test_the_excess_is_the_most_that_any_event_exceeds_its_counterpart_by(pair, factor):
    most = max(sum(pair.outcomes[i][0] - factor * pair.outcomes[i][1] for i in event) for event in events(pair))
    assert pair.excess(factor=factor) == most


@given(pairs(), st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(9, 10)))
def test_epsilon_at_a_delta_is_enough_and_the_least(pair, delta):
    epsilon = pair.epsilon(delta=delta)
    assert pair.delta(epsilon=epsilon) <= float(delta) * (1 + 1e-12)
    if epsilon > 0:
        assert pair.delta(epsilon=epsilon * (1 - 1e-9)) > delta
    assert pair.epsilon(delta=0) == pytest.approx(pair.max_divergence(), rel=1e-15)


@given(pairs())
def test_divergences_rise_with_their_order_from_the_mean_loss_to_the_largest(pair):
    orders = [1.001, 1.5, 2, 10, 100, math.inf]
    values = [pair.kl(), *(pair.renyi(order=order) for order in orders)]
    assert all(one <= two * (1 + 1e-12) for one, two in pairwise(values))
    assert pair.max_divergence() == max(0.0, *pair.losses().values())


def rho_and_mu_squared(pair: Pair) -> tuple[float, float]:
    """The largest Renyi divergence per order, over some orders, and the largest mu^2 that a test of one side against the other shows."""
    here, there = (np.array([float(outcome[side]) for outcome in pair.outcomes]) for side in (0, 1))
    order = np.argsort(here / there)[::-1]
    power, alarms = (np.cumsum(side[order])[:-1] for side in (here, there))
    orders = (1.0001, 1.5, 2.0, 10.0, 100.0)
    rho = max(side.renyi(order=at) / at for side in (pair, pair.reversed) for at in orders)
    return rho, float((stats.norm.ppf(power) - stats.norm.ppf(alarms)).max() ** 2)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_prices_of_pure_mechanisms_cover_randomised_response_and_an_exponential_mechanism(epsilon: float) -> None:
    true = 1 / (1 + math.exp(-epsilon))
    coin = Pair.of([true, 1 - true], [1 - true, true])
    rho, mu_squared = rho_and_mu_squared(coin)
    assert coin.max_divergence() == pytest.approx(epsilon, rel=1e-12)
    assert rho == pytest.approx(pure_zcdp(epsilon), rel=1e-3)
    assert mu_squared == pytest.approx(pure_gdp(epsilon), rel=1e-9)
    weights = [np.exp(epsilon / 2 * np.array(side)) for side in ([0, 1, 2, 0], [1, 0, 1, 1])]
    rho, mu_squared = rho_and_mu_squared(Pair.of(*[list(map(float, side / side.sum())) for side in weights]))
    assert rho <= float(exponential_zcdp(epsilon)) < 2 * rho
    assert mu_squared <= exponential_gdp(epsilon)


def test_what_is_possible_on_one_side_only_costs_everything():
    pair = Pair.of({"a": Fraction(9, 10), "b": Fraction(1, 10)}, {"a": 1})
    assert pair.losses()["b"] == pair.max_divergence() == pair.kl() == pair.renyi(order=2) == math.inf
    assert pair.reversed.max_divergence() < math.inf
    assert pair.epsilon(delta=Fraction(1, 20)) == math.inf
    assert pair.epsilon(delta=Fraction(1, 10)) == 0.0
    assert pair.excess(factor=10**9) == Fraction(1, 10)
    assert pair.infinite >= Fraction(1, 10)


def test_what_is_never_told_apart_costs_nothing():
    pair = Pair.of({"a": 0.5, "b": 0.5}, {"b": 0.5, "a": 0.5})
    assert pair.max_divergence() == pair.kl() == pair.delta(epsilon=0) == 0.0
    assert pair.epsilon(delta=0.1) == 0.0


@given(pairs(), st.integers(0, 10), st.integers(0, 10))
def test_post_processing_never_costs_more(pair, one, two):
    rule = {name: {"x": Fraction(one if i % 2 else two, 10), "y": 1 - Fraction(one if i % 2 else two, 10)} for i, name in enumerate(pair.names)}  # fmt: skip
    made = pair.after(rule)
    assert made.max_divergence() <= pair.max_divergence()
    assert made.excess(factor=2) <= pair.excess(factor=2)
    assert made.kl() <= pair.kl() * (1 + 1e-12)
    assert made.renyi(order=3) <= pair.renyi(order=3) * (1 + 1e-12)


def test_a_tiny_delta_is_not_rounded_away():
    tiny = Fraction(1, 10**200)
    pair = Pair.of({"a": 1 - tiny, "b": tiny}, {"a": 1})
    assert pair.delta(epsilon=1.0) >= 1e-200
    assert pair.delta(epsilon=0) >= 1e-200


def test_seen_from_there_a_pair_may_cost_another_amount():
    assert UNEVEN.kl() != UNEVEN.reversed.kl()
    assert UNEVEN.reversed.reversed == UNEVEN
    assert COIN.kl() == COIN.reversed.kl()
