"""A noisy count keeps the contract, counts what has the property, and bounds what a person adds by itself."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.noisy_count import NoisyCount
from tests.contracts.mechanism_catalogue import (
    PERSON,
    PROTECTIONS,
    ROW,
    WEIGHTED,
)

SURE = 60.0
"""An epsilon with so little noise that a count is all but certainly exact."""


def counted(property_of_rows, protection=ROW, **columns) -> int:
    return NoisyCount.for_epsilon(SURE * protection.most, delta=0, protection=protection).draw(
        property_of_rows, **columns
    )


@pytest.mark.parametrize(
    "column",
    [
        [True, False, None, True],
        np.array([True, False, False, True]),
        pd.Series([True, False, False, True], index=[3, 3, 1, 0]),
        pd.Series([True, None, False, True]),
        pl.Series([True, None, False, True]),
        pa.array([True, None, False, True]),
        pa.chunked_array([[1, 0], [None, 1]]),
        pd.Series(["yes", "no", "perhaps", "TRUE"]),
    ],
)
def test_rows_that_have_the_property_are_counted(column):
    assert counted(column) == 2


@pytest.mark.parametrize("nothing", [[], np.array([], dtype=bool), pa.nulls(3), [None] * 4, pa.array([], pa.bool_())])
def test_a_table_without_such_rows_counts_nothing(nothing):
    assert counted(nothing) == 0


def test_a_person_counts_as_often_as_declared_and_among_the_rows_with_the_property():
    person = ["a"] * 5 + ["b"] * 3 + ["c", None, ""]
    assert counted([True] * 11, PERSON, ids=person) == 2 + 2 + 1
    for _ in range(20):
        assert counted([False] * 3 + [True] * 2 + [False] * 6, PERSON, ids=person) == 2
    times = [1, 1, 1, 1, 1, 9, 9, 9, 2, 3, 3]
    assert counted([True] * 11, WEIGHTED, ids=person, weights=times) == 2 + 6 + 2
    assert counted([], PERSON, ids=[]) == 0


def test_the_sensitivity_is_what_replacing_a_person_by_one_without_the_property_moves():
    """All tables of one person, by what it adds: its movement reaches the sensitivity, and so half of it is too little."""
    for protection in PROTECTIONS:
        added = range(protection.most + 1)
        moved = max(abs(a - b) for a in added for b in added)
        sensitivity = NoisyCount.for_epsilon(1.0, delta=0, protection=protection).sensitivity
        assert (sensitivity.l1, sensitivity.linf) == (moved, moved)
        assert math.isqrt(sensitivity.l2_squared) == moved > protection.most / 2


def test_ids_and_weights_are_given_exactly_when_the_protection_names_them():
    row, person = (NoisyCount.for_epsilon(1.0, delta=0, protection=p) for p in (ROW, PERSON))
    weighted = NoisyCount.for_epsilon(1.0, delta=0, protection=WEIGHTED)
    for mechanism, columns, said in [
        (row, {"ids": [1]}, "unit is a row"),
        (person, {}, "pass that column as ids"),
        (person, {"ids": [1], "weights": [1]}, "declares none"),
        (weighted, {"ids": [1]}, "pass that column as weights"),
        (person, {"ids": [1, 2]}, "columns of the same table"),
        (person, {"ids": []}, "columns of the same table"),
        (weighted, {"ids": [1], "weights": [1, 1]}, "columns of the same table"),
        (person, {"ids": pa.array([[1]])}, "cannot hold the declared values"),
    ]:
        with pytest.raises(UsageError, match=said):
            mechanism.draw([True], **columns)
    with pytest.raises(UsageError, match="cannot hold the declared values"):
        row.draw(pd.Series(pd.to_datetime(["2025-01-01"])))
    with pytest.raises(UsageError, match="a column must be"):
        row.draw(pd.DataFrame({"a": [True]}))


def test_an_empty_column_of_an_unreadable_type_is_refused_as_a_full_one_is():
    counting = NoisyCount.for_epsilon(1.0, delta=0, protection=ROW)
    for rows in ([], [[1]], [[1], None]):
        with pytest.raises(UsageError, match="type cannot hold"):
            counting.draw(pa.array(rows, pa.list_(pa.int64())))
