"""Filters keep their cap whatever is chosen on the way, and two of them at once keep nothing."""

import copy
import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import BudgetRefused, UsageError
from dpcore.privacy.accounting import (
    AMOUNT_OF_ONE,
    Currency,
    PrivacyFilter,
    budget_of,
    epsilon_of,
    gaussian_zcdp,
    gdp_to_delta,
    pure_zcdp,
    spend_amount,
)


@given(st.sampled_from(Currency), st.integers(1, 10**6), st.lists(st.integers(1, 10**6), max_size=30))
def test_it_lets_through_what_fits_and_never_more_than_its_cap(currency, cap, charges):
    spending, spent = PrivacyFilter(cap=cap, currency=currency), 0
    for charge in charges:
        if spent + charge <= cap:
            spending.spend(charge)
            spent += charge
        else:
            with pytest.raises(BudgetRefused) as refusal:
                spending.spend(charge)
            assert refusal.value.difference == spent + charge - cap
        assert (spending.spent, spending.remaining) == (spent, cap - spent)


def test_threads_together_get_no_more_than_the_cap():
    spending = PrivacyFilter(cap=1000, currency=Currency.ZCDP)

    def ask(_: int) -> bool:
        try:
            spending.spend(3)
        except BudgetRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        granted = sum(pool.map(ask, range(2000)))
    assert (granted, spending.remaining) == (333, 1)


@pytest.mark.parametrize("bad", [0, -1, 1.0, math.nan, True, "1", None, 10**30])
def test_a_cap_or_a_charge_that_is_no_amount_is_refused_and_nothing_is_spent(bad):
    with pytest.raises(UsageError):
        PrivacyFilter(cap=bad, currency=Currency.PURE)
    spending = PrivacyFilter(cap=AMOUNT_OF_ONE, currency=Currency.PURE)
    with pytest.raises(UsageError):
        spending.spend(bad)
    assert spending.spent == 0


def test_its_promise_is_that_of_its_whole_cap():
    for currency in (Currency.ZCDP, Currency.GDP):
        _, cap = budget_of(1.0, delta=1e-6, currency=currency)
        spending = PrivacyFilter(cap=cap, currency=currency)
        spending.spend(1)
        assert spending.epsilon(delta=1e-6) == epsilon_of(cap, currency=currency, delta=1e-6) <= 1.0
        with pytest.raises(UsageError, match="above 0"):
            spending.epsilon(delta=0)
    assert PrivacyFilter(cap=AMOUNT_OF_ONE, currency=Currency.PURE).epsilon(delta=0) == 1.0
    with pytest.raises(UsageError, match="at a delta 0"):
        PrivacyFilter(cap=AMOUNT_OF_ONE, currency=Currency.PURE).epsilon(delta=1e-6)


@given(st.integers(1, 10**18))
def test_a_pure_promise_is_rounded_up(cap):
    assert Fraction(PrivacyFilter(cap=cap, currency=Currency.PURE).epsilon(delta=0)) >= Fraction(cap, AMOUNT_OF_ONE)


def test_a_promise_rounded_to_the_nearest_float_would_be_too_small():
    """The control: there are caps whose nearest float is below them."""
    assert any(Fraction(cap / AMOUNT_OF_ONE) < Fraction(cap, AMOUNT_OF_ONE) for cap in range(1, 20))


@pytest.mark.parametrize(
    "twice", [copy.copy, copy.deepcopy, pickle.dumps, replace, lambda spending: spending.__replace__(cap=2)]
)
def test_a_filter_cannot_be_had_twice(twice):
    spending = PrivacyFilter(cap=1000, currency=Currency.PURE)
    with pytest.raises(TypeError, match=r"its cap may be spent once|dataclass instances"):
        twice(spending)
    with pytest.raises(TypeError, match="its cap may be spent once"):
        copy.copy(spending)
    spending.spend(1000)
    assert spending.remaining == 0


@pytest.mark.parametrize(("name", "value"), [("cap", 10**6), ("currency", Currency.ZCDP), ("spent", 0), ("more", 1)])
def test_nothing_of_a_filter_can_be_set(name, value):
    spending = PrivacyFilter(cap=1000, currency=Currency.PURE)
    spending.spend(1)
    with pytest.raises(AttributeError):
        setattr(spending, name, value)
    assert repr(spending) == "PrivacyFilter(cap=1000, currency=pure, spent=1)"


def test_a_forked_process_cannot_spend_the_cap_again(monkeypatch):
    spending = PrivacyFilter(cap=1000, currency=Currency.PURE)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "getpid", lambda: -1)
        with pytest.raises(UsageError, match="another process"):
            spending.spend(1)
    spending.spend(1)  # the control: here it can
    assert spending.spent == 1


def test_to_let_a_charge_pass_if_either_of_two_filters_does_breaks_the_promise_of_both():
    """Both promise epsilon 1 at delta 1e-6; what passes by either is a thousand times above that delta."""
    epsilon, delta = 1.0, 1e-6
    pure, zcdp = (
        PrivacyFilter(cap=cap, currency=currency)
        for currency, cap in (budget_of(epsilon, delta=0), budget_of(epsilon, delta=delta))
    )
    sigma = math.sqrt(AMOUNT_OF_ONE / (2 * zcdp.cap)) * (1 + 1e-9)
    response = {Currency.PURE: AMOUNT_OF_ONE, Currency.ZCDP: spend_amount(pure_zcdp(1.0))}
    noise = {Currency.ZCDP: spend_amount(gaussian_zcdp(l2_squared=1, sigma=sigma))}
    for charges in (response, noise):
        passed = 0
        for spending in (pure, zcdp):
            if spending.currency in charges and charges[spending.currency] <= spending.remaining:
                spending.spend(charges[spending.currency])
                passed += 1
        assert passed == 1
    true = math.e / (1 + math.e)
    mu_squared = 1 / sigma**2
    lost = true * gdp_to_delta(mu_squared, epsilon=0) + (1 - true) * gdp_to_delta(mu_squared, epsilon=2 * epsilon)
    assert lost > 1000 * delta


def test_one_filter_for_both_refuses_the_second():
    _, cap = budget_of(1.0, delta=1e-6)
    spending = PrivacyFilter(cap=cap, currency=Currency.ZCDP)
    spending.spend(cap)
    with pytest.raises(BudgetRefused, match="ask for less"):
        spending.spend(spend_amount(pure_zcdp(0.001)))
