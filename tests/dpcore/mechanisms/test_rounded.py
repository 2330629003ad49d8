"""Rounded Gaussian noise keeps the contract, and is a function of continuous noise, which the discrete Gaussian is not."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import UsageError
from dpcore.mechanisms import DiscreteGaussian, RoundedGaussian
from dpcore.mechanisms.rounded import LARGEST_SIGMA
from dpcore.mechanisms.sampling.inversion import has_table
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Sensitivity
from tests.contracts.mechanism import NoiseContract

ONE = Sensitivity(1, 1, 1)


def masses(k: np.ndarray, sigma: float) -> np.ndarray:
    """The probability of each k: from the upper tail, where nothing cancels."""
    size = np.abs(k)
    return stats.norm.sf((size - 0.5) / sigma) - stats.norm.sf((size + 0.5) / sigma)


class TestRoundedGaussian(NoiseContract):
    kind = RoundedGaussian
    currencies = (Currency.GDP, Currency.ZCDP)
    less_noise = ("sigma", 0.0)

    def weight(self, k, scale):
        return masses(k, scale)

    def test_noise_too_wide_for_a_table_is_drawn_too(self):
        """It is refused instead: nothing else here draws it."""
        assert has_table(Shape.ROUNDED_GAUSSIAN, LARGEST_SIGMA)
        with pytest.raises(UsageError, match="at most 19,999"):
            self.at(math.nextafter(LARGEST_SIGMA, math.inf))

    def test_discrete_gaussian_noise_is_told_apart_where_the_two_differ(self):
        discrete = DiscreteGaussian(sigma=0.5, sensitivity=ONE).draw(np.zeros(self.draws, dtype=np.int64))
        assert self.agreement(self.noise(0.5), 0.5) > 1e-9
        assert self.agreement(discrete, 0.5) < 1e-9


def test_its_prices_are_exact_in_the_binary_value_of_sigma():
    mechanism = RoundedGaussian(sigma=0.1, sensitivity=Sensitivity(4, 8, 2))
    assert mechanism.price(Currency.GDP) == math.ceil(8 / Fraction(0.1) ** 2 * AMOUNT_OF_ONE)
    assert mechanism.price(Currency.ZCDP) == math.ceil(4 / Fraction(0.1) ** 2 * AMOUNT_OF_ONE)


def test_it_cannot_be_paid_for_in_pure_epsilon():
    with pytest.raises(UsageError, match="Laplace"):
        RoundedGaussian(sigma=3.0, sensitivity=ONE).price(Currency.PURE)
    with pytest.raises(UsageError, match="Laplace"):
        RoundedGaussian.for_amount(AMOUNT_OF_ONE, currency=Currency.PURE, sensitivity=ONE)


@pytest.mark.parametrize("currency", [Currency.GDP, Currency.ZCDP])
def test_an_amount_that_needs_wider_noise_is_refused_with_what_would_do(currency):
    sensitivity = Sensitivity(1000, 10**6, 1000)
    least = RoundedGaussian(sigma=LARGEST_SIGMA, sensitivity=sensitivity).price(currency)
    with pytest.raises(UsageError, match=f"at least {least} for this step"):
        RoundedGaussian.for_amount(least - 1, currency=currency, sensitivity=sensitivity)
    assert RoundedGaussian.for_amount(least, currency=currency, sensitivity=sensitivity).sigma <= LARGEST_SIGMA


def test_its_standard_deviation_is_that_of_its_masses_and_continuous_where_the_formula_changes():
    def deviation(sigma: float) -> float:
        return RoundedGaussian(sigma=sigma, sensitivity=ONE).standard_deviation

    k = np.arange(-200, 201)
    for sigma in (0.1, 0.3, 0.5, 1.0, 1.9, 2.0, 7.7):
        assert deviation(sigma) == pytest.approx(math.sqrt((k**2 * masses(k, sigma)).sum()), rel=1e-12)
    assert deviation(math.nextafter(2.0, 0.0)) == pytest.approx(deviation(2.0), rel=1e-14)
    assert deviation(0.01) == 0.0
    assert deviation(1000.0) > 1000.0


@pytest.mark.parametrize(("sigma", "moved"), [(0.3, 1), (0.5, 1), (0.5, 2), (1.0, 1), (1.0, 3), (3.0, 1), (3.0, 11)])
def test_no_test_of_its_outputs_beats_its_mu_and_one_of_the_discrete_gaussian_does(sigma, moved):
    """The likelihood ratio is monotone in both, so the best tests are cuts: the mu that each cut shows is compared."""
    k = np.arange(-40, 41)

    def shown(weights: np.ndarray) -> float:
        upper = np.cumsum(weights[::-1])[::-1] / weights.sum()
        here, there = upper[moved:], upper[:-moved]
        clear = (here > 1e-10) & (there < 1 - 1e-10)
        return float((stats.norm.ppf(there[clear]) - stats.norm.ppf(here[clear])).max())

    assert shown(masses(k, sigma)) <= moved / sigma * (1 + 1e-4)
    assert shown(masses(k, sigma)) >= moved / sigma * (1 - 1e-4)
    if moved == 1 and sigma <= 1:
        assert shown(np.exp(-0.5 * (k / sigma) ** 2)) > 1.01 * moved / sigma
