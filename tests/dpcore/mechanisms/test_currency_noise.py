"""Each currency has the noise that it buys the least of, and a noise is known by its name and scale."""

import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import DiscreteLaplace
from dpcore.mechanisms.currency_noise import LEAST_NOISE, NoiseKind, bought_noise, kind_in, one_number
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency

FAR = one_number(50)


@pytest.mark.parametrize("currency", list(Currency))
def test_no_other_noise_that_the_currency_can_pay_is_narrower(currency):
    kind, scale = bought_noise(AMOUNT_OF_ONE // 10, currency=currency, sensitivity=FAR, otherwise="")
    bought = kind.at(scale, sensitivity=FAR)
    assert bought == LEAST_NOISE[currency].for_amount(AMOUNT_OF_ONE // 10, currency=currency, sensitivity=FAR)
    laplace = DiscreteLaplace.for_amount(AMOUNT_OF_ONE // 10, currency=currency, sensitivity=FAR)
    assert bought.standard_deviation <= laplace.standard_deviation
    assert bought.price(currency) <= AMOUNT_OF_ONE // 10


@pytest.mark.parametrize("kind", list(NoiseKind))
def test_a_kind_is_the_name_of_its_mechanism(kind):
    noise = kind.at(3.0, sensitivity=FAR)
    assert noise.name == kind == kind_in({"noise": noise.name})
    assert noise.sensitivity == FAR
    with pytest.raises(UsageError, match="must be one of"):
        kind_in({"noise": "numpy"})


def test_a_refusal_says_what_else_would_help():
    for amount in (0, 1):
        with pytest.raises(UsageError, match=r"for this step.*, or open a window"):
            bought_noise(amount, currency=Currency.GDP, sensitivity=FAR, otherwise="open a window")
