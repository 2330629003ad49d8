"""What a cap promises, also if it was raised in the light of answers: exact deltas of an analyst and a steward who play along."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from dpcore.errors import UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency, Promise, epsilon_of, promise_of, zcdp_to_epsilon

Floats = npt.NDArray[np.float64]
DELTA = 1e-6
FIRST = AMOUNT_OF_ONE // 10
RAISES = [FIRST * 2 ** (number / 2) for number in range(11)]
"""To how much the steward may raise the cap: from the first to 32 times it."""


def loss_beyond(epsilon: float, mean: Floats, rho: float) -> Floats:
    """Return E[(1 - e^(epsilon - L))_+] for a loss L that has a mean and comes from Gaussian noise of so much rho."""
    width, above = math.sqrt(2 * rho), mean - epsilon
    return ndtr(above / width) - np.exp(log_ndtr(above / width - width) + np.minimum(rho - above, 500))


def delta_of_raising(stated: Callable[[int], Promise], *, currency: Currency, raised_to: list[int]) -> float:
    """Return the exact delta that the stated epsilons need if a steward sees the loss of the whole first cap, and raises to the worst.

    The noise is Gaussian, so that the loss after rho is N(rho, 2 rho). The steward knows it, as whoever owns two tables does, and raises
    the cap to where the epsilon that is stated there is exceeded most. All of the raised cap is then spent by one more answer.
    """
    halved = 2 if currency is Currency.GDP else 1
    places, step = np.linspace(-12, 12, 9601, retstep=True)
    weights = step * np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi)
    first = FIRST / AMOUNT_OF_ONE / halved
    losses = first + math.sqrt(2 * first) * places
    worst = -np.expm1(np.minimum(stated(FIRST).epsilon - losses, 0))
    for cap in raised_to:
        more = (cap - FIRST) / AMOUNT_OF_ONE / halved
        worst = np.maximum(worst, loss_beyond(stated(cap).epsilon, losses + more, more))
    return float((worst * weights).sum())


@cache
def as_if_fixed(cap: int, currency: Currency) -> Promise:
    """The control: what the cap would promise if it had been fixed before the first answer."""
    return promise_of(Cap(currency, cap), delta=DELTA)


@pytest.mark.parametrize("currency", [Currency.ZCDP, Currency.GDP])
def test_a_steward_who_raises_when_it_pays_stays_within_what_is_promised(currency: Currency) -> None:
    caps = [round(cap) for cap in RAISES[1:]]

    def stated(cap: int) -> Promise:
        return promise_of(Cap(currency, cap, first=FIRST), delta=DELTA)

    needed = delta_of_raising(stated, currency=currency, raised_to=caps)
    assert needed <= stated(caps[-1]).delta
    for cap in caps:  # whoever may raise to this one at most needs no more than what is stated there
        up_to = [smaller for smaller in caps if smaller <= cap]
        assert delta_of_raising(stated, currency=currency, raised_to=up_to) <= stated(cap).delta


def test_the_epsilon_of_a_raised_cap_is_not_promised_at_one_delta_more_for_each_raise() -> None:
    """The control: after one raise to a cap of the steward's choice, (epsilon(cap), 2 delta) would be broken by half."""
    caps = [round(cap) for cap in RAISES[1:]]

    def stated(cap: int) -> Promise:
        return as_if_fixed(cap, Currency.GDP)

    assert delta_of_raising(stated, currency=Currency.GDP, raised_to=caps) > 3 * DELTA
    fixed = [delta_of_raising(stated, currency=Currency.GDP, raised_to=[cap]) for cap in caps[::4]]
    assert max(fixed) <= 2 * DELTA  # one cap that was named in advance: there the union bound holds


def test_the_epsilon_of_what_was_spent_is_broken_many_times_over() -> None:
    """The control: what was once stated, the epsilon of the sum so far, for an analyst who stops where it pays."""
    rhos = [float(rho) for rho in np.geomspace(1e-9, 1, 25)]
    so_far = [epsilon_of(round(2 * rho * AMOUNT_OF_ONE), currency=Currency.GDP, delta=DELTA) for rho in rhos]
    promised = [promise_of(Cap(Currency.GDP, 2 * AMOUNT_OF_ONE), delta=DELTA).epsilon] * len(rhos)
    assert delta_of_stopping(promised, rhos) <= 1.01 * DELTA
    assert delta_of_stopping(so_far, rhos) > 10 * DELTA


def delta_of_stopping(epsilons: list[float], rhos: list[float]) -> float:
    """Return the delta that is needed if an analyst sees a Gaussian loss grow and stops where the stated epsilon is exceeded most."""
    rises, weights = np.polynomial.hermite_e.hermegauss(61)
    places = np.linspace(-9, 9, 1801)

    def gain(epsilon: float, rho: float) -> Floats:
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


def test_whoever_raises_again_and_again_stays_within_what_is_promised_too() -> None:
    """A steward who may raise by a tenth after each answer: all of these raises together need what is stated at the last."""
    rhos = [FIRST / AMOUNT_OF_ONE * 1.1**number for number in range(16)]
    stated = [promise_of(Cap(Currency.ZCDP, round(rho * AMOUNT_OF_ONE), first=FIRST), delta=DELTA) for rho in rhos]
    assert stated[-1].delta == 2 * DELTA  # not 16 times
    assert delta_of_stopping([promise.epsilon for promise in stated], rhos) <= stated[-1].delta
    tight = [epsilon_of(round(2 * rho * AMOUNT_OF_ONE), currency=Currency.GDP, delta=DELTA) for rho in rhos]
    assert delta_of_stopping(tight, rhos) > 2 * DELTA  # the control


def test_a_deterministic_history_with_exact_fractions_in_pure_epsilon() -> None:
    """Randomized response, priced as its answers come: no outcome's ratio exceeds e^(its own sum), however caps were raised."""
    halves = Fraction(1, 2)
    worst = Fraction(0)

    def play(ratio: Fraction, spent: Fraction, cap: Fraction, depth: int) -> None:
        nonlocal worst
        worst = max(worst, ratio / Fraction(math.exp(float(spent))).limit_denominator(10**12))
        if depth == 0:
            return
        for odds in (Fraction(2), Fraction(3), Fraction(5, 4)):  # e^epsilon of the next answer, chosen by what was seen
            price = Fraction(math.log(odds)).limit_denominator(10**15) + Fraction(1, 10**12)
            raised = cap if spent + price <= cap else cap + price
            for told in (odds, 1 / odds):
                play(ratio * told, spent + price, raised, depth - 1)

    play(Fraction(1), Fraction(0), halves, 4)
    assert worst <= 1 + Fraction(1, 10**9)


def test_a_cap_that_was_not_raised_promises_its_own_epsilon() -> None:
    for currency in Currency:
        delta = 0.0 if currency is Currency.PURE else DELTA
        own = Promise(epsilon_of(AMOUNT_OF_ONE, currency=currency, delta=delta), delta)
        assert (
            promise_of(Cap(currency, AMOUNT_OF_ONE), delta=delta)
            == promise_of(Cap(currency, AMOUNT_OF_ONE, first=AMOUNT_OF_ONE), delta=delta)
            == own
        )


@pytest.mark.parametrize(("times", "deltas"), [(1.5, 1), (2, 1), (2.1, 2), (4, 2), (8, 2), (8.1, 3), (32, 3), (100, 4)])
@pytest.mark.parametrize("currency", [Currency.ZCDP, Currency.GDP])
def test_a_raise_costs_a_few_percent_and_a_delta_for_each_doubling_of_epsilon(
    currency: Currency, times: float, deltas: int
) -> None:
    cap = round(times * FIRST)
    raised = promise_of(Cap(currency, cap, first=FIRST), delta=DELTA)
    rho = Fraction(cap, 2 * AMOUNT_OF_ONE) if currency is Currency.GDP else Fraction(cap, AMOUNT_OF_ONE)
    fixed = zcdp_to_epsilon(rho, delta=DELTA)
    assert fixed <= raised.epsilon <= 1.07 * fixed
    assert raised.delta == pytest.approx((deltas + (currency is Currency.GDP)) * DELTA, rel=1e-15)


def test_pure_epsilon_is_its_cap_whatever_the_raises() -> None:
    assert promise_of(Cap(Currency.PURE, 3 * AMOUNT_OF_ONE, first=1), delta=0.0) == Promise(3.0, 0.0)


@settings(max_examples=60)
@given(st.integers(1, 10**12), st.integers(1, 10**4), st.sampled_from(Currency), st.floats(1e-15, 0.01))
def test_a_promise_rises_with_the_cap(first: int, times: int, currency: Currency, delta: float) -> None:
    """Where the next of the fixed orders takes over, at one delta more, the epsilon may be a little less."""
    at = 0.0 if currency is Currency.PURE else delta
    smaller, larger = (
        promise_of(Cap(currency, cap, first=first), delta=at) for cap in (first * times, first * (times + 1))
    )
    least = 0.99 if smaller.delta < larger.delta else 1.0
    assert least * smaller.epsilon <= larger.epsilon
    assert smaller.delta <= larger.delta <= 1


def test_a_group_has_what_its_members_have_together() -> None:
    raised = Cap(Currency.ZCDP, 3 * FIRST, first=FIRST)
    assert promise_of(raised, delta=DELTA, group=5) == promise_of(
        Cap(Currency.ZCDP, 75 * FIRST, first=25 * FIRST), delta=DELTA
    )


@pytest.mark.parametrize(
    "bad", [{"amount": 0}, {"amount": 1.5}, {"amount": True}, {"amount": 5, "first": 6}, {"amount": 5, "first": 0}]
)
def test_what_is_no_cap_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Cap(Currency.ZCDP, **bad)
