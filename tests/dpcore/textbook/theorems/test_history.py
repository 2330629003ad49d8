"""What a history amounts to under each theorem, which of them hold, and why the others do not."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.privacy.accounting import (
    AMOUNT_OF_ONE,
    Cap,
    Currency,
    budget_of,
    epsilon_of,
    gaussian_zcdp,
    gdp_to_delta,
    gdp_to_epsilon,
    pure_zcdp,
    spend_amount,
    zcdp_to_epsilon,
)
from dpcore.textbook.theorems import (
    Comparison,
    Finding,
    Step,
    Theorem,
    approximate_losses,
    basic_composition,
    compare_theorems,
    laplace_losses,
    optimal_composition,
)

PURE = [Step(epsilon=0.05, delta=0, count=100), Step(epsilon=0.5, delta=0)]
NORMAL = [Step(mu_squared=0.01, count=10), Step(mu_squared=0.2)]


def by_theorem(comparison: Comparison) -> dict[Theorem, Finding]:
    return {finding.theorem: finding for finding in comparison.findings}


def epsilons(steps: list[Step], *, delta: float = 1e-6) -> dict[Theorem, float | None]:
    found = by_theorem(compare_theorems(steps, delta=delta, adaptive=False))
    return {theorem: finding.epsilon for theorem, finding in found.items()}


def test_a_pure_history_is_told_by_every_theorem_and_the_numbers_are_theirs():
    found = epsilons(PURE)
    assert found[Theorem.BASIC] == pytest.approx(5.5)
    assert found[Theorem.ZCDP] == zcdp_to_epsilon(
        100 * Fraction(pure_zcdp(0.05)) + Fraction(pure_zcdp(0.5)), delta=1e-6
    )
    assert found[Theorem.OPTIMAL] is None
    assert found[Theorem.NUMERIC] < found[Theorem.ZCDP] < found[Theorem.ADVANCED]


def test_equal_steps_are_composed_optimally():
    found = epsilons([Step(epsilon=0.1, delta=1e-9, count=100)])
    assert found[Theorem.OPTIMAL] == optimal_composition(0.1, delta=1e-9, count=100, total_delta=1e-6)
    assert found[Theorem.NUMERIC] == pytest.approx(found[Theorem.OPTIMAL], rel=1e-4)


def test_gaussian_steps_are_told_exactly_by_gdp_and_numerically():
    found = epsilons(NORMAL)
    exact = gdp_to_epsilon(10 * Fraction(0.01) + Fraction(0.2), delta=1e-6)
    assert found[Theorem.GDP] == exact
    assert found[Theorem.NUMERIC] == exact
    assert found[Theorem.BASIC] > found[Theorem.ZCDP] > exact


@pytest.mark.parametrize("currency", [Currency.ZCDP, Currency.GDP])
def test_of_an_adaptive_history_the_cap_is_promised_and_no_sum_so_far_is(currency):
    found = compare_theorems(PURE, delta=1e-6, adaptive=True, cap=Cap(currency, 5 * AMOUNT_OF_ONE))
    assert not any(finding.valid for finding in found.findings)
    assert found.smallest == found.promised
    assert found.promised.theorem.filter_in is currency
    assert found.promised.epsilon == epsilon_of(5 * AMOUNT_OF_ONE, currency=currency, delta=1e-6)
    so_far = by_theorem(found)[found.promised.theorem]
    assert so_far.because == "so far; no theorem promises it for adaptive prices"
    assert so_far.epsilon < found.promised.epsilon / 2  # tempting, and not to be had
    others = [finding for finding in found.findings if finding != so_far and finding.epsilon is not None]
    assert len(others) == 4
    assert all("fixed in advance" in finding.because for finding in others)


def test_of_an_adaptive_history_of_pure_steps_the_sum_so_far_is_valid_too_and_smaller_than_the_cap():
    found = compare_theorems(PURE, delta=1e-6, adaptive=True, cap=Cap(Currency.PURE, 6 * AMOUNT_OF_ONE))
    assert [finding.theorem for finding in found.findings if finding.valid] == [Theorem.BASIC]
    assert found.smallest == by_theorem(found)[Theorem.BASIC]
    assert found.smallest.epsilon == pytest.approx(5.5)
    assert (found.promised.epsilon, found.promised.valid) == (6.0, True)
    told = [finding.epsilon for finding in found.findings if finding.epsilon is not None]
    assert min(told) < found.smallest.epsilon  # by theorems that do not hold


@pytest.mark.parametrize("step", [Step(rho=0.1), Step(mu_squared=0.1), Step(epsilon=0.1, delta=1e-8)], ids=str)
def test_under_a_pure_cap_nothing_is_valid_if_a_step_is_not_pure(step):
    found = compare_theorems([*PURE, step], delta=1e-6, adaptive=True, cap=Cap(Currency.PURE, 100 * AMOUNT_OF_ONE))
    assert found.smallest is None
    basic = by_theorem(found)[Theorem.BASIC]
    assert basic.epsilon > 5.5
    assert "no pure epsilon" in basic.because
    assert "a pure epsilon follows" in found.promised.because


def test_a_cap_that_the_steps_exceed_promises_nothing():
    steps = [Step(rho=Fraction(1, 10), count=10)]
    kept = compare_theorems(steps, delta=1e-6, adaptive=True, cap=Cap(Currency.ZCDP, AMOUNT_OF_ONE))
    assert kept.smallest == kept.promised
    broken = compare_theorems(steps, delta=1e-6, adaptive=True, cap=Cap(Currency.ZCDP, AMOUNT_OF_ONE - 1))
    assert broken.smallest is None
    assert "not kept" in broken.promised.because
    assert compare_theorems(steps, delta=0, adaptive=True, cap=Cap(Currency.ZCDP, AMOUNT_OF_ONE)).smallest is None


def delta_of_stopping(epsilons: list[float], rhos: list[float]) -> float:
    """The delta that is needed if an analyst sees a Gaussian loss grow and stops where the epsilon told there is exceeded most."""
    rises, weights = np.polynomial.hermite_e.hermegauss(61)
    places = np.linspace(-9, 9, 901)

    def gain(epsilon: float, rho: float) -> np.ndarray:
        return -np.expm1(np.minimum(epsilon - (rho + math.sqrt(2 * rho) * places), 0))

    value = gain(epsilons[-1], rhos[-1])
    for epsilon, rho, later in zip(epsilons[-2::-1], rhos[-2::-1], rhos[:0:-1], strict=True):
        kept, new = math.sqrt(rho / later), math.sqrt(1 - rho / later)
        going_on = sum(
            weight * np.interp(kept * places + new * rise, places, value)
            for rise, weight in zip(rises, weights / weights.sum(), strict=True)
        )
        value = np.maximum(gain(epsilon, rho), going_on)
    density = np.exp(-(places**2) / 2)
    return float((value * density).sum() / density.sum())


def test_who_stops_when_it_pays_stays_within_the_cap_and_not_within_the_sum_so_far():
    """The control is the sum so far: told as a promise, it would be broken more than tenfold."""
    delta, rhos = 1e-6, [float(rho) for rho in np.geomspace(3e-12, 1, 30)]
    so_far, promised = [], []
    for rho in rhos:
        step = Step(mu_squared=2 * rho)
        found = compare_theorems([step], delta=delta, adaptive=True, cap=Cap(Currency.GDP, 2 * AMOUNT_OF_ONE))
        so_far.append(by_theorem(found)[Theorem.GDP].epsilon)
        promised.append(found.smallest.epsilon)
    assert delta_of_stopping(promised, rhos) <= 1.01 * delta
    assert delta_of_stopping(so_far, rhos) > 10 * delta


def test_a_million_equal_steps_are_counted_and_not_listed():
    million = epsilons([Step(epsilon=1e-5, delta=0, count=10**6)])
    assert million[Theorem.OPTIMAL] == optimal_composition(1e-5, delta=0, count=10**6, total_delta=1e-6)
    assert million[Theorem.OPTIMAL] <= million[Theorem.NUMERIC] <= 1.01 * million[Theorem.OPTIMAL]
    assert million[Theorem.NUMERIC] < million[Theorem.ZCDP] < million[Theorem.ADVANCED] < million[Theorem.BASIC]
    beyond_any_list = epsilons([Step(epsilon=1e-9, delta=0, count=10**12), Step(epsilon=0.1, delta=0)])
    assert 0 < beyond_any_list[Theorem.ZCDP] < beyond_any_list[Theorem.ADVANCED]


def test_equal_prices_of_several_steps_are_counted_together():
    apart = epsilons([Step(epsilon=0.1, delta=0, count=4), Step(epsilon=0.1, delta=0, count=6)])
    together = epsilons([Step(epsilon=0.1, delta=0, count=10)])
    assert apart.pop(Theorem.NUMERIC) == pytest.approx(together.pop(Theorem.NUMERIC), rel=1e-4)  # on another grid
    assert apart == together
    fewer = epsilons([Step(epsilon=0.1, delta=0, count=6)])
    assert all(fewer[theorem] < 0.9 * apart[theorem] for theorem in apart)  # the control: neither overwrites the other


@pytest.mark.parametrize("step", [Step(epsilon=1e-12, delta=0, count=2), Step(rho=1e-25, count=2)], ids=str)
def test_the_smallest_prices_of_mechanisms_are_told_by_every_theorem_that_knows_them(step):
    found = by_theorem(compare_theorems([step], delta=0.5, adaptive=False))
    assert found[Theorem.OPTIMAL].epsilon == 0.0
    if step.epsilon:
        assert found[Theorem.NUMERIC].epsilon == 0.0
        less = by_theorem(compare_theorems([Step(epsilon=9e-13, delta=0)], delta=0.5, adaptive=False))
        assert "at least 1e-12" in less[Theorem.OPTIMAL].because


def test_an_adaptive_history_without_a_cap_has_no_valid_theorem():
    found = compare_theorems(PURE, delta=1e-6, adaptive=True)
    assert (found.smallest, found.promised) == (None, None)
    assert not any(finding.valid for finding in found.findings)


def test_the_same_history_fixed_in_advance_may_take_the_smallest_of_all():
    found = compare_theorems(PURE[:1], delta=1e-6, adaptive=False)
    assert [finding.theorem for finding in found.findings if not finding.valid] == [Theorem.NUMERIC]
    assert found.smallest == by_theorem(found)[Theorem.OPTIMAL]
    assert found.smallest.epsilon == min(finding.epsilon for finding in found.findings if finding.valid)
    assert "an estimate" in by_theorem(found)[Theorem.NUMERIC].because


def test_at_delta_0_only_basic_composition_of_pure_steps_says_anything():
    found = compare_theorems(PURE, delta=0, adaptive=False)
    assert found.smallest.theorem is Theorem.BASIC
    assert Fraction(found.smallest.epsilon) >= basic_composition([(0.05, 0)] * 100 + [(0.5, 0)])[0]
    assert {finding.because for finding in found.findings if finding.epsilon is None} == {"it needs a delta above 0"}
    nothing = compare_theorems(NORMAL, delta=0, adaptive=False)
    assert nothing.smallest is None
    assert "a delta above 0" in by_theorem(nothing)[Theorem.BASIC].because


@pytest.mark.parametrize(
    ("step", "theorem", "reason"),
    [
        (Step(rho=0.1), Theorem.NUMERIC, "only the rho of a step is known"),
        (Step(rho=0.1), Theorem.GDP, "mu squared follows"),
        (Step(epsilon=0.1, delta=1e-9), Theorem.ZCDP, "rho follows"),
        (Step(epsilon=0.1, delta=1e-3), Theorem.BASIC, "more than this delta"),
        (Step(epsilon=0.1, delta=1e-6), Theorem.ADVANCED, "nothing for its slack"),
        (Step(epsilon=0.1, delta=1e-3), Theorem.OPTIMAL, "more than this delta"),
        (Step(losses=approximate_losses(0.1, delta=1e-3)), Theorem.NUMERIC, "allow a larger delta"),
        (Step(losses=laplace_losses(0.1)), Theorem.BASIC, "only the losses"),
        (Step(epsilon=1e5, delta=0), Theorem.OPTIMAL, "at most"),
    ],
)
def test_a_theorem_that_does_not_apply_says_why(step, theorem, reason):
    finding = by_theorem(compare_theorems([step], delta=1e-6, adaptive=False))[theorem]
    assert (finding.epsilon, finding.valid) == (None, False)
    assert reason in finding.because


def test_losses_are_used_where_they_are_given():
    plain, known = (
        Step(epsilon=0.1, delta=0, count=50),
        Step(epsilon=0.1, delta=0, losses=laplace_losses(0.1), count=50),
    )
    assert epsilons([known])[Theorem.NUMERIC] == pytest.approx(3.1207, rel=1e-4)
    assert epsilons([plain])[Theorem.NUMERIC] > epsilons([known])[Theorem.NUMERIC]


def test_the_cheaper_of_two_known_prices_counts():
    both = Step(epsilon=1.0, delta=0, rho=0.125, mu_squared=0.4)
    assert epsilons([both])[Theorem.ZCDP] == zcdp_to_epsilon(0.125, delta=1e-6)
    assert epsilons([both])[Theorem.GDP] == gdp_to_epsilon(0.4, delta=1e-6)
    assert epsilons([Step(mu_squared=0.25)])[Theorem.ZCDP] == zcdp_to_epsilon(0.125, delta=1e-6)


def test_to_let_a_charge_pass_if_either_of_two_caps_does_breaks_the_promise_of_both():
    """Both promise epsilon 1 at delta 1e-6; what passes by either is a thousand times above that delta."""
    epsilon, delta = 1.0, 1e-6
    (_, pure), (_, zcdp) = budget_of(epsilon, delta=0), budget_of(epsilon, delta=delta)
    sigma = math.sqrt(AMOUNT_OF_ONE / (2 * zcdp)) * (1 + 1e-9)
    assert spend_amount(epsilon) <= pure  # a response that the first cap lets through, and the second would not
    assert spend_amount(pure_zcdp(epsilon)) > zcdp
    assert spend_amount(gaussian_zcdp(l2_squared=1, sigma=sigma)) <= zcdp  # noise that has no pure price
    true, mu_squared = math.e / (1 + math.e), 1 / sigma**2
    lost = true * gdp_to_delta(mu_squared, epsilon=0) + (1 - true) * gdp_to_delta(mu_squared, epsilon=2 * epsilon)
    assert lost > 1000 * delta
