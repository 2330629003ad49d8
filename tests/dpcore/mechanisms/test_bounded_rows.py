"""No more rows of a unit than declared are kept, chosen uniformly, from the one source of randomness."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

from dpcore.mechanisms.bounded_rows import bounded_rows, read_column
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.protection import Neighbours, Protection
from tests.contracts.mechanism import recorded_words
from tests.contracts.mechanism_catalogue import PERSON, ROW, WEIGHTED
from tests.dpcore.tables.sources.equal_values import (
    COLUMNS,
    COLUMNS_OF_EQUAL,
    ROWS,
    made,
)


def kept(values, protection=PERSON, *, counts=None, ids=None, weights=None) -> list[int]:
    values = np.asarray(values, dtype=np.int64)
    counts = np.ones(len(values), dtype=np.bool_) if counts is None else np.asarray(counts)
    return bounded_rows(values, counts, protection=protection, ids=ids, weights=weights)[0].tolist()


def test_rows_without_units_are_all_kept_if_they_count():
    assert kept([4, 5, 6], ROW, counts=[True, False, True]) == [4, 6]
    assert kept([], ROW) == []


def test_each_person_keeps_as_many_as_declared_and_those_without_an_id_nothing():
    ids = ["a"] * 6 + ["b"] + ["c"] * 2 + [None, ""]
    for _ in range(20):
        found = kept(range(11), ids=ids)
        assert len(found) == 2 + 1 + 2
        assert set(found) >= {6, 7, 8}


@pytest.mark.parametrize(
    ("ids", "persons"),
    [
        ([1, 1, 1, 2], 2),
        (np.array([1.0, 1.0, 1.0, 2.0]), 2),
        (pd.Series([1, 1.0, "1", 2], dtype=object), 2),
        (pd.Categorical(["x", "x", "x", "y"]), 2),
        (pa.array([b"x", b"x", b"x", None]), 1),
        (pd.to_datetime(["2025-01-01"] * 4), 1),
    ],
)
def test_one_person_is_one_id_of_whatever_type(ids, persons):
    column = pd.Series(ids) if isinstance(ids, pd.Categorical | pd.DatetimeIndex) else ids
    assert len(kept(range(4), ids=column)) == {1: 2, 2: 3}[persons]


@pytest.mark.parametrize(("kind", "makers"), COLUMNS_OF_EQUAL[::4])
def test_equal_values_are_one_person_whatever_dtype_a_library_chooses(kind, makers):
    assert len(kept(range(ROWS), ids=COLUMNS[kind](made(makers)))) == PERSON.rows_per_unit


@pytest.mark.parametrize("kind", [object, str])
def test_a_lone_surrogate_in_an_array_of_numpy_is_read_as_in_a_list(kind):
    texts = ["7", "\ud800", "8"]
    (found,) = read_column(np.array(texts, dtype=kind), reads=pa.types.is_large_string)
    assert found.to_pylist() == read_column(texts, reads=pa.types.is_large_string)[0].to_pylist()
    assert found.to_pylist()[::2] == ["7", "8"]


def test_rows_that_do_not_count_are_left_out_before_the_choice():
    for _ in range(20):
        assert kept(range(5), counts=[False, True, False, True, False], ids=["a"] * 5) == [1, 3]
    assert kept(range(5), WEIGHTED, ids=["a"] * 5, weights=[0, 1, None, -3, "2"]) == [1, 4]


def test_every_choice_is_equally_likely():
    runs = 300
    found = Counter(tuple(kept(range(4), ids=["a"] * 4)) for _ in range(runs))
    pairs = list(combinations(range(4), 2))
    observed = np.array([found[pair] for pair in pairs])
    assert observed.sum() == runs
    assert stats.chisquare(observed).pvalue > 1e-9
    first_two = np.array([runs if pair == (0, 1) else 0 for pair in pairs])  # the control: the first rows of each
    assert stats.chisquare(first_two).pvalue < 1e-9


def test_the_choice_comes_from_the_entropy_stream_and_another_person_does_not_change_it(monkeypatch):
    def draw(seed: int, ids: list[str]) -> list[int]:
        monkeypatch.setattr(entropy, "random_words", recorded_words(seed))
        return kept(range(40), ids=ids)

    alone = draw(1, ["a"] * 20 + ["b"] * 20)
    assert draw(1, ["a"] * 20 + ["b"] * 20) == alone
    assert draw(1, ["a"] * 20 + ["c"] * 10 + ["d"] * 10)[:2] == alone[:2]
    assert {tuple(draw(seed, ["a"] * 40)) for seed in range(8)} != {tuple(draw(0, ["a"] * 40))}


def test_a_column_is_read_by_its_type_and_no_value_raises():
    def anything(kind: pa.DataType) -> bool:
        return kind is not None

    many = np.arange(300_000)
    assert sum(map(len, read_column(many, reads=anything))) == len(many)
    assert read_column([1, None, math.nan, object, "\ud800"], reads=anything)[0].type == pa.large_string()


def test_weights_are_read_up_to_their_maximum():
    heavy = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, weight="w", row_weight=5)
    counts = np.ones(4, dtype=np.bool_)
    _, times = bounded_rows(
        np.zeros(4, dtype=np.int64), counts, protection=heavy, ids=None, weights=np.array([1, 5, 6, 10**12])
    )
    assert times.tolist() == [1, 5, 5, 5]
    assert counts.all()
