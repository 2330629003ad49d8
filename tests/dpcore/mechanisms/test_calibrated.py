"""Gaussian noise for (epsilon, delta) keeps its promise, needs no more than it must, and the classic bound knows its limits."""

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import RoundedGaussian
from dpcore.mechanisms.calibrated import analytic_gaussian, classic_gaussian
from dpcore.privacy.accounting import gdp_to_delta
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity

ONE, ROOT_TWO = Sensitivity(1, 1, 1), Sensitivity(2, 2, 1)
VECTORS = json.loads((Path(__file__).parents[2] / "vectors.json").read_text())["vectors"]
ANALYTIC = [vector for vector in VECTORS if vector["id"].startswith("analytic_gaussian ")]
CLASSIC = "classic sqrt(2 ln(1.25/delta)) D/eps (valid eps<=1)"


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
