"""Discrete Gaussian noise keeps the contract, and has no price in pure epsilon."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import DiscreteGaussian
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Sensitivity
from tests.contracts.mechanism import NoiseContract


class TestDiscreteGaussian(NoiseContract):
    kind = DiscreteGaussian
    currencies = (Currency.ZCDP,)
    less_noise = ("sigma", 0.0)

    def weight(self, k, scale):
        return np.exp(-0.5 * (k / scale) ** 2)


def test_its_price_is_exact_in_the_binary_value_of_sigma():
    mechanism = DiscreteGaussian(sigma=0.1, sensitivity=Sensitivity(4, 8, 2))
    assert mechanism.price(Currency.ZCDP) == math.ceil(8 / (2 * Fraction(0.1) ** 2) * AMOUNT_OF_ONE)


def test_it_cannot_be_paid_for_in_pure_epsilon():
    mechanism = DiscreteGaussian(sigma=3.0, sensitivity=Sensitivity(1, 1, 1))
    with pytest.raises(UsageError, match="Laplace"):
        mechanism.price(Currency.PURE)
    with pytest.raises(UsageError, match="Laplace"):
        DiscreteGaussian.for_amount(AMOUNT_OF_ONE, currency=Currency.PURE, sensitivity=Sensitivity(1, 1, 1))


def test_it_cannot_be_paid_for_in_gaussian_privacy_either_whose_curve_its_outputs_do_not_keep():
    with pytest.raises(UsageError, match="RoundedGaussian"):
        DiscreteGaussian(sigma=3.0, sensitivity=Sensitivity(1, 1, 1)).price(Currency.GDP)
    with pytest.raises(UsageError, match="RoundedGaussian"):
        DiscreteGaussian.for_amount(AMOUNT_OF_ONE, currency=Currency.GDP, sensitivity=Sensitivity(1, 1, 1))


def test_its_standard_deviation_is_below_sigma_where_sigma_is_small_and_continuous_where_the_formula_changes():
    def deviation(sigma: float) -> float:
        return DiscreteGaussian(sigma=sigma, sensitivity=Sensitivity(1, 1, 1)).standard_deviation

    assert deviation(0.5) < 0.47
    assert deviation(0.02) < 1e-100
    assert deviation(math.nextafter(2.0, 0.0)) == pytest.approx(2.0, rel=1e-14)
