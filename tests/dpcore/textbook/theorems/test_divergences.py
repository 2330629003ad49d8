"""Pairs of finite distributions: every measure against its definition, its inequalities, and the prices that rest on it."""

import math
from fractions import Fraction
from itertools import chain, combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpcore.errors import UsageError
from dpcore.privacy.accounting import (
    discrete_laplace_zcdp,
    exponential_gdp,
    exponential_zcdp,
    gdp_to_delta,
    pure_gdp,
    pure_zcdp,
    zcdp_to_delta,
)
from dpcore.textbook.theorems import Pair
from tests.dpcore.textbook.theorems.coverings import pair_gdp, pair_zcdp

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


@given(pairs())
@settings(max_examples=25)
def test_rho_covers_every_order_and_hardly_more(pair):
    rho = pair_zcdp(pair)
    orders = 1 + np.geomspace(1e-4, 1e4, 400)
    attained = 0.0
    for side in (pair, pair.reversed):
        p, q = (np.array([float(outcome[i]) for outcome in side.outcomes]) for i in (0, 1))
        losses = np.log(p / q)
        exponents = (orders[:, None] - 1) * losses[None, :] + np.log(p)[None, :]
        peak = exponents.max(axis=1)
        divergence = (peak + np.log(np.exp(exponents - peak[:, None]).sum(axis=1))) / (orders - 1)
        attained = max(attained, float((divergence / orders).max()))
    assert attained * (1 - 1e-6) - 1e-10 <= rho <= attained * 1.001 + 1e-9


@given(pairs(), st.floats(min_value=0.01, max_value=3))
@settings(max_examples=25)
def test_delta_is_within_what_rho_and_mu_promise(pair, epsilon):
    delta = pair.delta(epsilon=epsilon)
    rho, mu_squared = pair_zcdp(pair), pair_gdp(pair)
    if rho > 0:
        assert delta <= zcdp_to_delta(rho, epsilon=epsilon)
        assert delta <= gdp_to_delta(mu_squared, epsilon=epsilon)
        assert rho <= mu_squared / 2 * (1 + 2e-5)


@given(pairs())
def test_mu_is_the_least_whose_tests_are_nowhere_worse(pair):
    mu = math.sqrt(pair_gdp(pair))
    ordered = sorted(pair.outcomes, key=lambda outcome: outcome[0] / outcome[1], reverse=True)
    alarms = np.cumsum([float(there) for _, there in ordered])[:-1]
    misses = 1 - np.cumsum([float(here) for here, _ in ordered])[:-1]
    needed = stats.norm.isf(alarms) + stats.norm.isf(misses)
    assert mu == pytest.approx(max(needed.max(), 0.0), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomised_response_is_what_the_prices_of_pure_mechanisms_cover(epsilon):
    true = 1 / (1 + math.exp(-epsilon))
    pair = Pair.of([true, 1 - true], [1 - true, true])
    assert pair_zcdp(pair) == pytest.approx(pure_zcdp(epsilon), rel=2e-5)
    assert pair_gdp(pair) == pytest.approx(pure_gdp(epsilon), rel=1e-9)
    assert pair.max_divergence() == pytest.approx(epsilon, rel=1e-12)


def test_an_exponential_mechanism_stays_within_its_prices_which_a_pure_one_of_half_its_rho_would_not():
    epsilon, scores = 2.0, ([0, 1, 2, 0], [1, 0, 1, 1])
    weights = [np.exp(epsilon / 2 * np.array(side)) for side in scores]
    pair = Pair.of(*[list(map(float, side / side.sum())) for side in weights])
    assert pair_zcdp(pair) <= float(exponential_zcdp(epsilon)) < 2 * pair_zcdp(pair)
    assert pair_gdp(pair) <= exponential_gdp(epsilon)


def test_discrete_laplace_noise_costs_its_price():
    reach, scale = 60, 2.0
    noise = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    here, there = np.append(noise, 0), np.insert(noise, 0, 0)
    here[-1], there[0] = noise[-1], noise[0]  # the ends lie beyond all floats' reach; both sides keep their support
    pair = Pair.of(list(map(float, here / here.sum())), list(map(float, there / there.sum())))
    assert pair_zcdp(pair) == pytest.approx(discrete_laplace_zcdp(scale, l1=1, linf=1), rel=1e-4)


def test_what_is_possible_on_one_side_only_costs_everything():
    pair = Pair.of({"a": Fraction(9, 10), "b": Fraction(1, 10)}, {"a": 1})
    assert pair.losses()["b"] == pair.max_divergence() == pair.kl() == pair.renyi(order=2) == math.inf
    assert pair_zcdp(pair) == pair_gdp(pair) == pair_gdp(pair.reversed) == math.inf
    assert pair.reversed.max_divergence() < math.inf
    assert pair.epsilon(delta=Fraction(1, 20)) == math.inf
    assert pair.epsilon(delta=Fraction(1, 10)) == 0.0
    assert pair.excess(factor=10**9) == Fraction(1, 10)
    assert pair.infinite >= Fraction(1, 10)


def test_what_is_never_told_apart_costs_nothing():
    pair = Pair.of({"a": 0.5, "b": 0.5}, {"b": 0.5, "a": 0.5})
    assert pair.max_divergence() == pair.kl() == pair_zcdp(pair) == pair_gdp(pair) == pair.delta(epsilon=0) == 0.0
    assert pair.epsilon(delta=0.1) == 0.0


@given(pairs(), st.integers(0, 10), st.integers(0, 10))
def test_post_processing_never_costs_more(pair, one, two):
    rule = {name: {"x": Fraction(one if i % 2 else two, 10), "y": 1 - Fraction(one if i % 2 else two, 10)} for i, name in enumerate(pair.names)}  # fmt: skip
    made = pair.after(rule)
    assert made.max_divergence() <= pair.max_divergence()
    assert made.excess(factor=2) <= pair.excess(factor=2)
    assert made.kl() <= pair.kl() * (1 + 1e-12)
    assert made.renyi(order=3) <= pair.renyi(order=3) * (1 + 1e-12)
    assert pair_gdp(made) <= pair_gdp(pair) * (1 + 1e-12)


def test_a_tiny_delta_is_not_rounded_away():
    tiny = Fraction(1, 10**200)
    pair = Pair.of({"a": 1 - tiny, "b": tiny}, {"a": 1})
    assert pair.delta(epsilon=1.0) >= 1e-200
    assert pair.delta(epsilon=0) >= 1e-200


def test_seen_from_there_a_pair_may_cost_another_amount():
    assert UNEVEN.kl() != UNEVEN.reversed.kl()
    assert UNEVEN.reversed.reversed == UNEVEN
    assert COIN.kl() == COIN.reversed.kl()


@pytest.mark.parametrize(
    ("here", "there", "problem"),
    [
        ([0.5, 0.6], [0.5, 0.5], "add up to 1"),
        ([0.5, 0.5], [0.5], "add up to 1"),
        ([1], [Fraction(1, 2), Fraction(1, 2)], "same number of outcomes"),
        ([], [], "add up to 1"),
        ([-0.5, 1.5], [0.5, 0.5], "from 0 to 1"),
        ([math.nan, 1.0], [0.5, 0.5], "from 0 to 1"),
        ([math.inf], [1], "from 0 to 1"),
        ([True], [1], "must be a number"),
        (["1"], [1], "must be a number"),
        ({"a": 1}, [1], "two mappings or two sequences"),
        ([Fraction(1, 3), Fraction(1, 3)], [Fraction(1, 2), Fraction(1, 2)], "add up to 1"),
    ],
)
def test_what_is_no_pair_of_distributions_is_refused(here, there, problem):
    with pytest.raises(UsageError, match=problem):
        Pair.of(here, there)


def test_questions_that_mean_nothing_are_refused():
    for call in (
        lambda: COIN.renyi(order=1),
        lambda: COIN.renyi(order=math.nan),
        lambda: COIN.delta(epsilon=-1),
        lambda: COIN.epsilon(delta=1),
        lambda: COIN.epsilon(delta=-0.1),
        lambda: COIN.excess(factor=0),
        lambda: COIN.after({0: [1]}),
    ):
        with pytest.raises(UsageError):
            call()
