"""Categories that longer values belong to, and the stems by which they are found."""

from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import SpecError
from dpcore.universe import Categorical, Outside
from dpcore.universe.stems import Stems

LETTERS = st.text("ab.", max_size=5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["250", "250.1", "250.13", "250.2", "25", "401"], [0, 1, 1, 0, 2, 2]),
        ([250, 2500, 25], [0, 0, 2]),
        ([250.0, 250.13, 25.0], [0, 1, 2]),
        (["", None, " 250", "x250"], [3, 3, 0, 2]),
    ],
)
def test_a_value_belongs_to_its_longest_declared_prefix(values: list[object], expected: list[int]) -> None:
    attribute = Categorical(("250", "250.1"), prefixes=True, missing=True, outside=Outside.OTHER)
    assert attribute.encode(pa.array(values)).tolist() == expected


def test_without_prefixes_only_whole_values_count() -> None:
    assert Categorical(("250",)).encode(pa.array(["250", "250.1"])).tolist() == [0, -1]


def test_a_declared_number_is_found_however_it_is_written_before_any_prefix_of_the_text() -> None:
    attribute = Categorical((1, 10), prefixes=True)
    assert attribute.encode(pa.array(["1", "1.0", "10.0", "100", "2"])).tolist() == [0, 0, 1, 1, -1]


def test_days_go_by_their_text() -> None:
    column = pa.array([date(2025, 3, 1), date(2024, 3, 1)])
    assert Categorical(("2025-03", "2025"), prefixes=True).encode(column).tolist() == [0, -1]


@given(st.lists(LETTERS.filter(bool), min_size=1, unique=True), st.lists(LETTERS))
def test_every_text_goes_where_the_definition_says(declared: list[str], texts: list[str]) -> None:
    attribute = Categorical(tuple(declared), prefixes=True, missing=True, outside=Outside.OTHER)
    for text, code in zip(texts, attribute.encode(pa.array(texts, pa.string())).tolist(), strict=True):
        fitting = [value for value in declared if text.startswith(value)]
        expected = declared.index(max(fitting, key=len)) if fitting else attribute.other_cell
        if "other" not in declared:
            assert code == (expected if text else attribute.missing_cell)


@given(st.lists(LETTERS))
def test_stems_split_all_texts_and_each_level_refines_the_one_before(texts: list[str]) -> None:
    all_texts = ["a", "b", ".", *(first + second for first in "ab." for second in "ab.")]
    coarse = Stems(values=("a", "b", "."), depth=1, length=3, missing=True, outside=Outside.OTHER)
    fine = Stems(values=tuple(all_texts), depth=2, length=3, missing=True, outside=Outside.OTHER)
    column = pa.array(texts, pa.string())
    for text, rough, exact in zip(texts, coarse.encode(column), fine.encode(column), strict=True):
        if not 1 <= len(text) <= 3:
            assert (rough, exact) == ((coarse.missing_cell, fine.missing_cell) if not text else (3, len(all_texts)))
        else:
            assert coarse.values[rough] == text[:1]
            assert fine.values[exact] == text[:2]


def test_a_stem_may_begin_with_a_text_that_counts_as_null() -> None:
    stems = Stems(values=("NA", "NB"), depth=2, length=4, missing=True, nulls=("NA",), outside=Outside.OTHER)
    assert stems.encode(pa.array(["NA", "NAB", "NB"])).tolist() == [3, 0, 1]


@pytest.mark.parametrize("shape", [{"depth": 1, "length": 3}, {"depth": 4, "length": 3}, {"depth": 0, "length": 3}])
def test_stems_that_no_text_begins_with_are_refused(shape: dict[str, int]) -> None:
    with pytest.raises(SpecError):
        Stems(values=("ab",), **shape)
