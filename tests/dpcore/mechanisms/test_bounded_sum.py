"""A bounded sum keeps the contract, moves by its sensitivity and no more, and is right on average."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.grid import MOST_STEPS
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.universe import Integer, Number, Outside
from tests.contracts.mechanism_catalogue import (
    PERSON,
    PROTECTIONS,
    ROW,
    SWAPPED_ROW,
    WEIGHTED,
)

AGES = {"attribute": Integer(minimum=0, maximum=99), "step": 1}
RANGES = [(0, 3), (-2, 3), (-3, -1), (2, 3), (-1, 0)]


def exact_sum(mechanism: BoundedSum, values, *, ids=None, weights=None) -> int:
    return int(mechanism.read(values, ids=ids, weights=weights).for_noise()[0])


def of_one_unit(protection: Protection, low: int, high: int) -> set[int]:
    """Every sum that the rows of one unit can add, by trying them all: values out of bounds and nulls included."""
    mechanism = BoundedSum.for_epsilon(
        1.0, delta=0, attribute=Integer(minimum=low, maximum=high), step=1, protection=protection
    )
    values = [None, low - 7, low, high, high + 7]
    found = {0}
    for rows in range(1, protection.rows_per_unit + 1):
        for chosen in itertools.product(values, repeat=rows):
            columns = {} if protection.unit == "row" else {"ids": ["x"] * rows}
            for times in [None, 1, protection.row_weight + 1] if protection.weight else [None]:
                if protection.weight:
                    columns["weights"] = [times] * rows
                found.add(exact_sum(mechanism, list(chosen), **columns))
    return found


def largest_movement(protection: Protection, low: int, high: int) -> int:
    sums = of_one_unit(protection, low, high)
    if protection.neighbours is Neighbours.ADD_REMOVE:
        return max(map(abs, sums))
    return max(sums) - min(sums)


@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda one: f"{one.unit}-{one.neighbours}-{one.most}")
def test_the_sensitivity_is_the_largest_movement_of_all_and_neither_half_of_it_nor_that_of_the_other_relation(
    protection, low, high
):
    declared = {"attribute": Integer(minimum=low, maximum=high), "step": 1}
    sensitivity = BoundedSum.for_epsilon(1.0, delta=0, protection=protection, **declared).sensitivity
    moved = largest_movement(protection, low, high)
    assert sensitivity.l1 == sensitivity.linf == math.isqrt(sensitivity.l2_squared) == moved
    assert sensitivity.l1 // 2 < moved
    if protection.neighbours is Neighbours.REPLACE_ONE and low < 0 < high:
        ignored = replace(protection, neighbours=Neighbours.ADD_REMOVE)
        assert BoundedSum.for_epsilon(1.0, delta=0, protection=ignored, **declared).sensitivity.l1 < moved


def test_a_row_that_says_nothing_moves_a_sum_further_than_the_bounds_are_apart():
    """Of values from 50 to 60, hi - lo would be 10: too little by far, since a null may replace a 60."""
    attribute = Integer(minimum=50, maximum=60)
    mechanism = BoundedSum.for_epsilon(1.0, delta=0, attribute=attribute, step=1, protection=SWAPPED_ROW)
    assert exact_sum(mechanism, [60]) - exact_sum(mechanism, [None]) == mechanism.sensitivity.l1 == 60


def test_a_sum_and_its_noise_are_in_the_values_own_unit():
    declared = {"attribute": Number((0, 100)), "step": "0.01"}
    sure = BoundedSum.for_epsilon(1e6, delta=0, protection=ROW, **declared)
    assert sure.draw(np.array([12.345, 0.5, 99.994, 250.0, np.nan])) == pytest.approx(12.35 + 0.5 + 99.99 + 100)
    assert sure.standard_deviation == pytest.approx(sure.on_numbers.standard_deviation / 100)


@pytest.mark.parametrize(
    "column",
    [
        [1, "2", None, 4.0],
        np.array([1.0, 2.0, np.nan, 4.0]),
        pd.Series([1, 2, None, 4], dtype="Int64", index=[7, 7, 7, 7]),
        pd.Series([1, 2, None, 4], dtype=object),
        pl.Series([1, 2, None, 4]),
        pa.array([1, 2, None, 4]),
        pa.chunked_array([["1", "2"], ["x", "4"]]),
    ],
)
def test_every_kind_of_column_is_read_alike(column):
    assert exact_sum(BoundedSum.for_epsilon(1.0, delta=0, protection=ROW, **AGES), column) == 7


@pytest.mark.parametrize("nothing", [[], np.array([]), pa.nulls(3), [None, "x", math.nan], pa.array([], pa.int64())])
def test_a_column_that_says_nothing_adds_nothing_and_is_answered_with_noise(nothing):
    mechanism = BoundedSum.for_epsilon(1.0, delta=0, protection=ROW, **AGES)
    assert exact_sum(mechanism, nothing) == 0
    assert len({mechanism.draw(nothing) for _ in range(20)}) > 1


def test_outsiders_go_by_the_declared_policy():
    for outside, total in ((Outside.CLIP, 99 + 0 + 5), (Outside.DROP, 5), (Outside.OTHER, 5)):
        attribute = Integer(minimum=0, maximum=99, outside=outside)
        mechanism = BoundedSum.for_epsilon(1.0, delta=0, attribute=attribute, step=1, protection=ROW)
        assert exact_sum(mechanism, np.array([1000, -3, 5])) == total


def test_a_person_adds_at_most_its_declared_rows_times_their_weights():
    person = BoundedSum.for_epsilon(1.0, delta=0, protection=PERSON, **AGES)
    assert exact_sum(person, [10] * 7, ids=["a"] * 5 + ["b", None]) == 30
    weighted = BoundedSum.for_epsilon(1.0, delta=0, protection=WEIGHTED, **AGES)
    assert exact_sum(weighted, [10] * 4, ids=["a", "a", "a", "b"], weights=[3, 99, 3, 0]) == 60


@pytest.mark.parametrize("currency", [Currency.PURE, Currency.ZCDP, Currency.GDP])
def test_a_grid_too_fine_for_any_noise_or_sum_is_refused_with_a_coarser_step_as_the_way_out(currency):
    fine = {"attribute": Number((0, 10**6)), "step": "0.001"}
    with pytest.raises(UsageError, match="coarser step"):
        BoundedSum.for_amount(10**3, currency=currency, protection=PERSON, **fine)
    with pytest.raises(UsageError, match="coarser step"):
        BoundedSum.for_amount(
            AMOUNT_OF_ONE, currency=currency, attribute=Number((0, 10**6)), step="1e-5", protection=ROW
        )
    heavy = Protection(
        unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, weight="times", row_weight=MOST_STEPS
    )
    with pytest.raises(UsageError, match="weights could exceed 64 bits"):
        BoundedSum.for_amount(AMOUNT_OF_ONE, currency=currency, protection=heavy, **AGES)
