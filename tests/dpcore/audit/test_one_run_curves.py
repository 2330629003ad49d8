"""The bound for guesses from one run, against whole curves: never wrong for a mechanism that keeps its promise, and as sharp as it can be."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from dpcore.audit.one_run import least_epsilon
from dpcore.audit.one_run_curves import _plausible, curve_of, least_amount
from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency

NORMAL = NormalDist()


@pytest.mark.parametrize("canaries", [50, 400, 2000])
@pytest.mark.parametrize("accuracy", [0.6, 0.75, 0.9, 1.0])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_in_pure_epsilon_it_is_the_bound_of_steinke_nasr_and_jagielski(
    canaries: int, accuracy: float, share: float
) -> None:
    guesses = int(share * canaries)
    correct = int(accuracy * guesses)
    ours = least_amount(
        currency=Currency.PURE, canaries=canaries, guesses=guesses, correct=correct, miss=1e-8, between=(0.0, 10.0)
    )
    theirs = least_epsilon(canaries=canaries, guesses=guesses, correct=correct, delta=0.0, confidence=1 - 1e-8)
    assert ours == pytest.approx(min(theirs, 10.0), abs=1e-3)


def accuracy_of(currency: Currency, amount: float) -> float:
    """How often a canary is guessed by the best guess, if each has noise of its own that loses the whole amount."""
    if currency is Currency.PURE:
        return 1 / (1 + math.exp(-amount))
    return NORMAL.cdf(math.sqrt(amount if currency is Currency.GDP else 2 * amount) / 2)


@pytest.mark.parametrize("currency", list(Currency))
@pytest.mark.parametrize("amount", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("canaries", [1, 2, 7, 100, 1000])
def test_what_a_real_mechanism_does_with_some_probability_is_held_plausible_at_that_probability(
    currency: Currency, amount: float, canaries: int
) -> None:
    curve, accuracy = curve_of(currency, amount), accuracy_of(currency, amount)
    for correct in np.unique(np.linspace(0, canaries, 12).astype(int)).tolist():
        chance = float(binom.sf(correct - 1, canaries, accuracy))
        if chance > 1e-12:
            assert _plausible(curve, canaries=canaries, guesses=canaries, correct=correct, miss=chance * (1 - 1e-9))


@pytest.mark.parametrize("currency", [Currency.PURE, Currency.GDP])
def test_one_that_loses_more_than_it_promises_is_not(currency: Currency) -> None:
    accuracy, canaries = accuracy_of(currency, 4.0), 5000
    correct = int(accuracy * canaries)
    assert not _plausible(
        curve_of(currency, 0.1), canaries=canaries, guesses=canaries, correct=correct, miss=1e-8 ** (1 / 16)
    )


@pytest.mark.parametrize("guesses", [2, 4, 6])
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
        found = linprog(
            -(numbers >= correct).astype(float),
            A_ub=np.array(rows),
            b_ub=np.array(limits),
            A_eq=np.ones((1, guesses + 1)),
            b_eq=[1.0],
        )
        largest = -found.fun
        for miss, allowed in ((largest * 0.999, True), (min(largest * 1.001, 0.999999), largest * 1.001 > 0.999999)):
            plausible = _plausible(
                curve_of(Currency.PURE, epsilon), canaries=canaries, guesses=guesses, correct=correct, miss=miss
            )
            assert plausible is allowed


@pytest.mark.parametrize("rho", [0.01, 0.3, 2.0])
def test_a_curve_of_zcdp_allows_what_gaussian_noise_of_that_rho_does_and_not_much_more(rho: float) -> None:
    curve, mu = curve_of(Currency.ZCDP, rho), math.sqrt(2 * rho)
    for p in (1e-10, 1e-6, 0.001, 0.1, 0.5, 0.9, 0.999):
        gaussian = NORMAL.cdf(NORMAL.inv_cdf(p) - mu)
        assert curve(p) <= gaussian
        assert curve(p) >= NORMAL.cdf(NORMAL.inv_cdf(p) - 1.8 * mu) * 0.7
    assert curve(0.0) == 0.0


def test_what_no_audit_is_is_refused() -> None:
    for wrong in ({"correct": 11}, {"guesses": 0, "correct": 0}, {"miss": 0.0}, {"miss": 1.0}):
        asked = {"canaries": 10, "guesses": 10, "correct": 5, "miss": 1e-8} | wrong
        with pytest.raises(UsageError, match="an audit needs"):
            least_amount(currency=Currency.PURE, **asked)
