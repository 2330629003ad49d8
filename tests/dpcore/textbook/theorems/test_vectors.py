"""All reference values within their tolerances, never on the unsafe side, by checks that wrong formulas fail."""

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpcore.privacy.accounting import (
    Currency,
    amount_of_group,
    epsilon_to_zcdp,
    exponential_zcdp,
    gaussian_gdp,
    gaussian_zcdp,
    gdp_to_delta,
    gdp_to_epsilon,
    pure_zcdp,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from dpcore.textbook.gaussian import analytic_gaussian_sigma
from dpcore.textbook.theorems import (
    advanced_composition,
    approximate_losses,
    basic_composition,
    discrete_gaussian_delta,
    gaussian_losses,
    group_approximate,
    laplace_losses,
    laplace_zcdp,
    numeric_composition,
    optimal_composition,
    optimal_composition_delta,
)

PATH = Path(__file__).parents[3] / "vectors.json"
SHA256 = "3fc5a53548d5f2b7cd65d6cd32bf5a986023c089f014be6547c8cbc8bb6043aa"
VECTORS = json.loads(PATH.read_text(encoding="utf-8"))["vectors"]

Formula = Callable[[dict[str, Any]], Any]


def optimal(i: dict[str, Any]) -> float:
    return optimal_composition(i["eps"], delta=i["delta"], count=i["k"], total_delta=i["total_delta"])


SPENDS: dict[str, Formula] = {
    "zcdp_to_eps": lambda i: zcdp_to_epsilon(i["rho"], delta=i["delta"]),
    "zcdp_to_delta": lambda i: zcdp_to_delta(i["rho"], epsilon=i["eps"]),
    "laplace_rho": lambda i: laplace_zcdp(i["eps"]),
    "pure_dp_rho": lambda i: pure_zcdp(i["eps"]),
    "expmech_rho": lambda i: exponential_zcdp(i["eps"]),
    "gaussian_rho": lambda i: gaussian_zcdp(l2_squared=round(i["l2"] ** 2), sigma=i["sigma"]),
    "group_zcdp": lambda i: amount_of_group(Fraction(i["rho"]), currency=Currency.ZCDP, size=i["k"]),
    "group_approx": lambda i: group_approximate(i["eps"], delta=i["delta"], size=i["k"]),
    "mixed": lambda i: zcdp_to_epsilon(sum(map(Fraction, i["parts"])), delta=i["delta"]),
    "census2020_persons": lambda i: zcdp_to_epsilon(i["rho"], delta=i["delta"]),
    "analytic_gaussian": lambda i: analytic_gaussian_sigma(
        i["eps"], delta=i["delta"], l2_squared=Fraction(i["l2_sensitivity"]) ** 2
    ),
    "gaussian_profile": lambda i: gdp_to_delta(gaussian_gdp(l2_squared=1, sigma=i["sigma"]), epsilon=i["eps"]),
    "discrete_gaussian_profile": lambda i: discrete_gaussian_delta(i["eps"], sigma_squared=i["sigma2"], shift=1),
    "optimal_composition": optimal,
    "laplace_pld": lambda i: numeric_composition([(laplace_losses(i["eps"]), i["k"])], delta=i["delta"]),
    "gaussian_pld": lambda i: gdp_to_epsilon(i["k"] * gaussian_gdp(l2_squared=1, sigma=i["sigma"]), delta=i["delta"]),
}
BUDGETS: dict[str, Formula] = {"eps_delta_to_rho": lambda i: epsilon_to_zcdp(i["eps"], delta=i["delta"])}

WRONG: dict[str, Formula] = {
    "zcdp_to_eps": lambda i: i["rho"] + math.sqrt(2 * i["rho"] * math.log(1 / i["delta"])),
    "zcdp_to_delta": lambda i: zcdp_to_delta(i["rho"], epsilon=i["eps"]) * (1 - 1e-8),
    "laplace_rho": lambda i: i["eps"] ** 2 / 2 - i["eps"] ** 3 / 6,
    "pure_dp_rho": lambda i: laplace_zcdp(i["eps"]),
    "expmech_rho": lambda i: pure_zcdp(i["eps"]),
    "gaussian_rho": lambda i: gaussian_gdp(l2_squared=round(i["l2"] ** 2), sigma=i["sigma"]),
    "group_zcdp": lambda i: i["k"] * i["rho"],
    "group_approx": lambda i: (i["k"] * i["eps"], i["k"] * i["delta"]),
    "mixed": lambda i: sum(zcdp_to_epsilon(part, delta=i["delta"]) for part in i["parts"]),
    "census2020_persons": lambda i: i["rho"] + 2 * math.sqrt(i["rho"] * math.log(1 / i["delta"])),
    "analytic_gaussian": lambda i: i["l2_sensitivity"] * math.sqrt(2 * math.log(1.25 / i["delta"])) / i["eps"],
    "gaussian_profile": lambda i: zcdp_to_delta(1 / (2 * i["sigma"] ** 2), epsilon=i["eps"]),
    "discrete_gaussian_profile": lambda i: gdp_to_delta(1 / Fraction(i["sigma2"]), epsilon=i["eps"]),
    "optimal_composition": lambda i: min(
        basic_composition([(i["eps"], 0)] * i["k"])[0],
        Fraction(advanced_composition([(i["eps"], 0)] * i["k"], slack=i["total_delta"])[0]),
    ),
    "laplace_pld": lambda i: numeric_composition([(approximate_losses(i["eps"], delta=0), i["k"])], delta=i["delta"]),
    "gaussian_pld": lambda i: zcdp_to_epsilon(i["k"] / (2 * i["sigma"] ** 2), delta=i["delta"]),
    "eps_delta_to_rho": lambda i: i["eps"] ** 2 / (4 * math.log(1 / i["delta"])),
}


def family(vector: dict[str, Any]) -> str:
    return str(vector["id"].split()[0])


def problem(vector: dict[str, Any], value: Any) -> str | None:
    """What is wrong with a value, if anything: too far off, or off to the unsafe side."""
    values, expected = (value, vector["expected"]) if isinstance(value, tuple) else ((value,), [vector["expected"]])
    for ours, reference in zip(map(float, values), expected, strict=True):
        if abs(ours - reference) > vector["rel_tol"] * abs(reference):
            return "too far off"
        # where the reference itself is rounded up on a grid, its own optimistic value is what must not be undercut
        floor = vector["cross_checks"].get("optimistic", reference)
        unsafe = ours > reference if family(vector) in BUDGETS else ours < floor * (1 - max(1e-14, slop(vector)))
        if unsafe:
            return "on the unsafe side"
    return None


def slop(vector: dict[str, Any]) -> float:
    """How much a reference may itself be above the truth: one that was computed on a grid says so."""
    return 1e-5 if "PLD (pessimistic)" in vector["computed_by"] else 0.0


def in_any(families: dict[str, Formula]) -> list[Any]:
    return [pytest.param(vector, id=vector["id"]) for vector in VECTORS if family(vector) in families]


def test_the_reference_values_are_the_58_that_were_handed_over():
    assert hashlib.sha256(PATH.read_bytes()).hexdigest() == SHA256
    assert len(VECTORS) == 58


def test_every_reference_value_has_a_check_and_every_check_a_wrong_formula():
    assert {family(vector) for vector in VECTORS} == {*SPENDS, *BUDGETS} == {*WRONG}
    assert len(in_any(SPENDS | BUDGETS)) == len(VECTORS)


@pytest.mark.parametrize("vector", in_any(SPENDS | BUDGETS))
def test_a_formula_agrees_with_its_reference_and_is_on_the_safe_side(vector):
    assert problem(vector, (SPENDS | BUDGETS)[family(vector)](vector["inputs"])) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_formula_is_noticed(name):
    of_family = [vector for vector in VECTORS if family(vector) == name]
    assert any(problem(vector, WRONG[name](vector["inputs"])) for vector in of_family)


@pytest.mark.parametrize("vector", in_any(SPENDS | BUDGETS))
def test_a_value_rounded_to_the_unsafe_side_is_noticed_within_the_tolerance(vector):
    off = -slop(vector) - 0.9e-12 if family(vector) in SPENDS else 0.9e-12
    lowest = vector["cross_checks"].get("optimistic", vector["expected"])
    value = tuple(x * (1 + off) for x in lowest) if isinstance(lowest, list) else lowest * (1 + off)
    assert problem(vector, value) == "on the unsafe side"


@pytest.mark.parametrize("vector", in_any({"optimal_composition": optimal}))
def test_advanced_composition_agrees_with_the_cross_checks_and_without_its_second_term_it_would_not(vector):
    i = vector["inputs"]
    epsilon, _ = advanced_composition([(i["eps"], 0)] * i["k"], slack=i["total_delta"] - i["k"] * i["delta"])
    expected = vector["cross_checks"]["DRV10 advanced sqrt(2k ln 1/d')eps+k eps(e^eps-1)"]
    # the reference gives the slack what is left of the total delta after the mechanisms' own
    assert epsilon == pytest.approx(expected, rel=1e-9)
    first = i["eps"] * math.sqrt(2 * i["k"] * math.log(1 / (i["total_delta"] - i["k"] * i["delta"])))
    assert first != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("vector", in_any({"optimal_composition": optimal}))
def test_optimal_composition_of_its_epsilon_is_its_delta(vector):
    i = vector["inputs"]
    delta = optimal_composition_delta(i["eps"], delta=i["delta"], count=i["k"], total_epsilon=optimal(i))
    assert i["total_delta"] * (1 - 1e-9) <= delta <= i["total_delta"] * (1 + 1e-12)


def test_the_numeric_gaussian_is_within_the_tolerance_too_and_never_below_the_exact_one():
    (vector,) = [vector for vector in VECTORS if family(vector) == "gaussian_pld"]
    i = vector["inputs"]
    numeric = numeric_composition([(gaussian_losses(1 / Fraction(i["sigma"]) ** 2), i["k"])], delta=i["delta"])
    assert vector["expected"] <= numeric <= vector["expected"] * (1 + vector["rel_tol"])
