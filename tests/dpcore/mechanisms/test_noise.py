"""Noise on counts keeps the contract; its prices are the ones that were proved; calibrated to (epsilon, delta), it is no wider than it must."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import UsageError
from dpcore.mechanisms.noise import (
    KIND_OF_NOISE,
    LARGEST_SIGMA,
    LEAST_NOISE,
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    analytic_gaussian,
    bought_noise,
    classic_gaussian,
    one_number,
)
from dpcore.mechanisms.sampling.inversion import has_table
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, gdp_to_delta, pure_gdp, spend_amount
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.textbook.theorems import laplace_zcdp
from tests.contracts.mechanism import NoiseContract

ONE, ROOT_TWO = Sensitivity(1, 1, 1), Sensitivity(2, 2, 1)
VECTORS = json.loads((Path(__file__).parents[2] / "vectors.json").read_text())["vectors"]
ANALYTIC = [vector for vector in VECTORS if vector["id"].startswith("analytic_gaussian ")]
CLASSIC = "classic sqrt(2 ln(1.25/delta)) D/eps (valid eps<=1)"
FAR = one_number(50)


class TestDiscreteLaplace(NoiseContract):
    kind = DiscreteLaplace
    currencies = (Currency.PURE, Currency.ZCDP, Currency.GDP)
    less_noise = ("scale", 0.0)

    def weight(self, k, scale):
        return np.exp(-np.abs(k) / scale)


def test_the_pure_price_of_laplace_noise_is_l1_over_scale_rounded_up():
    sensitivity = Protection(unit="id", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE).sensitivity
    assert DiscreteLaplace(scale=7.0, sensitivity=sensitivity).price(Currency.PURE) == math.ceil(
        Fraction(6, 7) * AMOUNT_OF_ONE
    )


@pytest.mark.parametrize("l1", [1, 6, 10**9])
def test_the_price_of_laplace_noise_in_gaussian_privacy_is_that_of_its_pure_epsilon(l1):
    mechanism = DiscreteLaplace(scale=7.0 * l1, sensitivity=Sensitivity(l1, l1 * l1, l1))
    assert mechanism.price(Currency.GDP) == spend_amount(pure_gdp(Fraction(1, 7)))
    bought = DiscreteLaplace.for_amount(AMOUNT_OF_ONE, currency=Currency.GDP, sensitivity=mechanism.sensitivity)
    assert AMOUNT_OF_ONE * (1 - 1e-9) < bought.price(Currency.GDP) <= AMOUNT_OF_ONE


@pytest.mark.parametrize("scale", [0.5, 2.0, 20.0])
def test_the_zcdp_price_of_laplace_noise_covers_the_exact_divergence_which_the_continuous_formula_does_not(scale):
    k = np.arange(-2000, 2001)
    p = np.exp(-np.abs(k) / scale)
    divergence = float((p / p.sum() * (np.abs(k - 1) - np.abs(k))).sum() / scale)
    price = DiscreteLaplace(scale=scale, sensitivity=ONE).price(Currency.ZCDP)
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


class TestDiscreteGaussian(NoiseContract):
    kind = DiscreteGaussian
    currencies = (Currency.ZCDP,)
    less_noise = ("scale", 0.0)

    def weight(self, k, scale):
        return np.exp(-0.5 * (k / scale) ** 2)


def test_the_price_of_discrete_gaussian_noise_is_exact_in_the_binary_value_of_sigma():
    mechanism = DiscreteGaussian(scale=0.1, sensitivity=Sensitivity(4, 8, 2))
    assert mechanism.price(Currency.ZCDP) == math.ceil(8 / (2 * Fraction(0.1) ** 2) * AMOUNT_OF_ONE)


@pytest.mark.parametrize("kind", [DiscreteGaussian, RoundedGaussian])
def test_gaussian_noise_cannot_be_paid_for_in_pure_epsilon(kind):
    with pytest.raises(UsageError, match="Laplace"):
        kind(scale=3.0, sensitivity=ONE).price(Currency.PURE)
    with pytest.raises(UsageError, match="Laplace"):
        kind.for_amount(AMOUNT_OF_ONE, currency=Currency.PURE, sensitivity=ONE)


def test_discrete_gaussian_noise_cannot_be_paid_for_in_gaussian_privacy_whose_curve_its_outputs_do_not_keep():
    with pytest.raises(UsageError, match="RoundedGaussian"):
        DiscreteGaussian(scale=3.0, sensitivity=ONE).price(Currency.GDP)
    with pytest.raises(UsageError, match="RoundedGaussian"):
        DiscreteGaussian.for_amount(AMOUNT_OF_ONE, currency=Currency.GDP, sensitivity=ONE)


def test_the_standard_deviation_of_discrete_gaussian_noise_is_below_sigma_where_sigma_is_small_and_continuous_where_the_formula_changes():
    def deviation(sigma: float) -> float:
        return DiscreteGaussian(scale=sigma, sensitivity=ONE).standard_deviation

    assert deviation(0.5) < 0.47
    assert deviation(0.02) < 1e-100
    assert deviation(math.nextafter(2.0, 0.0)) == pytest.approx(2.0, rel=1e-14)


def masses(k: np.ndarray, sigma: float) -> np.ndarray:
    """The probability of each k: from the upper tail, where nothing cancels."""
    size = np.abs(k)
    return stats.norm.sf((size - 0.5) / sigma) - stats.norm.sf((size + 0.5) / sigma)


class TestRoundedGaussian(NoiseContract):
    kind = RoundedGaussian
    currencies = (Currency.GDP, Currency.ZCDP)
    less_noise = ("scale", 0.0)

    def weight(self, k, scale):
        return masses(k, scale)

    def test_noise_too_wide_for_a_table_is_drawn_too(self):
        """It is refused instead: nothing else here draws it."""
        assert has_table(Shape.ROUNDED_GAUSSIAN, LARGEST_SIGMA)
        with pytest.raises(UsageError, match="at most 19,999"):
            self.at(math.nextafter(LARGEST_SIGMA, math.inf))

    def test_discrete_gaussian_noise_is_told_apart_where_the_two_differ(self):
        discrete = DiscreteGaussian(scale=0.5, sensitivity=ONE).draw(np.zeros(self.draws, dtype=np.int64))
        assert self.agreement(self.noise(0.5), 0.5) > 1e-9
        assert self.agreement(discrete, 0.5) < 1e-9


def test_the_prices_of_rounded_gaussian_noise_are_exact_in_the_binary_value_of_sigma():
    mechanism = RoundedGaussian(scale=0.1, sensitivity=Sensitivity(4, 8, 2))
    assert mechanism.price(Currency.GDP) == math.ceil(8 / Fraction(0.1) ** 2 * AMOUNT_OF_ONE)
    assert mechanism.price(Currency.ZCDP) == math.ceil(4 / Fraction(0.1) ** 2 * AMOUNT_OF_ONE)


@pytest.mark.parametrize("currency", [Currency.GDP, Currency.ZCDP])
def test_an_amount_that_needs_wider_noise_is_refused_with_what_would_do(currency):
    sensitivity = Sensitivity(1000, 10**6, 1000)
    least = RoundedGaussian(scale=LARGEST_SIGMA, sensitivity=sensitivity).price(currency)
    with pytest.raises(UsageError, match=f"at least {least} for this step"):
        RoundedGaussian.for_amount(least - 1, currency=currency, sensitivity=sensitivity)
    assert RoundedGaussian.for_amount(least, currency=currency, sensitivity=sensitivity).scale <= LARGEST_SIGMA


def test_the_standard_deviation_of_rounded_gaussian_noise_is_that_of_its_masses_and_continuous_where_the_formula_changes():
    def deviation(sigma: float) -> float:
        return RoundedGaussian(scale=sigma, sensitivity=ONE).standard_deviation

    k = np.arange(-200, 201)
    for sigma in (0.1, 0.3, 0.5, 1.0, 1.9, 2.0, 7.7):
        assert deviation(sigma) == pytest.approx(math.sqrt((k**2 * masses(k, sigma)).sum()), rel=1e-12)
    assert deviation(math.nextafter(2.0, 0.0)) == pytest.approx(deviation(2.0), rel=1e-14)
    assert deviation(0.01) == 0.0
    assert deviation(1000.0) > 1000.0


@pytest.mark.parametrize(("sigma", "moved"), [(0.3, 1), (0.5, 1), (0.5, 2), (1.0, 1), (1.0, 3), (3.0, 1), (3.0, 11)])
def test_no_test_of_rounded_gaussian_noise_beats_its_mu_and_one_of_the_discrete_gaussian_does(sigma, moved):
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
    return gdp_to_delta(mechanism.sensitivity.l2_squared / Fraction(mechanism.scale) ** 2, epsilon=epsilon)


@pytest.mark.parametrize("vector", ANALYTIC, ids=lambda vector: vector["id"])
def test_the_analytic_sigma_is_that_of_the_vectors(vector):
    assert len(ANALYTIC) == 6
    found = analytic_gaussian(**of_vector(vector))
    assert isinstance(found, RoundedGaussian)
    assert found.scale == pytest.approx(vector["expected"], rel=vector["rel_tol"])


@pytest.mark.parametrize("vector", [v for v in ANALYTIC if v["inputs"]["eps"] < 1], ids=lambda vector: vector["id"])
def test_the_classic_sigma_is_that_of_the_vectors(vector):
    classic = classic_gaussian(**of_vector(vector))
    assert classic.scale == pytest.approx(vector["cross_checks"][CLASSIC], rel=vector["rel_tol"])


@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 0.1, 0.6, 0.999])
@pytest.mark.parametrize("epsilon", [0.3, 0.999, 1.0, 10.0, 700.0])
def test_the_analytic_promise_is_kept_and_just_so(epsilon, delta):
    sigma = analytic_gaussian(epsilon=epsilon, delta=delta, sensitivity=ONE).scale
    assert gdp_to_delta(1 / Fraction(sigma) ** 2, epsilon=epsilon) <= delta
    assert gdp_to_delta(1 / Fraction(sigma * 0.9999) ** 2, epsilon=epsilon) > delta


@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 0.1, 0.6, 0.999])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 0.999, math.nextafter(1.0, 0.0)])
def test_the_classic_promise_is_kept_with_noise_to_spare(epsilon, delta):
    classic = classic_gaussian(epsilon=epsilon, delta=delta, sensitivity=ROOT_TWO)
    assert shown_delta(classic, epsilon) <= delta
    assert classic.scale > analytic_gaussian(epsilon=epsilon, delta=delta, sensitivity=ROOT_TWO).scale


def test_the_classic_formula_used_beyond_its_limit_breaks_the_promise_and_is_refused():
    """The control: without the rule, a check by the exact profile finds it out."""
    needed = analytic_gaussian(epsilon=10.0, delta=1e-10, sensitivity=ONE)
    too_little = RoundedGaussian(scale=math.sqrt(2 * math.log(1.25e10)) / 10, sensitivity=ONE)
    assert too_little.scale < needed.scale
    assert shown_delta(too_little, 10.0) > 1e-10 >= shown_delta(needed, 10.0)
    with pytest.raises(UsageError, match="analytic_gaussian"):
        classic_gaussian(epsilon=10.0, delta=1e-10, sensitivity=ONE)


@pytest.mark.parametrize("calibrated", [classic_gaussian, analytic_gaussian])
def test_the_sensitivity_of_a_protection_scales_the_noise(calibrated):
    person = Protection(unit="person", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE)
    one, many = (calibrated(epsilon=0.5, delta=1e-6, sensitivity=s) for s in (ONE, person.sensitivity))
    assert many.scale == pytest.approx(one.scale * 3 * math.sqrt(2), rel=1e-12)
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


@pytest.mark.parametrize("currency", list(Currency))
def test_no_other_noise_that_the_currency_can_pay_is_narrower(currency):
    bought = bought_noise(AMOUNT_OF_ONE // 10, currency=currency, sensitivity=FAR, otherwise="")
    assert bought == LEAST_NOISE[currency].for_amount(AMOUNT_OF_ONE // 10, currency=currency, sensitivity=FAR)
    laplace = DiscreteLaplace.for_amount(AMOUNT_OF_ONE // 10, currency=currency, sensitivity=FAR)
    assert bought.standard_deviation <= laplace.standard_deviation
    assert bought.price(currency) <= AMOUNT_OF_ONE // 10


@pytest.mark.parametrize("shape", list(Shape))
def test_a_shape_is_the_name_of_its_mechanism(shape):
    noise = KIND_OF_NOISE[shape](scale=3.0, sensitivity=FAR)
    assert noise.name == shape == Shape(noise.name)
    with pytest.raises(UsageError, match="must be one of"):
        Shape("numpy")


def test_a_refusal_says_what_else_would_help():
    for amount in (0, 1):
        with pytest.raises(UsageError, match=r"for this step.*, or open a window"):
            bought_noise(amount, currency=Currency.GDP, sensitivity=FAR, otherwise="open a window")
