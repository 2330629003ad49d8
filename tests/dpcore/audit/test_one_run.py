"""What right guesses from one run say: never more than is true of a mechanism that keeps its promise, and as much as can be said."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from dpcore.audit import least_amount
from dpcore.audit.one_run import _plausible, curve_of
from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency

NORMAL = NormalDist()


@pytest.mark.parametrize(("canaries", "guesses"), [(50, 50), (400, 120), (2000, 2000), (1000, 300)])
@pytest.mark.parametrize("accuracy", [0.6, 0.75, 1.0])
def test_in_pure_epsilon_so_many_right_guesses_are_as_likely_at_the_bound_as_the_miss_says(
    canaries: int, guesses: int, accuracy: float
) -> None:
    """By the binomial distribution of Steinke, Nasr and Jagielski."""
    correct = math.ceil(accuracy * guesses)
    for miss, near in ((0.05, 0.03), (1e-8, 0.003)):
        bound = least_amount(currency=Currency.PURE, canaries=canaries, guesses=guesses, correct=correct, miss=miss)
        below, beyond = (
            binom.sf(correct - 1, guesses, 1 / (1 + math.exp(-epsilon))) for epsilon in (bound, bound + near)
        )
        assert below <= miss or bound == 0
        assert beyond > miss


def accuracy_of(currency: Currency, amount: float) -> float:
    """How often a canary is guessed by the best guess, if each has noise of its own that loses the whole amount."""
    if currency is Currency.PURE:
        return 1 / (1 + math.exp(-amount))
    return NORMAL.cdf(math.sqrt(amount if currency is Currency.GDP else 2 * amount) / 2)


@pytest.mark.parametrize("currency", list(Currency))
@pytest.mark.parametrize("canaries", [1, 7, 300])
def test_what_a_real_mechanism_does_with_some_probability_is_held_plausible_at_that_probability(
    currency: Currency, canaries: int
) -> None:
    for amount in (0.1, 2.0):
        curve, accuracy = curve_of(currency, amount), accuracy_of(currency, amount)
        for correct in np.unique(np.linspace(0, canaries, 12).astype(int)).tolist():
            chance = float(binom.sf(correct - 1, canaries, accuracy))
            if chance > 1e-12:
                miss = chance * (1 - 1e-9)
                assert _plausible(curve, canaries=canaries, guesses=canaries, correct=correct, miss=miss)


@pytest.mark.parametrize("currency", [Currency.PURE, Currency.GDP])
def test_one_that_loses_more_than_it_promises_is_not(currency: Currency) -> None:
    canaries = 1000
    correct = int(accuracy_of(currency, 4.0) * canaries)
    assert not _plausible(curve_of(currency, 0.1), canaries=canaries, guesses=canaries, correct=correct, miss=0.3)


@pytest.mark.parametrize("guesses", [2, 6])
def test_the_recursion_finds_the_largest_probability_that_the_inequalities_allow(guesses: int) -> None:
    """In pure epsilon the inequalities are linear, and a linear program finds their largest probability of so many right guesses."""
    canaries, epsilon = 8, 0.7
    numbers = np.arange(guesses + 1)
    for correct in range(1, guesses + 1):
        rows, limits = [], []
        for t in range(1, guesses + 1):
            right = np.where(numbers >= t, numbers, 0) / canaries
            wrong = np.where(numbers >= t - 1, guesses - numbers, 0) / canaries
            rows += [right - math.exp(epsilon) * wrong, right - math.exp(-epsilon) * wrong]
            limits += [0.0, 1 - math.exp(-epsilon)]
        largest = -linprog(
            -(numbers >= correct).astype(float),
            A_ub=np.array(rows),
            b_ub=np.array(limits),
            A_eq=np.ones((1, guesses + 1)),
            b_eq=[1.0],
        ).fun
        for miss, allowed in ((largest * 0.999, True), (min(largest * 1.001, 0.999999), largest * 1.001 > 0.999999)):
            curve = curve_of(Currency.PURE, epsilon)
            assert _plausible(curve, canaries=canaries, guesses=guesses, correct=correct, miss=miss) is allowed


@pytest.mark.parametrize("rho", [0.01, 2.0])
def test_a_curve_of_zcdp_allows_what_gaussian_noise_of_that_rho_does_and_not_much_more(rho: float) -> None:
    curve, mu = curve_of(Currency.ZCDP, rho), math.sqrt(2 * rho)
    for p in (1e-10, 0.001, 0.5, 0.999):
        assert NORMAL.cdf(NORMAL.inv_cdf(p) - 1.8 * mu) * 0.7 <= curve(p) <= NORMAL.cdf(NORMAL.inv_cdf(p) - mu)
    assert curve(0.0) == 0.0


def test_what_no_audit_is_is_refused_and_who_guesses_nothing_shows_nothing() -> None:
    asked = {"currency": Currency.PURE, "canaries": 10, "guesses": 10, "correct": 5, "miss": 1e-8}
    for wrong in ({"correct": 11}, {"guesses": 11}, {"correct": -1}, {"miss": 0.0}, {"miss": 1.0}):
        with pytest.raises(UsageError, match="an audit needs"):
            least_amount(**asked | wrong)
    assert least_amount(**asked | {"guesses": 0, "correct": 0}) == 0.0
