"""Basic, advanced, group and parallel composition, and the inputs that they refuse."""

import math
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.privacy.protection import Neighbours
from dpcore.textbook.theorems import (
    Pair,
    advanced_composition,
    basic_composition,
    group_approximate,
    optimal_composition,
    optimal_composition_delta,
    parallel_composition,
)

epsilons = st.floats(min_value=1e-3, max_value=2)
counts = st.integers(1, 60)
ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
amounts = st.lists(st.fractions(min_value=Fraction(1, 100), max_value=10), min_size=1, max_size=6)
ODDS = Fraction(2)


@given(epsilons, counts, st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_advanced_composition_is_never_below_the_optimum(epsilon, count, slack):
    bound, delta = advanced_composition([(epsilon, 0)] * count, slack=slack)
    assert delta == slack
    assert bound >= optimal_composition(epsilon, delta=0, count=count, total_delta=slack)


@given(st.lists(epsilons, min_size=2, max_size=6), st.sampled_from([1e-9, 1e-3]))
def test_prices_in_any_order_cost_the_same_and_never_less_than_one_of_them_alone(prices, slack):
    parts = [(price, 1e-12) for price in prices]
    whole = advanced_composition(parts, slack=slack)
    assert whole == advanced_composition(parts[::-1], slack=slack)
    assert whole[0] > advanced_composition(parts[1:], slack=slack)[0]
    assert whole[1] >= slack + len(prices) * 1e-12


def test_many_small_prices_are_cheaper_than_their_sum_and_few_large_ones_dearer():
    assert advanced_composition([(0.01, 0)] * 10_000, slack=1e-6)[0] < 10
    assert advanced_composition([(1.0, 0)] * 5, slack=1e-6)[0] > basic_composition([(1.0, 0)] * 5)[0]


def test_prices_may_be_counted_instead_of_listed():
    listed = [(0.1, 0)] * 3 + [(0.2, 1e-9)]
    assert basic_composition({(0.1, 0): 3, (0.2, 1e-9): 1}) == basic_composition(listed)
    assert advanced_composition({(0.1, 0): 3, (0.2, 1e-9): 1}, slack=1e-6) == advanced_composition(listed, slack=1e-6)
    assert advanced_composition({(0.1, 0): 4, (0.2, 1e-9): 1}, slack=1e-6) != advanced_composition(listed, slack=1e-6)


def test_without_the_second_term_the_bound_would_be_broken():
    """The control: sqrt(2k ln(1/d')) epsilon alone is below what is truly lost, so that its delta is exceeded."""
    epsilon, count, slack = 2.0, 60, 0.5
    first = epsilon * math.sqrt(2 * count * math.log(1 / slack))
    assert optimal_composition_delta(epsilon, delta=0, count=count, total_epsilon=first) > slack
    whole, _ = advanced_composition([(epsilon, 0)] * count, slack=slack)
    assert optimal_composition_delta(epsilon, delta=0, count=count, total_epsilon=whole) <= slack


def test_deltas_add_and_are_rounded_up():
    _, delta = advanced_composition([(0.1, Fraction(1, 3 * 10**9))] * 3, slack=Fraction(1, 10**9))
    assert Fraction(delta) >= Fraction(2, 10**9)
    assert basic_composition([]) == (0, 0)


@given(epsilons, st.floats(min_value=1e-12, max_value=1e-3), st.integers(1, 20))
def test_a_groups_delta_follows_from_that_of_one_unit_step_by_step(epsilon, delta, size):
    whole, lost = group_approximate(epsilon, delta=delta, size=size)
    assert whole == size * Fraction(epsilon)
    by_steps = Fraction(0)
    for _ in range(size):
        by_steps = Fraction(delta) + by_steps * Fraction(math.exp(epsilon))
    assert lost == pytest.approx(min(float(by_steps), 1.0), rel=1e-9)
    assert lost >= min(float(by_steps) * (1 - 1e-13), 1.0)


def test_a_large_group_is_promised_nothing_but_a_delta_of_1():
    lost = [group_approximate(1.0, delta=1e-9, size=size)[1] for size in (1, 10, 20, 1000, 10**6)]
    assert all(one <= two for one, two in pairwise(lost))
    assert lost[0] == pytest.approx(1e-9)
    assert lost[-1] == 1.0


def joint(*sides: dict[int, Fraction]) -> dict[tuple[int, ...], Fraction]:
    """All answers of independent mechanisms."""
    answers = {}
    for names in product(*sides):
        probability = Fraction(1)
        for side, name in zip(sides, names, strict=True):
            probability *= side[name]
        answers[names] = probability
    return answers


def block(present: int) -> dict[int, Fraction]:
    """Randomised response about whether a unit is in a block."""
    true = ODDS / (1 + ODDS)
    return {present: true, 1 - present: 1 - true}


@given(amounts)
def test_one_block_pays_under_add_remove_and_two_under_replace_one(each):
    ordered = sorted(each, reverse=True)
    assert parallel_composition(each, neighbours=ADD) == ordered[0]
    assert parallel_composition(each, neighbours=REPLACE) == sum(ordered[:2])


def test_a_replaced_unit_can_lose_more_than_the_dearest_block() -> None:
    """It leaves the first block for the second: with the maximum alone, what is lost would exceed what is charged."""
    epsilon = 0.6931471805599454
    moved = Pair.of(joint(block(1), block(0), block(0)), joint(block(0), block(1), block(0)))
    gone = Pair.of(joint(block(1), block(0), block(0)), joint(block(0), block(0), block(0)))
    one, two = (float(parallel_composition([epsilon] * 3, neighbours=relation)) for relation in (ADD, REPLACE))
    assert gone.max_divergence() <= one * (1 + 1e-5) < 1.2 * one < moved.max_divergence() <= two * (1 + 1e-5)
