"""The currency of a new account: that of the least noise, unless its noise would be too wide to draw."""

from itertools import product

import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.noise import LARGEST_SIGMA
from dpcore.mechanisms.pricing import MANY_ROWS, SMALL_PART, currency_for, marginal_noise
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection

ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)


def chosen(epsilon: float, *, delta: float = 1e-9, unit: str = "row") -> Currency:
    return currency_for(epsilon, delta=delta, unit=unit, neighbours=Neighbours.ADD_REMOVE)


@pytest.mark.parametrize(("epsilon", "delta"), [*product((0.1, 1.0, 10.0), (1e-3, 1e-9, 1e-30))])
def test_the_usual_currency_has_the_least_noise_for_the_same_promise(epsilon: float, delta: float) -> None:
    noise = {}
    for currency in (Currency.ZCDP, Currency.GDP):
        _, amount = budget_of(epsilon, delta=delta, currency=currency)
        noise[currency] = marginal_noise(amount // SMALL_PART, currency=currency, protection=ROW).standard_deviation
    assert noise[chosen(epsilon, delta=delta)] == min(noise.values())


def test_without_delta_it_is_pure_epsilon() -> None:
    assert chosen(1.0, delta=0.0) is Currency.PURE


def test_a_budget_whose_small_parts_gaussian_dp_has_no_noise_for_is_counted_in_zcdp() -> None:
    assert (chosen(0.5), chosen(0.5, unit="patient")) == (Currency.GDP, Currency.ZCDP)
    _, amount = budget_of(0.5, delta=1e-9, currency=Currency.GDP)
    patient = Protection(unit="patient", rows_per_unit=MANY_ROWS, neighbours=Neighbours.ADD_REMOVE)
    with pytest.raises(UsageError, match=f"at most {LARGEST_SIGMA:,.0f}"):
        marginal_noise(amount // SMALL_PART, currency=Currency.GDP, protection=patient)
