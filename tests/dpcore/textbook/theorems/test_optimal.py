"""Optimal composition against brute force in fractions, and against two other libraries' numbers."""

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import as_real
from dpcore.textbook.theorems import (
    Pair,
    optimal,
    optimal_composition,
    optimal_composition_delta,
)

HALF = Fraction(1, 2)


def told(odds: Fraction, lost: Fraction) -> Pair:
    """The worst mechanism with e^epsilon = odds and delta = lost: it tells all, or answers truly with those odds."""
    true, rest = odds / (1 + odds), 1 - lost
    here = {"all here": lost, 1: rest * true, 0: rest * (1 - true)}
    there = {"all there": lost, 1: rest * (1 - true), 0: rest * true}
    return Pair.of(here, there)


def together(pairs: list[Pair]) -> Pair:
    """The pair of all answers of independent mechanisms."""
    sides = []
    for side in (0, 1):
        joint = {}
        for answers in product(*[list(zip(pair.names, pair.outcomes, strict=True)) for pair in pairs]):
            joint[tuple(name for name, _ in answers)] = math.prod(outcome[side] for _, outcome in answers)
        sides.append(joint)
    return Pair.of(*sides)


@pytest.mark.parametrize("odds", [Fraction(11, 10), Fraction(2), Fraction(5)])
@pytest.mark.parametrize("lost", [Fraction(0), Fraction(1, 1000)])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_it_is_what_all_answers_of_the_worst_mechanisms_amount_to(odds, lost, count):
    exact = together([told(odds, lost)] * count)
    epsilon = math.log(odds)
    for total in (0.0, 0.1, epsilon, 1.5 * epsilon, count * epsilon * 0.999):
        ours = optimal_composition_delta(epsilon, delta=lost, count=count, total_epsilon=total)
        assert ours == pytest.approx(exact.delta(epsilon=total), rel=1e-9, abs=1e-15)
    for delta in (Fraction(1, 100), Fraction(1, 7)):
        ours = optimal_composition(epsilon, delta=lost, count=count, total_delta=delta)
        assert ours == pytest.approx(exact.epsilon(delta=delta), rel=1e-9, abs=1e-12)


@given(
    st.floats(min_value=1e-3, max_value=3), st.integers(1, 200), st.sampled_from([0.0, 1e-9]), st.sampled_from([1e-6, 1e-2, 0.3])
)  # fmt: skip
def test_its_epsilon_is_enough_and_nothing_smaller_is(epsilon, count, delta, total):
    least = optimal_composition(epsilon, delta=delta, count=count, total_delta=total)
    assert optimal_composition_delta(epsilon, delta=delta, count=count, total_epsilon=least) <= total * (1 + 1e-12)
    assert least <= count * epsilon * (1 + 1e-12)
    if least > 0:
        less = optimal_composition_delta(epsilon, delta=delta, count=count, total_epsilon=least * (1 - 1e-9))
        assert less > total


@pytest.mark.parametrize(("epsilon", "count"), [(1e-3, 5000), (0.05, 3000), (0.3, 2000)])
@pytest.mark.parametrize("total", [1e-60, 1e-12, 1e-3])
def test_a_sum_that_begins_late_leaves_out_nothing_that_matters(epsilon, count, total, monkeypatch):
    """The control begins it after answers that matter, and promises too little."""
    assert optimal._first(Fraction(epsilon), count) > 0
    least = optimal_composition(epsilon, delta=0, count=count, total_delta=total)
    kept = optimal_composition_delta(epsilon, delta=0, count=count, total_epsilon=least)
    assert total * (1 - 1e-9) < kept <= total * (1 + 1e-12)
    monkeypatch.setattr(optimal, "_UNLIKELY", 5.0)
    less = optimal_composition(epsilon, delta=0, count=count, total_delta=total)
    assert optimal_composition_delta(epsilon, delta=0, count=count, total_epsilon=less) > total * (1 + 1e-9)


@pytest.mark.parametrize("lost", [1e-118, 1e-125, 1e-300, 0.3])
@pytest.mark.parametrize("count", [1, 7, 64])
def test_a_delta_however_small_is_not_told_too_small(lost, count):
    """The control is the plain difference from 1 at 400 bits, which is 0 for a delta below 2^-400."""
    exact, each = 1 - (1 - Fraction(lost)) ** count, Fraction(1, 10)
    ours = optimal_composition_delta(each, delta=lost, count=count, total_epsilon=count * each)
    assert exact <= Fraction(ours) <= exact * (1 + Fraction(1, 10**12)) + Fraction(1, 10**320)
    assert (1 - (1 - as_real(lost)) ** count == 0) == (lost < 1e-121)


def test_the_float_1e_12_is_an_epsilon_and_less_is_not():
    assert optimal_composition(1e-12, delta=0, count=2, total_delta=1e-14) > 0


def test_one_mechanism_keeps_its_own_promise_and_no_better():
    assert optimal_composition(0.5, delta=1e-6, count=1, total_delta=1e-6) == pytest.approx(0.5, rel=1e-15)
    assert optimal_composition(0.5, delta=0, count=1, total_delta=0.9) == 0.0


def test_two_mechanisms_with_a_delta_do_not_fit_into_one_of_them():
    with pytest.raises(UsageError, match="exceed the total delta"):
        optimal_composition(0.5, delta=1e-6, count=2, total_delta=1e-6)
    with pytest.raises(UsageError, match="exceed the total delta"):
        optimal_composition(0.5, delta=1e-6, count=1000, total_delta=1e-6)
