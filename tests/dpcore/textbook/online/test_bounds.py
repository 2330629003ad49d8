"""The parameters of `online` follow from the theorem, and parameters that cannot hold are refused with what would do."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import UsageError
from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.textbook.online.bounds import (
    TOTAL_SHARE,
    Terms,
    bounds_for,
    fewest_rows,
    laplace_bound,
    noise_bound,
    smallest_alpha,
)

ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
ONE = Sensitivity(1, 1, 1)


def terms(currency: Currency = Currency.ZCDP, epsilon: float = 1.0, **changed: object) -> Terms:
    _, amount = budget_of(epsilon, delta=0.0 if currency is Currency.PURE else 1e-9, currency=currency)
    usual = Terms(
        alpha=0.1, beta=0.05, queries=1000, restarts=2, cells=32, amount=amount, currency=currency, protection=ROW
    )
    return replace(usual, **changed)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 900.0])
@pytest.mark.parametrize("miss", [0.4, 0.01, 1e-6])
def test_the_bound_of_laplace_noise_is_the_smallest_that_holds(scale: float, miss: float) -> None:
    bound = laplace_bound(scale, miss=miss)

    def beyond(size: int) -> float:
        return float(2 * stats.dlaplace.sf(size, 1 / scale))

    assert beyond(bound) <= miss * (1 + 1e-9)
    assert bound == 0 or beyond(bound - 1) > miss * (1 - 1e-9)


@pytest.mark.parametrize("miss", [0.1, 1e-4, 1e-9])
def test_the_bounds_of_gaussian_noises_hold(miss: float) -> None:
    for sigma in (0.5, 3.0, 400.0):
        rounded = noise_bound(RoundedGaussian(scale=sigma, sensitivity=ONE), miss=miss)
        assert 2 * stats.norm.sf(rounded + 0.5, scale=sigma) <= miss
        discrete = noise_bound(DiscreteGaussian(scale=sigma, sensitivity=ONE), miss=miss)
        support = np.arange(-60 * math.ceil(sigma), 60 * math.ceil(sigma) + 1)
        mass = np.exp(-(support**2) / (2 * sigma**2))
        assert mass[np.abs(support) > discrete].sum() / mass.sum() <= miss


def test_laplace_noise_has_its_own_bound() -> None:
    assert noise_bound(DiscreteLaplace(scale=5.0, sensitivity=ONE), miss=0.01) == laplace_bound(5.0, miss=0.01)


@pytest.mark.parametrize(("currency", "epsilon"), [(Currency.ZCDP, 1.0), (Currency.GDP, 1.0), (Currency.PURE, 10.0)])
def test_all_gates_and_counts_that_may_be_needed_are_paid_for(currency: Currency, epsilon: float) -> None:
    wanted = terms(currency, epsilon)
    found = bounds_for(wanted, rows=1_000_000)
    times = found.hard_rounds + wanted.restarts
    price = times * (found.gate.price(currency) + found.noise.price(currency)) + 2 * wanted.total_noise.price(currency)
    assert wanted.amount * 0.98 <= price <= wanted.amount


def test_the_hard_rounds_are_those_of_the_proof() -> None:
    wanted = terms()
    found = bounds_for(wanted, rows=1_000_000)
    gap = (found.threshold - found.gate_error - 0.5 - found.rows_error) / (found.rows + found.rows_error)
    needed = math.log(32) / (2 * gap**2)
    assert math.floor(needed) <= found.hard_rounds <= needed * 1.07
    assert found.within == 100_000 == found.threshold + found.gate_error
    assert found.threshold - found.gate_error > found.count_error
    assert found.count_error < found.within
    scales = found.gate.scales
    assert found.gate_error == laplace_bound(scales[0], miss=0.05 / 4 / (found.hard_rounds + 2)) + laplace_bound(
        scales[1], miss=0.05 / 4 / 3000
    )


def test_a_step_is_four_times_the_error_that_is_sure_and_at_least_that_of_the_proof() -> None:
    found = bounds_for(terms(), rows=1_000_000)
    least = found.gap(found.threshold - found.gate_error)
    assert math.isclose(found.step(expected=500_000, measured=500_001), 4 * least)
    assert math.isclose(found.step(expected=500_000, measured=100_000), -4 * found.gap(400_000 - found.count_error))
    assert found.step(expected=0, measured=10**9) == 4.0


def test_more_rows_per_unit_need_more_noise() -> None:
    patients = Protection(unit="patient", rows_per_unit=4, neighbours=Neighbours.REPLACE_ONE)
    one, four = (bounds_for(terms(protection=each), rows=4_000_000) for each in (ROW, patients))
    assert four.gate.sensitivity == 4
    assert four.gate_error > 3.9 * one.gate_error
    assert not four.gate.monotone


def test_what_cannot_hold_is_refused_with_an_alpha_and_a_number_of_rows_that_can() -> None:
    with pytest.raises(UsageError, match="cannot be promised for 1,000 queries") as refused:
        bounds_for(terms(), rows=50_000)
    alpha = float(re.search(r"alpha ([\d.]+) or more", str(refused.value))[1])
    rows = int(re.search(r"at least ([\d,]+) rows", str(refused.value))[1].replace(",", ""))
    assert bounds_for(terms(alpha=alpha), rows=50_000).within == math.floor(alpha * 50_000)
    assert bounds_for(terms(), rows=rows)
    for wanted, held in ((terms(alpha=alpha * 0.98), 50_000), (terms(), int(rows * 0.98))):
        with pytest.raises(UsageError, match="cannot be promised"):
            bounds_for(wanted, rows=held)


def test_a_table_that_no_alpha_suits_is_told_so() -> None:
    with pytest.raises(UsageError, match="neither can any other alpha; use a table of at least") as refused:
        bounds_for(terms(), rows=100)
    assert "or spend more" in str(refused.value)
    assert smallest_alpha(terms(), rows=100) is None


def test_a_budget_that_buys_nothing_is_refused() -> None:
    tiny = terms(amount=30)
    assert fewest_rows(tiny) is None
    with pytest.raises(UsageError, match="; spend more"):
        bounds_for(tiny, rows=10**6)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"alpha": 0.0}, "alpha must be a number between 0 and 1"),
        ({"alpha": 1}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"beta": 1.5}, "beta"),
        ({"beta": True}, "beta"),
        ({"queries": 0}, "queries must be a whole number of at least 1"),
        ({"queries": 1.5}, "queries"),
        ({"restarts": -1}, "restarts must be a whole number of at least 0"),
    ],
)
def test_numbers_out_of_range_are_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        terms(**changed)


def test_a_universe_of_one_cell_needs_no_hard_round() -> None:
    assert bounds_for(terms(cells=1), rows=1_000_000).hard_rounds == 0


def test_the_total_is_set_aside_twice() -> None:
    assert terms().total_noise.price(Currency.ZCDP) <= terms().amount * TOTAL_SHARE
