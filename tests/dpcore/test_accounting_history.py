"""What a history amounts to under each theorem, which of them hold, and why the others do not."""

import math
from fractions import Fraction

import opendp.prelude as dp
import pytest
from dp_accounting.pld import privacy_loss_distribution as theirs

from dpcore.accounting import (
    Comparison,
    Currency,
    Finding,
    Step,
    Theorem,
    approximate_losses,
    basic_composition,
    compare_theorems,
    discrete_gaussian_losses,
    gdp_to_epsilon,
    laplace_losses,
    optimal_composition,
    pure_zcdp,
    zcdp_to_epsilon,
)
from dpcore.errors import UsageError

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
    assert found[Theorem.NUMERIC] == pytest.approx(found[Theorem.OPTIMAL])
    assert found[Theorem.NUMERIC] < found[Theorem.ZCDP] < found[Theorem.ADVANCED]


def test_equal_steps_are_composed_optimally():
    found = epsilons([Step(epsilon=0.1, delta=1e-9, count=100)])
    assert found[Theorem.OPTIMAL] == optimal_composition(0.1, delta=1e-9, count=100, total_delta=1e-6)
    assert found[Theorem.NUMERIC] == pytest.approx(found[Theorem.OPTIMAL], rel=1e-4)


def test_gaussian_steps_are_told_exactly_by_gdp_and_numerically_from_above():
    found = epsilons(NORMAL)
    exact = gdp_to_epsilon(10 * Fraction(0.01) + Fraction(0.2), delta=1e-6)
    assert found[Theorem.GDP] == exact
    assert exact <= found[Theorem.NUMERIC] <= exact * 1.0001
    assert found[Theorem.ZCDP] > exact
    assert found[Theorem.BASIC] >= found[Theorem.OPTIMAL] > found[Theorem.ZCDP]


@pytest.mark.parametrize(("adaptive", "cap_in"), [(True, Currency.PURE), (True, Currency.ZCDP), (True, Currency.GDP)])
def test_of_an_adaptive_history_only_the_filter_with_the_cap_is_valid(adaptive, cap_in):
    found = compare_theorems(PURE, delta=1e-6, adaptive=adaptive, cap_in=cap_in)
    assert {finding.theorem.filter_in for finding in found.findings if finding.valid} == {cap_in}
    assert found.smallest.theorem.filter_in is cap_in
    others = [finding for finding in found.findings if not finding.valid]
    assert all("fixed in advance" in finding.because for finding in others)
    assert min(finding.epsilon for finding in others) < found.smallest.epsilon  # tempting, and not to be had


def test_an_adaptive_history_without_a_cap_has_no_valid_theorem():
    found = compare_theorems(PURE, delta=1e-6, adaptive=True)
    assert found.smallest is None
    assert not any(finding.valid for finding in found.findings)


def test_the_same_history_fixed_in_advance_may_take_the_smallest_of_all():
    found = compare_theorems(PURE, delta=1e-6, adaptive=False)
    assert all(finding.valid for finding in found.findings)
    assert found.smallest.theorem in {Theorem.NUMERIC, Theorem.OPTIMAL}
    assert found.smallest.epsilon == min(finding.epsilon for finding in found.findings)


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
        (Step(rho=0.1), Theorem.NUMERIC, "only its rho is known"),
        (Step(rho=0.1), Theorem.GDP, "mu squared follows"),
        (Step(epsilon=0.1, delta=1e-9), Theorem.ZCDP, "rho follows"),
        (Step(epsilon=0.1, delta=1e-3), Theorem.BASIC, "more than this delta"),
        (Step(epsilon=0.1, delta=1e-6), Theorem.ADVANCED, "nothing for its slack"),
        (Step(epsilon=0.1, delta=1e-3), Theorem.OPTIMAL, "more than this delta"),
        (Step(losses=approximate_losses(0.1, delta=1e-3)), Theorem.NUMERIC, "allow a larger delta"),
        (Step(epsilon=1e5, delta=0), Theorem.OPTIMAL, "at most"),
    ],
    ids=str,
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


def test_another_library_finds_the_same_epsilon_for_a_mixed_history():
    steps = [
        Step(mu_squared=Fraction(1, 100), count=20),
        Step(losses=laplace_losses(0.1), count=10),
        Step(losses=discrete_gaussian_losses(5.0, shift=1), count=5),
    ]
    fine = {"value_discretization_interval": 1e-4}
    whole = theirs.from_gaussian_mechanism(10.0, **fine).self_compose(20)
    whole = whole.compose(theirs.from_laplace_mechanism(10.0, **fine).self_compose(10))
    whole = whole.compose(theirs.from_discrete_gaussian_mechanism(5.0, **fine).self_compose(5))
    assert epsilons(steps)[Theorem.NUMERIC] == pytest.approx(whole.get_epsilon_for_delta(1e-6), rel=1e-3)


def test_opendp_finds_the_same_epsilon_for_a_sum_of_rhos():
    dp.enable_features("contrib")
    space = (dp.atom_domain(T=int), dp.absolute_distance(T=int))
    measurement = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=2.0))
    reference = measurement.map(1).epsilon(1e-6)
    assert epsilons([Step(rho=Fraction(1, 80), count=10)])[Theorem.ZCDP] == pytest.approx(reference, rel=1e-6)


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"count": 3},
        {"epsilon": 0.1},
        {"delta": 0.1},
        {"epsilon": 0.1, "delta": -1},
        {"epsilon": 0, "delta": 0},
        {"rho": math.nan},
        {"mu_squared": math.inf},
        {"rho": 0.1, "count": 0},
        {"rho": 0.1, "count": True},
        {"rho": "1"},
    ],
    ids=str,
)
def test_a_step_of_which_nothing_useful_is_known_is_refused(known):
    with pytest.raises(UsageError):
        Step(**known)


def test_questions_that_mean_nothing_are_refused():
    for call in (
        lambda: compare_theorems([], delta=1e-6, adaptive=False),
        lambda: compare_theorems(PURE, delta=1, adaptive=False),
        lambda: compare_theorems(PURE, delta=-1e-6, adaptive=False),
        lambda: compare_theorems(PURE, delta=1e-6, adaptive="no"),
    ):
        with pytest.raises(UsageError):
            call()


def test_a_formula_without_its_logarithm_would_be_noticed():
    """The control: rho + sqrt(4 rho ln(1/delta)) without the order's own terms is another number, and without the log too small."""
    rho, delta = 0.1, 1e-6
    ours = epsilons([Step(rho=rho)], delta=delta)[Theorem.ZCDP]
    assert ours < rho + 2 * math.sqrt(rho * math.log(1 / delta)) * 0.95
    assert rho + 2 * math.sqrt(rho) < ours * 0.5
