"""Noisy marginals keep the contract, count what the universe says, and move together by their stated sensitivity."""

import itertools
from collections import Counter
from dataclasses import replace
from math import comb

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpcore.errors import SourceError, UsageError
from dpcore.mechanisms.noisy_histogram import NoisyHistogram
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours
from dpcore.universe import Boolean, Categorical, Integer, Outside, Universe
from tests.contracts.mechanism_catalogue import PERSON, PROTECTIONS, ROW, WEIGHTED

UNIVERSE = Universe(
    {
        "sex": Categorical(("F", "M"), missing=True),
        "age": Integer(minimum=0, maximum=99, width=50),
        "smoker": Boolean(outside=Outside.DROP),
    }
)
TABLE = {"sex": ["F", "M", "M", None], "age": [20, 60, 160, 70], "smoker": [True, False, True, None]}


def exact(table, *, protection=ROW, universe=UNIVERSE, **what):
    """The counts with noise so narrow that it is all but certainly 0."""
    mechanism = NoisyHistogram.for_epsilon(1.0, delta=0, universe=universe, protection=protection, **what)
    return replace(mechanism, noise=Shape.LAPLACE, scale=0.01).draw(table)


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, pl.DataFrame], ids=["pandas", "arrow", "polars"])
def test_a_table_is_counted_over_the_whole_universe(make):
    (counts,) = exact(make(TABLE)).values()
    assert counts.shape == UNIVERSE.shape == (3, 2, 2)
    assert {tuple(map(int, cell)) for cell in np.argwhere(counts)} == {(0, 0, 1), (1, 1, 0), (1, 1, 1)}
    assert counts.dtype == np.int64


@pytest.mark.parametrize("order", [1, 2, 3])
def test_all_marginals_of_an_order_are_sums_of_the_whole(order):
    (whole,) = exact(pa.table(TABLE)).values()
    found = exact(pa.table(TABLE), order=order)
    assert len(found) == comb(3, order)
    for names, counts in found.items():
        others = tuple(axis for axis, name in enumerate(UNIVERSE.names) if name not in names)
        assert np.array_equal(counts, whole.sum(axis=others))


def test_named_marginals_are_counted_each_once():
    found = exact(pa.table(TABLE), axes=["age", ("smoker", "sex"), ("sex", "smoker")])
    assert list(found) == [("age",), ("sex", "smoker")]
    assert exact(pa.table(TABLE), axes=[()])[()] == 3


def test_the_rows_of_a_person_are_bounded_and_weighted_by_the_protection():
    rows = {
        "sex": ["F"] * 6,
        "age": [1] * 6,
        "smoker": [True] * 6,
        "person": [1, 1, 1, 1, 2, None],
        "times": [1, 9, 9, 9, 2, 1],
    }
    assert exact(pa.table(rows), protection=PERSON)[UNIVERSE.names].sum() == 3
    assert exact(pa.table(rows), protection=WEIGHTED)[UNIVERSE.names].sum() in {1 + 3 + 2, 3 + 3 + 2}


def test_an_empty_table_and_one_of_nulls_are_counted_as_nothing():
    empty = pa.table(TABLE).slice(0, 0)
    assert not any(counts.any() for counts in exact(empty, order=2).values())
    assert not exact(empty.to_pandas())[UNIVERSE.names].any()
    assert not exact(pa.table({name: pa.nulls(3) for name in TABLE}))[UNIVERSE.names].any()


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("protection", PROTECTIONS[:4], ids=lambda one: f"{one.unit}-{one.neighbours}")
def test_the_sensitivity_is_the_largest_movement_of_all_marginals_together(protection, order):
    """All tables of one unit over a small universe, each against each: the three norms are reached, so that half is too little."""
    small = Universe({name: Boolean() for name in "abc"})
    mechanism = NoisyHistogram.for_epsilon(1.0, delta=0, universe=small, order=order, protection=protection)
    rows = list(itertools.product(range(2), repeat=3))
    tables = [
        table
        for size in range(protection.rows_per_unit + 1)
        for table in itertools.combinations_with_replacement(rows, size)
    ]
    stacked = []
    for table in tables:
        counted = Counter((axes, tuple(row[a] for a in axes)) for row in table for axes in mechanism.marginals)
        cells = [(axes, cell) for axes in mechanism.marginals for cell in itertools.product(range(2), repeat=len(axes))]
        stacked.append(np.array([counted[cell] for cell in cells]))
    others = stacked[:1] if protection.neighbours is Neighbours.ADD_REMOVE else stacked
    moved = [a - b for a in stacked for b in others]
    sensitivity = mechanism.sensitivity
    assert max(np.abs(move).sum() for move in moved) == sensitivity.l1
    assert max((move**2).sum() for move in moved) == sensitivity.l2_squared
    assert max(np.abs(move).max() for move in moved) == sensitivity.linf
    ignored = replace(mechanism, protection=replace(protection, neighbours=Neighbours.ADD_REMOVE)).sensitivity
    assert (ignored.l1 < sensitivity.l1) is (protection.neighbours is Neighbours.REPLACE_ONE)


def test_what_was_read_back_is_priced_and_draws_nothing():
    mechanism = NoisyHistogram.for_epsilon(1.0, delta=0, universe=UNIVERSE, order=2, protection=ROW)
    read_back = NoisyHistogram.from_description(mechanism.describe())
    assert read_back == mechanism
    assert read_back.price(Currency.PURE) == mechanism.price(Currency.PURE) == AMOUNT_OF_ONE
    with pytest.raises(UsageError, match="price only"):
        read_back.draw(pa.table(TABLE))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        *(({"order": order}, "order of marginals") for order in (0, 4, -1, True, 1.0)),
        ({"order": 1, "axes": ["sex"]}, "not both"),
        ({"axes": []}, "nothing to count"),
        ({"axes": ["income"]}, "no column 'income'"),
    ],
)
def test_marginals_that_are_none_are_refused(what, said):
    with pytest.raises(UsageError, match=said):
        NoisyHistogram.for_epsilon(1.0, delta=0, universe=UNIVERSE, protection=ROW, **what)


@pytest.mark.parametrize("marginals", [((1, 0),), ((0, 0),), ((-1,),), ((0,), (0,)), ((9,),), ((True,),), ()])
def test_places_that_name_no_marginal_are_refused(marginals):
    mechanism = NoisyHistogram.for_epsilon(1.0, delta=0, universe=UNIVERSE, protection=ROW)
    with pytest.raises(UsageError):
        replace(mechanism, marginals=marginals)


def test_a_universe_too_large_to_list_is_refused_before_anything_is_read():
    huge = Universe({f"c{number}": Integer(minimum=0, maximum=999) for number in range(10)})
    with pytest.raises(UsageError, match="count fewer or smaller"):
        NoisyHistogram.for_epsilon(1.0, delta=0, universe=huge, protection=ROW)
    assert len(NoisyHistogram.for_epsilon(1.0, delta=0, universe=huge, order=2, protection=ROW).marginals) == 45


def test_a_table_without_the_declared_columns_is_refused_by_their_names_alone():
    mechanism = NoisyHistogram.for_epsilon(1.0, delta=0, universe=UNIVERSE, protection=PERSON)
    with pytest.raises(SourceError, match="person"):
        mechanism.draw(pa.table(TABLE))
    with pytest.raises(UsageError, match="a table must be"):
        mechanism.draw(TABLE)
