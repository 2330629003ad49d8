"""Discrete Laplace noise keeps the contract, and its prices are the ones that were proved."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.mechanisms import DiscreteLaplace
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, pure_gdp, spend_amount
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.textbook.theorems import laplace_zcdp
from tests.contracts.mechanism import NoiseContract


class TestDiscreteLaplace(NoiseContract):
    kind = DiscreteLaplace
    currencies = (Currency.PURE, Currency.ZCDP, Currency.GDP)
    less_noise = ("scale", 0.0)

    def weight(self, k, scale):
        return np.exp(-np.abs(k) / scale)


def test_its_pure_price_is_l1_over_scale_rounded_up():
    sensitivity = Protection(unit="id", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE).sensitivity
    assert DiscreteLaplace(scale=7.0, sensitivity=sensitivity).price(Currency.PURE) == math.ceil(
        Fraction(6, 7) * AMOUNT_OF_ONE
    )


@pytest.mark.parametrize("l1", [1, 6, 10**9])
def test_its_price_in_gaussian_privacy_is_that_of_its_pure_epsilon(l1):
    mechanism = DiscreteLaplace(scale=7.0 * l1, sensitivity=Sensitivity(l1, l1 * l1, l1))
    assert mechanism.price(Currency.GDP) == spend_amount(pure_gdp(Fraction(1, 7)))
    bought = DiscreteLaplace.for_amount(AMOUNT_OF_ONE, currency=Currency.GDP, sensitivity=mechanism.sensitivity)
    assert AMOUNT_OF_ONE * (1 - 1e-9) < bought.price(Currency.GDP) <= AMOUNT_OF_ONE


@pytest.mark.parametrize("scale", [0.5, 2.0, 20.0])
def test_its_zcdp_price_covers_the_exact_divergence_which_the_continuous_formula_does_not(scale):
    k = np.arange(-2000, 2001)
    p = np.exp(-np.abs(k) / scale)
    divergence = float((p / p.sum() * (np.abs(k - 1) - np.abs(k))).sum() / scale)
    price = DiscreteLaplace(scale=scale, sensitivity=Sensitivity(1, 1, 1)).price(Currency.ZCDP)
    assert price == pytest.approx(divergence * AMOUNT_OF_ONE, rel=1e-9)
    assert price > spend_amount(laplace_zcdp(1 / scale))


def test_replacing_one_row_costs_twice_what_adding_one_costs_in_zcdp():
    charges = [
        DiscreteLaplace(scale=5.0, sensitivity=Protection(unit="row", rows_per_unit=1, neighbours=n).sensitivity).price(
            Currency.ZCDP
        )
        for n in (Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE)
    ]
    assert abs(charges[1] - 2 * charges[0]) <= 1
