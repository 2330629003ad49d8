"""Rounded Gaussian noise is post-processing of continuous noise; calibrated to (epsilon, delta), it needs no more noise than it must."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import UsageError
from dpcore.mechanisms import DiscreteGaussian, RoundedGaussian
from dpcore.mechanisms.rounded import LARGEST_SIGMA, analytic_gaussian, classic_gaussian
from dpcore.mechanisms.sampling.inversion import has_table
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, gdp_to_delta
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from tests.contracts.mechanism import NoiseContract

ONE, ROOT_TWO = Sensitivity(1, 1, 1), Sensitivity(2, 2, 1)
VECTORS = json.loads((Path(__file__).parents[2] / "vectors.json").read_text())["vectors"]
ANALYTIC = [vector for vector in VECTORS if vector["id"].startswith("analytic_gaussian ")]
CLASSIC = "classic sqrt(2 ln(1.25/delta)) D/eps (valid eps<=1)"


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


def of_vector(vector: dict) -> dict:
    inputs = vector["inputs"]
    sensitivity = {1.0: ONE, 2.0: ROOT_TWO}[round(inputs["l2_sensitivity"] ** 2, 9)]
    return {"epsilon": inputs["eps"], "delta": inputs["delta"], "sensitivity": sensitivity}


def shown_delta(mechanism: RoundedGaussian, epsilon: float) -> float:
    """The delta that its continuous noise has at epsilon, exactly and rounded up."""
    return gdp_to_delta(mechanism.sensitivity.l2_squared / Fraction(mechanism.sigma) ** 2, epsilon=epsilon)


@pytest.mark.parametrize("vector", ANALYTIC, ids=lambda vector: vector["id"])
def test_the_analytic_sigma_is_that_of_the_vectors(vector):
    assert len(ANALYTIC) == 6
    found = analytic_gaussian(**of_vector(vector))
    assert isinstance(found, RoundedGaussian)
    assert found.sigma == pytest.approx(vector["expected"], rel=vector["rel_tol"])


@pytest.mark.parametrize("vector", [v for v in ANALYTIC if v["inputs"]["eps"] < 1], ids=lambda vector: vector["id"])
def test_the_classic_sigma_is_that_of_the_vectors(vector):
    classic = classic_gaussian(**of_vector(vector))
    assert classic.sigma == pytest.approx(vector["cross_checks"][CLASSIC], rel=vector["rel_tol"])


@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 0.1, 0.6, 0.999])
@pytest.mark.parametrize("epsilon", [0.3, 0.999, 1.0, 10.0, 700.0])
def test_the_analytic_promise_is_kept_and_just_so(epsilon, delta):
    sigma = analytic_gaussian(epsilon=epsilon, delta=delta, sensitivity=ONE).sigma
    assert gdp_to_delta(1 / Fraction(sigma) ** 2, epsilon=epsilon) <= delta
    assert gdp_to_delta(1 / Fraction(sigma * 0.9999) ** 2, epsilon=epsilon) > delta


@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 0.1, 0.6, 0.999])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 0.999, math.nextafter(1.0, 0.0)])
def test_the_classic_promise_is_kept_with_noise_to_spare(epsilon, delta):
    classic = classic_gaussian(epsilon=epsilon, delta=delta, sensitivity=ROOT_TWO)
    assert shown_delta(classic, epsilon) <= delta
    assert classic.sigma > analytic_gaussian(epsilon=epsilon, delta=delta, sensitivity=ROOT_TWO).sigma


def test_the_classic_formula_used_beyond_its_limit_breaks_the_promise_and_is_refused():
    """The control: without the rule, a check by the exact profile finds it out."""
    needed = analytic_gaussian(epsilon=10.0, delta=1e-10, sensitivity=ONE)
    too_little = RoundedGaussian(sigma=math.sqrt(2 * math.log(1.25e10)) / 10, sensitivity=ONE)
    assert too_little.sigma < needed.sigma
    assert shown_delta(too_little, 10.0) > 1e-10 >= shown_delta(needed, 10.0)
    with pytest.raises(UsageError, match="analytic_gaussian"):
        classic_gaussian(epsilon=10.0, delta=1e-10, sensitivity=ONE)


@pytest.mark.parametrize("calibrated", [classic_gaussian, analytic_gaussian])
def test_the_sensitivity_of_a_protection_scales_the_noise(calibrated):
    person = Protection(unit="person", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE)
    one, many = (calibrated(epsilon=0.5, delta=1e-6, sensitivity=s) for s in (ONE, person.sensitivity))
    assert many.sigma == pytest.approx(one.sigma * 3 * math.sqrt(2), rel=1e-12)
    assert many.sensitivity == person.sensitivity


@pytest.mark.parametrize("calibrated", [classic_gaussian, analytic_gaussian])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        *(({"epsilon": bad}, "epsilon") for bad in (0, -1.0, math.nan, math.inf, True, "1", None)),
        *(({"delta": bad}, "delta") for bad in (0, 0.0, 1, 2.0, -1e-9, math.nan, math.inf, True, None)),
        ({"sensitivity": Sensitivity(0, 0, 0)}, "sensitivity"),
        ({"epsilon": 1e-7}, "at most 19,999"),
    ],
)
def test_a_promise_that_means_nothing_is_refused(calibrated, change, said):
    with pytest.raises(UsageError, match=said):
        calibrated(**{"epsilon": 0.5, "delta": 1e-6, "sensitivity": ONE, **change})
