"""Promises as amounts, and amounts as promises, in each currency."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.privacy.accounting import (
    AMOUNT_OF_ONE,
    Currency,
    amount_of_group,
    budget_of,
    cap_amount,
    epsilon_of,
    epsilon_to_gdp,
    epsilon_to_zcdp,
    mu_of,
    zcdp_to_epsilon,
)

WITH_DELTA = [Currency.ZCDP, Currency.GDP]


def test_without_a_currency_the_delta_decides():
    assert budget_of(0.5, delta=0) == (Currency.PURE, AMOUNT_OF_ONE // 2)
    assert budget_of(0.5, delta=1e-9) == (Currency.ZCDP, cap_amount(epsilon_to_zcdp(0.5, delta=1e-9)))


def test_a_currency_that_goes_with_the_delta_is_taken():
    assert budget_of(0.5, delta=0, currency=Currency.PURE) == (Currency.PURE, AMOUNT_OF_ONE // 2)
    assert budget_of(0.5, delta=1e-9, currency=Currency.ZCDP) == budget_of(0.5, delta=1e-9)
    assert budget_of(0.5, delta=1e-9, currency=Currency.GDP) == (
        Currency.GDP,
        cap_amount(epsilon_to_gdp(0.5, delta=1e-9)),
    )


@pytest.mark.parametrize("delta", [1e-9, 0.5, -1e-9, math.nan, 1.0])
def test_pure_epsilon_with_a_delta_is_refused_with_a_way_out(delta):
    with pytest.raises(UsageError, match="choose zcdp or gdp"):
        budget_of(1.0, delta=delta, currency=Currency.PURE)


@pytest.mark.parametrize("currency", WITH_DELTA)
@pytest.mark.parametrize(
    ("delta", "way_out"), [(0, "choose pure"), (0.0, "choose pure"), (1.0, "below 1"), (-1, "delta")]
)
def test_the_other_currencies_need_a_delta_between_0_and_1(currency, delta, way_out):
    with pytest.raises(UsageError, match=way_out):
        budget_of(1.0, delta=delta, currency=currency)


@pytest.mark.parametrize("currency", WITH_DELTA)
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 1e9])
def test_an_epsilon_that_means_nothing_is_refused(currency, epsilon):
    with pytest.raises(UsageError):
        budget_of(epsilon, delta=1e-9, currency=currency)


@given(st.floats(min_value=1e-3, max_value=50), st.sampled_from([1e-12, 1e-6]), st.sampled_from(WITH_DELTA))
def test_a_whole_budget_stands_for_no_more_than_its_promise(epsilon, delta, currency):
    _, amount = budget_of(epsilon, delta=delta, currency=currency)
    assert epsilon * (1 - 1e-3) <= epsilon_of(amount, currency=currency, delta=delta) <= epsilon


def test_an_amount_stands_for_an_epsilon_in_its_own_currency():
    assert epsilon_of(0, currency=Currency.GDP, delta=1e-9) == 0.0
    assert epsilon_of(AMOUNT_OF_ONE // 2, currency=Currency.PURE, delta=0.0) == 0.5
    assert epsilon_of(AMOUNT_OF_ONE // 2, currency=Currency.ZCDP, delta=1e-9) == zcdp_to_epsilon(0.5, delta=1e-9)
    epsilons = [epsilon_of(AMOUNT_OF_ONE, currency=currency, delta=1e-9) for currency in Currency]
    assert epsilons[0] < epsilons[2] < epsilons[1]  # mu^2 = 1 is rho = 1/2, and somewhat less


@given(st.integers(1, 10**18))
def test_mu_is_the_root_of_its_amount_rounded_up(amount):
    assert amount <= mu_of(amount) ** 2 * AMOUNT_OF_ONE * (1 + 1e-15)
    assert mu_of(amount) == pytest.approx(math.sqrt(amount / AMOUNT_OF_ONE), rel=1e-15)


def test_nothing_spent_is_mu_0():
    assert mu_of(0) == 0.0


@given(st.integers(0, 10**18), st.integers(1, 1000))
def test_a_group_multiplies_epsilon_by_its_size_and_the_others_by_its_square(amount, size):
    assert amount_of_group(amount, currency=Currency.PURE, size=size) == size * amount
    for currency in WITH_DELTA:
        assert amount_of_group(amount, currency=currency, size=size) == size * size * amount


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_group_without_a_whole_size_is_refused(size):
    with pytest.raises(UsageError, match="size"):
        amount_of_group(1, currency=Currency.GDP, size=size)
