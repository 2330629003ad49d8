"""Texts that count as null: found in every kind of column, in every type that can write them."""

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpcore.errors import SpecError
from dpcore.universe import Attribute, Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside
from dpcore.universe.nulls import named_nulls

NULLS = ("?", "NA", "-9")
DAYS = {"minimum": date(2025, 1, 1), "maximum": date(2025, 12, 31), "every": Every.MONTH}
MOMENTS = {"minimum": datetime(2025, 1, 1), "maximum": datetime(2025, 12, 31), "every": Every.MONTH}
KINDS: dict[str, tuple[Attribute, str]] = {
    "categorical": (Categorical(("F", "M"), missing=True, nulls=NULLS, outside=Outside.OTHER), "F"),
    "boolean": (Boolean(missing=True, nulls=NULLS, outside=Outside.OTHER), "no"),
    "integer": (Integer(minimum=-99, maximum=99, missing=True, nulls=NULLS, outside=Outside.OTHER), "-99"),
    "number": (Number((0, 1), missing=True, nulls=NULLS, outside=Outside.OTHER), "0.5"),
    "date": (Date(**DAYS, missing=True, nulls=NULLS, outside=Outside.OTHER), "2025-01-31"),
    "datetime": (Datetime(**MOMENTS, missing=True, nulls=NULLS, outside=Outside.OTHER), "2025-01-31T08:00:00"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())])
def test_a_text_that_counts_as_null_goes_to_the_missing_cell(kind: str, stored: pa.DataType) -> None:
    attribute, inside = KINDS[kind]
    texts: list[Any] = ["?", " NA ", inside, "-9", "NN", "??", None]
    flat = [text.encode() if stored == pa.binary() and text else text for text in texts]
    column = pa.array(flat, stored) if not pa.types.is_dictionary(stored) else pa.array(texts).dictionary_encode()
    missing, other = attribute.missing_cell, attribute.other_cell
    assert attribute.encode(column).tolist() == [missing, missing, 0, missing, other, other, missing]


@pytest.mark.parametrize(
    ("values", "stored", "texts"),
    [
        ([-9, 9, 0, None], pa.int8(), ["-9", "NA"]),
        ([9, 1, 0, None], pa.uint64(), ["9.0"]),
        ([-9.0, 9.0, 0.0, None], pa.float64(), ["-9"]),
        ([0.1, 0.2, 0.0, None], pa.float32(), ["0.1"]),
        ([Decimal("-9.00"), Decimal("9.00"), Decimal(0), None], pa.decimal128(5, 2), ["-9", "NA"]),
        ([date(1900, 1, 1), date(1900, 1, 2), date(1970, 1, 1), None], pa.date32(), ["1900-01-01"]),
        ([datetime(1900, 1, 1), datetime(1900, 1, 2), datetime(1970, 1, 1), None], pa.timestamp("us"), ["1900-01-01"]),
        ([time(0), time(1), time(2), None], pa.time32("s"), ["00:00:00"]),
        ([True, False, False, None], pa.bool_(), ["true"]),
    ],
)
def test_in_a_typed_column_a_text_stands_for_the_value_it_writes(
    values: list[Any], stored: pa.DataType, texts: list[str]
) -> None:
    found = named_nulls(pa.array(values, stored), texts)
    assert found[:3].tolist() == [True, False, False]  # what it says of a null does not matter


def test_a_text_that_writes_no_number_is_in_no_column_of_numbers() -> None:
    assert not named_nulls(pa.array([0, 1, -(2**63)]), ["?", "NA", "nan", "1.5", "inf"]).any()
    assert not named_nulls(pa.array([[1], [2]]), ["1"]).any()


def test_texts_are_compared_as_they_stand_not_as_patterns() -> None:
    texts = [".*", "(", "é", "a|b", "\\d"]
    column = pa.array([*texts, "x", "5", "a", "e"]).cast(pa.large_binary())
    assert named_nulls(column, texts).tolist() == [True] * 5 + [False] * 4


def test_bytes_that_are_no_text_are_no_null_and_change_no_other_row() -> None:
    attribute = Categorical(("F",), missing=True, nulls=("?",), outside=Outside.OTHER)
    assert attribute.encode(pa.array([b"?", b"\xff\xfe", b"F"], pa.binary())).tolist() == [2, 1, 0]


def test_without_texts_nothing_else_becomes_null() -> None:
    assert Categorical(("F",), missing=True, outside=Outside.OTHER).encode(pa.array(["?", "F"])).tolist() == [1, 0]


def test_a_null_that_comes_back_is_a_null() -> None:
    attribute = KINDS["integer"][0]
    assert attribute.decode(attribute.encode(pa.array(["NA"])), np.random.default_rng(0)).to_pylist() == [None]


@pytest.mark.parametrize(
    ("nulls", "hint"), [((" ",), "empty"), (("?", " ?"), "duplicates"), ("NA", "list of texts"), (("\ud800",), "UTF-8")]
)
def test_texts_that_could_not_be_told_apart_are_refused(nulls: Any, hint: str) -> None:
    with pytest.raises(SpecError, match=hint):
        Boolean(missing=True, nulls=nulls)


def test_a_text_is_either_a_value_or_a_null() -> None:
    with pytest.raises(SpecError, match="remove one of the two"):
        Categorical(("F", "?"), missing=True, nulls=("?",))
