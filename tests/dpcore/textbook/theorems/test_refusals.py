"""What means nothing to a theorem is refused by every function that would have to take it."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from dpcore.errors import UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency
from dpcore.privacy.protection import Neighbours
from dpcore.textbook.gaussian import analytic_gaussian_sigma, classic_gaussian_sigma
from dpcore.textbook.theorems import (
    Pair,
    Step,
    advanced_composition,
    approximate_losses,
    basic_composition,
    compare_theorems,
    discrete_gaussian_delta,
    discrete_gaussian_losses,
    gaussian_losses,
    group_approximate,
    laplace_losses,
    numeric_composition,
    optimal_composition,
    optimal_composition_delta,
    parallel_composition,
)

BAD = [-1.0, math.nan, math.inf, True, "1", None]
STEPS, LOSSES = [Step(rho=0.1)], [(laplace_losses(0.5), 1)]
COIN = Pair.of([Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)])

TAKES: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "basic, delta": (lambda bad: basic_composition([(0.1, bad)]), BAD),
    "advanced, epsilon": (lambda bad: advanced_composition([(bad, 0)], slack=1e-6), [0, *BAD]),
    "advanced, delta": (lambda bad: advanced_composition([(0.1, bad)], slack=1e-6), BAD),
    "advanced, slack": (lambda bad: advanced_composition([(0.1, 0)], slack=bad), [0, 1, *BAD]),
    "advanced, count": (lambda bad: advanced_composition({(0.1, 0): bad}, slack=1e-6), [0, 1.5, *BAD]),
    "advanced, parts": (lambda bad: advanced_composition(bad, slack=1e-6), [[]]),
    "group, epsilon": (lambda bad: group_approximate(bad, delta=1e-9, size=2), [0, *BAD]),
    "group, delta": (lambda bad: group_approximate(0.1, delta=bad, size=2), BAD),
    "group, size": (lambda bad: group_approximate(1.0, delta=1e-9, size=bad), [0, 1.5, *BAD]),
    "parallel, amounts": (
        lambda bad: parallel_composition(bad, neighbours=Neighbours.ADD_REMOVE),
        [[], [1, 0], [-1.0]],
    ),
    "parallel, neighbours": (lambda bad: parallel_composition([1], neighbours=bad), ["add-remove", None]),
    "optimal, epsilon": (lambda bad: optimal_composition(bad, delta=0, count=2, total_delta=1e-6), [9.9e-13, *BAD]),
    "optimal, delta": (lambda bad: optimal_composition(0.1, delta=bad, count=2, total_delta=1e-6), [1, *BAD]),
    "optimal, count": (lambda bad: optimal_composition(0.1, delta=0, count=bad, total_delta=1e-6), [0, 10**7, *BAD]),
    "optimal, total": (lambda bad: optimal_composition(0.1, delta=0, count=2, total_delta=bad), [0, *BAD]),
    "optimal, total epsilon": (lambda bad: optimal_composition_delta(0.1, delta=0, count=2, total_epsilon=bad), BAD),
    "analytic, epsilon": (lambda bad: analytic_gaussian_sigma(bad, delta=1e-6, l2_squared=1), [0, *BAD]),
    "analytic, delta": (lambda bad: analytic_gaussian_sigma(0.5, delta=bad, l2_squared=1), [0, *BAD]),
    "analytic, l2": (lambda bad: analytic_gaussian_sigma(0.5, delta=1e-6, l2_squared=bad), [0, *BAD]),
    "classic, epsilon": (lambda bad: classic_gaussian_sigma(bad, delta=1e-6, l2_squared=1), [0, 1, 1.5, *BAD]),
    "classic, delta": (lambda bad: classic_gaussian_sigma(0.5, delta=bad, l2_squared=1), [0, *BAD]),
    "discrete, sigma": (lambda bad: discrete_gaussian_delta(0.5, sigma_squared=bad, shift=1), [0, *BAD]),
    "discrete, shift": (lambda bad: discrete_gaussian_delta(0.5, sigma_squared=1, shift=bad), [0, 1.5, *BAD]),
    "numeric, parts": (lambda bad: numeric_composition(bad, delta=1e-6), [[], [(gaussian_losses(0.5), 10**6 + 1)]]),
    "numeric, delta": (lambda bad: numeric_composition(LOSSES, delta=bad), [0, 5e-12, *BAD]),
    "losses, (epsilon, delta)": (lambda bad: approximate_losses(bad, delta=0), [0, 1e12, *BAD]),
    "losses, Laplace": (laplace_losses, [0, 1e12, *BAD]),
    "losses, Gaussian": (gaussian_losses, [0, 1e12, *BAD]),
    "losses, discrete Gaussian": (discrete_gaussian_losses, [0, 1e12, *BAD]),
    "pair": (lambda bad: Pair.of(*bad), [([0.5, 0.6], [0.5, 0.5]), ([1], [0.5, 0.5]), ([], []), ({"a": 1}, [1])]),
    "pair, probability": (lambda bad: Pair.of([bad], [1]), BAD),
    "pair, order": (lambda bad: COIN.renyi(order=bad), [1, -1.0, math.nan]),
    "pair, epsilon": (lambda bad: COIN.delta(epsilon=bad), [-1.0, math.nan]),
    "pair, delta": (lambda bad: COIN.epsilon(delta=bad), [1, -0.1]),
    "pair, factor": (lambda bad: COIN.excess(factor=bad), [0, *BAD]),
    "pair, rule": (COIN.after, [{0: [1]}]),
    "step": (
        lambda bad: Step(**bad),
        [
            *({}, {"count": 3}, {"epsilon": 0.1}, {"delta": 0.1}, {"epsilon": 0.1, "delta": -1}),
            *({"epsilon": 0, "delta": 0}, {"rho": math.nan}, {"mu_squared": math.inf}, {"rho": "1"}),
            *({"rho": 0.1, "count": 0}, {"rho": 0.1, "count": True}),
        ],
    ),
    "history": (lambda bad: compare_theorems(bad, delta=1e-6, adaptive=False), [[]]),
    "history, delta": (lambda bad: compare_theorems(STEPS, delta=bad, adaptive=False), [1, *BAD]),
    "history, adaptive": (lambda bad: compare_theorems(STEPS, delta=1e-6, adaptive=bad), ["no", None, 1]),
    "history, cap": (
        lambda bad: compare_theorems(STEPS, delta=1e-6, adaptive=True, cap=Cap(Currency.ZCDP, bad)),
        [0, 1.0 * AMOUNT_OF_ONE],
    ),
}
"""What each function takes, and what it must not."""


@pytest.mark.parametrize("what", TAKES)
def test_what_means_nothing_is_refused(what: str) -> None:
    call, values = TAKES[what]
    for bad in values:
        with pytest.raises(UsageError):
            call(bad)
