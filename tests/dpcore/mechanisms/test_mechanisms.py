"""The mechanisms together: reading them back, and what loading them costs."""

import subprocess
import sys

import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    RoundedGaussian,
    from_description,
)
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Sensitivity


@pytest.mark.parametrize("name", ["continuous-laplace", "", None, 3])
def test_an_unknown_mechanism_is_refused(name):
    with pytest.raises(UsageError, match="does not know this mechanism"):
        from_description({"name": name, "scale": "1.0"})


@pytest.mark.parametrize("sigma", ["nan", "inf", "0.0", "-1.0", "x", 1.0, "1.00"])
def test_a_recorded_number_must_read_back_as_the_very_same_text(sigma):
    description = DiscreteGaussian(scale=1.0, sensitivity=Sensitivity(1, 1, 1)).describe()
    with pytest.raises(UsageError):
        from_description({**description, "sigma": sigma})


def test_a_currency_by_another_name_is_never_taken_for_a_cheaper_one():
    mechanism = from_description({"name": "discrete-laplace", "scale": "4.0", "l1": 1, "l2_squared": 1, "linf": 1})
    assert mechanism.price("pure") == mechanism.price(Currency.PURE)
    with pytest.raises(ValueError, match="renyi"):
        mechanism.price("renyi")


PAIRS = [
    (DiscreteLaplace, Currency.PURE),
    (DiscreteLaplace, Currency.ZCDP),
    (DiscreteLaplace, Currency.GDP),
    (DiscreteGaussian, Currency.ZCDP),
    (RoundedGaussian, Currency.ZCDP),
    (RoundedGaussian, Currency.GDP),
    (ExponentialMechanism, Currency.PURE),
    (ExponentialMechanism, Currency.ZCDP),
    (ExponentialMechanism, Currency.GDP),
]


@pytest.mark.parametrize(("kind", "currency"), PAIRS)
def test_whoever_accounts_again_never_finds_more_than_was_paid(kind, currency):
    sensitivities = [1, 12] if kind is ExponentialMechanism else [Sensitivity(1, 1, 1), Sensitivity(12, 72, 6)]
    for sensitivity in sensitivities:
        for amount in (7 * 10**5, 999_999_999, AMOUNT_OF_ONE // 3, 17 * AMOUNT_OF_ONE + 1):
            mechanism = kind.for_amount(amount, currency=currency, sensitivity=sensitivity)
            assert from_description(mechanism.describe()).price(currency) <= amount


def test_nothing_that_is_priced_or_drawn_needs_opendp():
    program = """
import sys
sys.modules["opendp"] = None  # any import of it fails
import numpy as np
from dpcore.privacy.accounting import Currency
from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, ExponentialMechanism, Flavour
from dpcore.privacy.protection import Sensitivity
one, counts = Sensitivity(1, 1, 1), np.arange(10)
DiscreteLaplace.for_amount(10**11, currency=Currency.ZCDP, sensitivity=one).draw(counts)
DiscreteLaplace(scale=1e6, sensitivity=one).draw(counts)
DiscreteGaussian(scale=1e6, sensitivity=one).draw(counts)
for flavour in Flavour:
    ExponentialMechanism(epsilon=1.0, sensitivity=1, flavour=flavour).draw(counts)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
