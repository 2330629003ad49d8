"""What every mechanism must keep: its price, its description and what an amount or a promise buys. The catalogue lists them all."""

import json
import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import KINDS, from_description
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection
from tests.contracts.mechanism_catalogue import PURCHASES, QUESTIONS, Purchase, every_kind

AMOUNTS = (123_456_789_000, 17 * AMOUNT_OF_ONE + 2)


@pytest.fixture(params=PURCHASES)
def purchase(request: pytest.FixtureRequest) -> Purchase:
    return PURCHASES[request.param]


def read_back(description: dict[str, Any], purchase: Purchase) -> Any:
    return from_description(description, kinds=(*KINDS, purchase.kind))


def test_every_mechanism_is_bought_here() -> None:
    assert {purchase.kind for purchase in PURCHASES.values()} == every_kind()


def test_an_amount_buys_the_least_noise_that_it_pays_for_and_anybody_can_account_for_it_again(
    purchase: Purchase,
) -> None:
    for currency in purchase.currencies:
        for amount in AMOUNTS:
            bought = purchase.bought(amount, currency)
            price = bought.price(currency)
            assert isinstance(price, int)
            assert amount * (1 - 1e-9) - 2 <= price <= amount
            better = math.nextafter(getattr(bought, purchase.noise), purchase.less)
            assert replace(bought, **{purchase.noise: better}).price(currency) > amount
            described = read_back(json.loads(json.dumps(bought.describe())), purchase)
            assert described == bought
            assert described.price(currency) == price


def test_more_budget_never_buys_more_noise(purchase: Purchase) -> None:
    for currency in purchase.currencies:
        noises = [getattr(purchase.bought(10**power, currency), purchase.noise) for power in (10, 11, 13, 15)]
        assert noises == sorted(noises, reverse=purchase.less == 0.0)


def test_what_is_no_amount_buys_nothing(purchase: Purchase) -> None:
    for amount in (0, -1, True, 1.0, None):
        with pytest.raises(UsageError, match="at least 1"):
            purchase.bought(amount, purchase.currencies[0])


def test_a_description_that_was_changed_is_refused_and_a_mechanism_does_not_change(purchase: Purchase) -> None:
    bought = purchase.bought(10**11, purchase.currencies[0])
    description = bought.describe()
    for key in description:
        for changed in (description | {key: None}, {name: part for name, part in description.items() if name != key}):
            with pytest.raises(UsageError):
                read_back(changed, purchase)
    with pytest.raises(UsageError, match="does not match its parameters"):
        read_back(description | {"seed": 1}, purchase)
    with pytest.raises(FrozenInstanceError):
        setattr(bought, purchase.noise, 1.0)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_promise_of_epsilon_buys_what_its_amount_does(question: str) -> None:
    purchase = QUESTIONS[question]

    def promised(epsilon: float, **promise: Any) -> Any:
        return purchase.kind.for_epsilon(epsilon, **promise, **purchase.parameters)

    assert promised(0.5, delta=0) == purchase.bought(AMOUNT_OF_ONE // 2, Currency.PURE)
    for currency in (Currency.ZCDP, Currency.GDP):
        _, amount = budget_of(0.5, delta=1e-9, currency=currency)
        assert promised(0.5, delta=1e-9, currency=currency) == purchase.bought(amount, currency)
    assert promised(0.5, delta=1e-9) == promised(0.5, delta=1e-9, currency=Currency.ZCDP)
    for epsilon, delta in ((0, 0), (math.nan, 0), (math.inf, 1e-9), (1.0, 1), (1.0, -1.0), (1.0, math.nan)):
        with pytest.raises(UsageError):
            promised(epsilon, delta=delta)
    bought = promised(1.0, delta=0)
    heavy = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, row_weight=2)
    for protection, said in ((None, "must be a Protection"), ("row", "must be a Protection"), (heavy, "weight column")):
        with pytest.raises(UsageError, match=said):
            replace(bought, protection=protection)


@pytest.mark.parametrize("name", ["continuous-laplace", "", None, 3])
def test_an_unknown_mechanism_is_refused(name: object) -> None:
    with pytest.raises(UsageError, match="does not know this mechanism"):
        from_description({"name": name, "scale": "1.0"})


@pytest.mark.parametrize("sigma", ["nan", "inf", "0.0", "-1.0", "x", 1.0, "1.00"])
def test_a_recorded_number_must_read_back_as_the_very_same_text(sigma: object) -> None:
    description = PURCHASES["gaussian"].bought(10**12, Currency.ZCDP).describe()
    with pytest.raises(UsageError):
        from_description(description | {"sigma": sigma})


def test_a_currency_by_another_name_is_never_taken_for_a_cheaper_one() -> None:
    mechanism = PURCHASES["laplace"].bought(10**12, Currency.PURE)
    assert mechanism.price("pure") == mechanism.price(Currency.PURE)
    with pytest.raises(ValueError, match="renyi"):
        mechanism.price("renyi")
