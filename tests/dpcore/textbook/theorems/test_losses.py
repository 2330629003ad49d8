"""Privacy loss distributions: never below the exact profile, close to it, and close to other libraries' numbers."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as theirs
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.privacy.accounting import gdp_to_delta, gdp_to_epsilon
from dpcore.textbook.theorems import (
    Pair,
    approximate_losses,
    compose_losses,
    discrete_gaussian_delta,
    discrete_gaussian_losses,
    discrete_laplace_losses,
    gaussian_losses,
    laplace_losses,
    optimal_composition_delta,
    pair_losses,
)
from dpcore.textbook.theorems import losses as grids
from dpcore.textbook.theorems.losses import POINTS

EPSILONS = [0.0, 1e-3, 0.1, 0.5, 1.0, 3.0]
EVERY = {
    "approximate": approximate_losses(0.7, delta=1e-7),
    "laplace": laplace_losses(0.7),
    "discrete laplace": discrete_laplace_losses(3.0, shift=2),
    "gaussian": gaussian_losses(0.5),
    "discrete gaussian": discrete_gaussian_losses(1.3, shift=1),
}


def laplace_delta(epsilon: float, promised: float) -> float:
    """The exact profile of continuous Laplace noise."""
    return max(0.0, -math.expm1((promised - epsilon) / 2))


@pytest.mark.parametrize("name", EVERY)
def test_both_sides_have_all_their_mass_and_hardly_more(name):
    losses = EVERY[name]
    here = losses.masses.sum() + losses.infinite
    there = (losses.masses * np.exp(-losses.losses)).sum() + losses.infinite
    assert 1 <= here <= 1 + 1e-10
    assert 1 <= there <= 1 + 1e-10


@pytest.mark.parametrize("mu_squared", [1e-8, 0.01, 1.0, 30.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_gaussian_profile_is_not_below_the_exact_one_and_close_to_it(mu_squared, epsilon):
    exact = gdp_to_delta(mu_squared, epsilon=epsilon)
    ours = gaussian_losses(mu_squared).delta(epsilon=epsilon)
    assert exact * (1 - 1e-15) <= ours <= exact * 1.01 + 1e-28


@pytest.mark.parametrize("noise", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_laplace_profile_is_not_below_the_exact_one_and_close_to_it(noise, epsilon):
    exact = laplace_delta(noise, epsilon)
    assert exact * (1 - 1e-15) <= laplace_losses(noise).delta(epsilon=epsilon) <= exact * (1 + 1e-4) + noise * 1e-3


@pytest.mark.parametrize(("sigma", "shift"), [(0.5, 1), (1.0, 1), (7.0, 3), (300.0, 100)])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_discrete_gaussian_profile_is_not_below_the_exact_one_and_close_to_it(sigma, shift, epsilon):
    exact = discrete_gaussian_delta(epsilon, sigma_squared=Fraction(sigma) ** 2, shift=shift)
    ours = discrete_gaussian_losses(sigma, shift=shift).delta(epsilon=epsilon)
    assert exact * (1 - 1e-13) <= ours <= exact * 1.01 + 1e-28


@pytest.mark.parametrize(("sigma", "shift"), [(1.0, 1), (2.5, 2), (40.0, 7)])
def test_the_exact_discrete_profile_is_the_sum_over_all_answers(sigma, shift):
    k = np.arange(-2000, 2001)
    weights = np.exp(-(k**2) / (2 * sigma**2))
    here, there = weights / weights.sum(), np.exp(-((k - shift) ** 2) / (2 * sigma**2)) / weights.sum()
    for epsilon in EPSILONS:
        exact = np.maximum(here - math.exp(epsilon) * there, 0).sum()
        ours = discrete_gaussian_delta(epsilon, sigma_squared=Fraction(sigma) ** 2, shift=shift)
        assert ours == pytest.approx(exact, rel=1e-9, abs=1e-16)


@given(st.floats(min_value=0.01, max_value=2), st.integers(1, 40), st.floats(min_value=0, max_value=5))
@settings(max_examples=50)
def test_repeated_answers_are_not_below_the_optimal_theorem_and_close_to_it(epsilon, count, total):
    exact = optimal_composition_delta(epsilon, delta=1e-8, count=count, total_epsilon=total)
    ours = approximate_losses(epsilon, delta=1e-8).times(count).delta(epsilon=total)
    assert exact * (1 - 1e-15) <= ours <= exact * 1.01 + 1e-3 * epsilon


@given(st.lists(st.floats(min_value=1e-4, max_value=0.5), min_size=1, max_size=6), st.sampled_from([1e-12, 1e-6, 1e-2]))
@settings(max_examples=30)
def test_gaussians_together_are_a_gaussian(squares, delta):
    exact = gdp_to_epsilon(sum(map(Fraction, squares)), delta=delta)
    ours = compose_losses((gaussian_losses(square), 1) for square in squares).epsilon(delta=delta)
    assert exact * (1 - 1e-12) <= ours <= exact * 1.002 + 1e-5


def test_ten_thousand_small_ones_stay_small_and_close():
    exact = gdp_to_epsilon(1.0, delta=1e-9)
    losses = gaussian_losses(1e-4).times(10_000)
    assert losses.masses.size <= POINTS
    assert exact <= losses.epsilon(delta=1e-9) <= exact * 1.0005


def test_a_few_large_ones_do_not_spoil_many_small_ones():
    small, large = (gaussian_losses(1e-6), 1000), (gaussian_losses(1.0), 2)
    exact = gdp_to_epsilon(2.001, delta=1e-9)
    assert exact <= compose_losses([large, small]).epsilon(delta=1e-9) <= exact * 1.001


@pytest.mark.parametrize(
    ("ours", "other"),
    [
        (laplace_losses(0.5), lambda: theirs.from_laplace_mechanism(2.0, value_discretization_interval=1e-3)),
        (
            gaussian_losses(Fraction(1, 4)),
            lambda: theirs.from_gaussian_mechanism(2.0, value_discretization_interval=1e-3),
        ),
        (
            discrete_laplace_losses(3.0, shift=2),
            lambda: theirs.from_discrete_laplace_mechanism(1 / 3, sensitivity=2, value_discretization_interval=1e-4),
        ),
        (
            discrete_gaussian_losses(3.0, shift=2),
            lambda: theirs.from_discrete_gaussian_mechanism(3.0, sensitivity=2, value_discretization_interval=1e-4),
        ),
    ],
    ids=["laplace", "gaussian", "discrete laplace", "discrete gaussian"],
)
def test_another_library_finds_the_same_epsilon(ours, other):
    reference = other().self_compose(12)
    for delta in (1e-3, 1e-6, 1e-9):
        assert ours.times(12).epsilon(delta=delta) == pytest.approx(reference.get_epsilon_for_delta(delta), rel=5e-4)


def test_a_finite_pair_has_its_own_profile():
    pair = Pair.of([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], [Fraction(1, 10), Fraction(2, 5), Fraction(1, 2)])
    losses = pair_losses(pair)
    for epsilon in (0.1, 0.5, 1.5):
        assert pair.delta(epsilon=epsilon) <= losses.delta(epsilon=epsilon) <= pair.delta(epsilon=epsilon) + 1e-3
    apart = pair_losses(Pair.of({"a": 1}, {"b": 1}))
    assert apart.delta(epsilon=100) == 1.0
    same = pair_losses(Pair.of([1], [1]))
    assert same.times(100).epsilon(delta=1e-6) == 0.0


def test_losses_rounded_down_would_be_noticed():
    """The control: the same masses one grid point lower, as rounding down gives, are below the exact profile."""
    up = gaussian_losses(0.01)
    down = replace(up, lowest=up.lowest - 1)
    assert down.delta(epsilon=0.1) < gdp_to_delta(0.01, epsilon=0.1)
    assert down.times(100).epsilon(delta=1e-6) < gdp_to_epsilon(1.0, delta=1e-6)


def test_a_dropped_tail_would_be_noticed():
    """The control: without the mass of infinite loss, the delta of what tells all is lost."""
    kept = approximate_losses(0.5, delta=1e-6).times(10)
    dropped = replace(kept, infinite=0.0)
    exact = optimal_composition_delta(0.5, delta=1e-6, count=10, total_epsilon=4.9)
    assert dropped.delta(epsilon=5.0) < 1e-6 < exact <= kept.delta(epsilon=4.9)


def test_an_epsilon_keeps_its_delta_and_hardly_less_does_not():
    for losses in EVERY.values():
        epsilon = losses.epsilon(delta=1e-5)
        assert losses.delta(epsilon=epsilon) <= 1e-5
        assert losses.delta(epsilon=epsilon * (1 - 1e-9)) > 1e-5


def test_no_epsilon_is_above_the_largest_loss_that_there_is():
    for losses, most in ((EVERY["approximate"], 0.7), (EVERY["laplace"], 0.7), (EVERY["discrete laplace"], 2 / 3)):
        assert losses.times(12).epsilon(delta=1.3e-6) <= 12 * most * (1 + 1e-12)
        assert losses.times(12).delta(epsilon=12.001 * most) <= 1.3e-6


def test_a_delta_below_what_is_told_outright_is_refused():
    with pytest.raises(UsageError, match="allow a larger delta"):
        approximate_losses(0.5, delta=1e-6).epsilon(delta=1e-7)


@pytest.mark.parametrize("bad", [0, 0.0, -1.0, math.nan, math.inf, 1e12, True, "1", None])
def test_arguments_that_mean_nothing_are_refused(bad):
    calls = [
        lambda: approximate_losses(bad, delta=0),
        lambda: laplace_losses(bad),
        lambda: discrete_laplace_losses(bad, shift=1),
        lambda: gaussian_losses(bad),
        lambda: discrete_gaussian_losses(bad, shift=1),
        lambda: EVERY["laplace"].epsilon(delta=bad),
    ]
    if bad is not True:
        calls += [lambda: EVERY["laplace"].times(bad), lambda: discrete_gaussian_losses(1.0, shift=bad)]
    if bad not in {0, 1e12}:
        calls.append(lambda: EVERY["laplace"].delta(epsilon=bad))
    for call in calls:
        with pytest.raises(UsageError):
            call()


def test_nothing_to_compose_is_refused():
    with pytest.raises(UsageError, match="nothing to compose"):
        compose_losses([])


def test_what_is_cut_off_above_counts_as_lost(monkeypatch):
    """The control forgets the mass that it drops above, and is below the exact profile by a factor of thousands."""
    exact = optimal_composition_delta(0.1, delta=0, count=2000, total_epsilon=60)
    assert approximate_losses(0.1, delta=0).times(2000).delta(epsilon=60) >= exact > 0
    cut = grids._cut
    monkeypatch.setattr(grids, "_cut", lambda whole: replace(cut(whole), infinite=whole.infinite))
    assert approximate_losses(0.1, delta=0).times(2000).delta(epsilon=60) < exact / 1000
