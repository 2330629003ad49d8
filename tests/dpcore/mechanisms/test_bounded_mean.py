"""A bounded mean keeps the contract, is priced for its worst movement, and is right on average."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_mean import BoundedMean, MeanEstimate
from dpcore.mechanisms.noise import KIND_OF_NOISE, one_number
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.universe import Integer, Number
from tests.contracts.mechanism_catalogue import PERSON, PROTECTIONS, ROW, SWAPPED_PERSON, SWAPPED_ROW

AGES = {"attribute": Integer(minimum=0, maximum=99), "step": 1}


def movements(mechanism: BoundedMean) -> set[tuple[int, int]]:
    """Every movement of centred sum and count between two neighbours, by trying all that a unit can add."""
    low, high = mechanism.grid.lowest, mechanism.grid.highest
    one_row = [0] + [2 * value - low - high for value in range(low, high + 1)]
    most = mechanism.protection.most
    units = {
        (sum(added), sum(times))
        for times in itertools.product(
            range(mechanism.protection.row_weight + 1), repeat=mechanism.protection.rows_per_unit
        )
        for values in itertools.product(one_row[1:], repeat=mechanism.protection.rows_per_unit)
        for added in [[value * time for value, time in zip(values, times, strict=True)]]
    }
    assert max(count for _, count in units) == most
    others = [(0, 0)] if mechanism.protection.neighbours is Neighbours.ADD_REMOVE else units
    return {(abs(s - t), abs(c - d)) for s, c in units for t, d in others}


def price(mechanism: BoundedMean, movement: tuple[int, int], currency: Currency) -> int:
    scales = (mechanism.sum_scale, mechanism.count_scale)
    parts = zip(scales, movement, strict=True)
    return sum(
        KIND_OF_NOISE[mechanism.noise](scale=s, sensitivity=one_number(d)).price(currency) for s, d in parts if d
    )


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda one: f"{one.unit}-{one.neighbours}-{one.most}")
@pytest.mark.parametrize(
    ("kind", "currency"),
    [(Shape.LAPLACE, Currency.PURE), (Shape.GAUSSIAN, Currency.ZCDP), (Shape.ROUNDED_GAUSSIAN, Currency.GDP)],
)
def test_the_charge_is_that_of_the_dearest_movement_of_all(protection, kind, currency):
    attribute = Integer(minimum=-1, maximum=3)
    bought = BoundedMean.for_amount(
        AMOUNT_OF_ONE // 2, currency=Currency.PURE, attribute=attribute, step=1, protection=protection
    )
    for count_scale in (0.5, 30.0):
        mechanism = replace(bought, noise=kind, count_scale=count_scale)
        charged = mechanism.price(currency)
        dearest = max(price(mechanism, movement, currency) for movement in movements(mechanism))
        assert charged == dearest
        assert max(price(mechanism, (s // 2, c), currency) for s, c in movements(mechanism)) < charged


def test_ignoring_the_relation_would_charge_less_than_the_dearest_movement():
    for protection in (SWAPPED_ROW, SWAPPED_PERSON):
        mechanism = BoundedMean.for_epsilon(0.5, delta=0, protection=protection, **AGES)
        ignored = replace(mechanism, protection=replace(protection, neighbours=Neighbours.ADD_REMOVE), count_scale=1e6)
        m = protection.most
        worst = price(ignored, (2 * m * 99, 0), Currency.PURE)
        assert ignored.price(Currency.PURE) < worst <= replace(ignored, protection=protection).price(Currency.PURE)


def test_under_replace_one_the_count_takes_nothing_from_the_sum():
    with_count = BoundedMean.for_epsilon(1.0, delta=0, protection=SWAPPED_ROW, **AGES)
    assert with_count.sum_scale == 2 * 99
    assert with_count.count_scale == pytest.approx(2.0, rel=1e-9)
    assert with_count.price(Currency.PURE) == AMOUNT_OF_ONE
    gaussian = BoundedMean.for_amount(AMOUNT_OF_ONE, currency=Currency.ZCDP, protection=SWAPPED_ROW, **AGES)
    assert gaussian.count_scale == pytest.approx(math.sqrt(1 / (2 * 0.75)), rel=1e-9)


def test_a_mean_and_its_standard_error_follow_from_the_noisy_numbers():
    declared = {"attribute": Number((0, 100)), "step": "0.1"}
    sure = BoundedMean.for_epsilon(1e6, delta=0, protection=ROW, **declared)
    found = sure.draw(np.concatenate([np.full(700, 80.0), np.full(300, 30.0), np.full(200, np.nan)]))
    assert (found.mean, found.rows) == (pytest.approx(65.0, abs=0.01), 1000)
    sums, counts = (noise.standard_deviation for noise in sure.noises)
    assert found.standard_error == pytest.approx(0.05 * math.hypot(sums, 300 * counts) / 1000, rel=0.01)


@pytest.mark.parametrize("nothing", [[], [None, math.nan, "x"], np.array([])])
def test_of_nothing_there_is_a_mean_within_the_bounds(nothing):
    mechanism = BoundedMean.for_epsilon(0.1, delta=0, protection=ROW, **AGES)
    for found in [mechanism.draw(nothing) for _ in range(50)]:
        assert isinstance(found, MeanEstimate)
        assert 0 <= found.mean <= 99
        assert math.isfinite(found.standard_error)


def test_a_person_has_at_most_its_declared_rows_in_the_mean():
    mechanism = BoundedMean.for_epsilon(4000.0, delta=0, protection=PERSON, **AGES)
    found = mechanism.draw([90] * 100 + [10] * 2, ids=["a"] * 100 + ["b"] * 2)
    assert found.rows == 4
    assert found.mean == pytest.approx(50, abs=1)


def test_an_amount_that_leaves_nothing_for_the_count_and_missing_ids_are_refused():
    with pytest.raises(UsageError, match="at least 1"):
        BoundedMean.for_amount(0, currency=Currency.PURE, protection=ROW, **AGES)
    with pytest.raises(UsageError, match="coarser step"):
        BoundedMean.for_amount(
            AMOUNT_OF_ONE // 1000, currency=Currency.GDP, attribute=Number((0, 1)), step="0.0001", protection=ROW
        )
    with pytest.raises(UsageError, match="pass that column as ids"):
        BoundedMean.for_epsilon(1.0, delta=0, protection=PERSON, **AGES).draw([1])
    heavy = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, weight="w", row_weight=2**30)
    with pytest.raises(UsageError, match="64 bits"):
        BoundedMean.for_epsilon(1.0, delta=0, protection=heavy, **AGES)
