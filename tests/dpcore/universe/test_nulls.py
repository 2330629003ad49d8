"""Texts that count as null: found in every kind of column, in every type that can write them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpcore.errors import SpecError
from dpcore.universe import (
    Attribute,
    Boolean,
    Categorical,
    Date,
    Datetime,
    Every,
    Integer,
    Number,
    Outside,
    column,
    nulls,
    reading,
)
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


TEXTS = [
    *("-9", "7", "7.0", "7e0", "NA", "0.5", "0.1", "1.5", "nan", "inf", "-inf", "1_0", "9007199254740993", "-0"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
    ),
    *("18446744073709551616", "99999999999999999999", "1e20", "1e300", "1e309", "-1e400", "1e-400", "1e999999999"),
    *("65504", "65520", "1e5", "3.5e38", "127", "128", "255", "256", "2025-01-31", "9999-12-31", "0001-01-01"),
]
WHOLES = [0, 7, -9, 1, 127, -128, 255, 2**15 - 1, 2**31 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 2**63]
FLOATS = [0.0, 7.0, -9.0, 0.5, 0.1, 1.5, 65504.0, float("inf"), float("-inf"), 1e300, 1e20, 3.4e38]
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def denotes(text: str) -> Fraction | float | None:
    """Return the number that a text writes: exactly, or an infinity."""
    if text in {"inf", "-inf"}:
        return float(text)
    plain = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]{1,3})?", text)
    return Fraction(text) if plain else None


def columns_of_numbers() -> Iterator[tuple[pa.Array, list[Any]]]:
    """Yield columns, and for each the numbers that they hold."""
    for kind in INTEGERS:
        limits = np.iinfo(kind.to_pandas_dtype())
        held = [value for value in WHOLES if limits.min <= value <= limits.max]
        yield pa.array(held, kind), held
    yield pa.array(FLOATS), FLOATS
    for dtype in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            rounded = np.array(FLOATS, dtype=dtype)
        yield pa.array(rounded), rounded.tolist()
    decimals = [value for value in WHOLES if value < 10**18]
    yield pa.array([Decimal(value) for value in decimals], pa.decimal128(38, 2)), decimals


def is_denoted(value: Any, text: str, kind: pa.DataType) -> bool:
    number = denotes(text)
    if not pa.types.is_floating(kind) or number is None or isinstance(number, float):
        return value == number
    with np.errstate(over="ignore"):
        rounded = np.array([float(number) if abs(number) < 10**308 else np.nan]).astype(kind.to_pandas_dtype())
    return bool(np.isfinite(rounded[0])) and value == rounded[0].item()


def wrongly_null(texts: Sequence[str]) -> list[tuple[Any, str]]:
    """Return the values of all columns of numbers that are null and should not be, or should be and are not."""
    return [
        (value, str(array.type))
        for array, values in columns_of_numbers()
        for value, found in zip(values, named_nulls(array, texts).tolist(), strict=True)
        if found != any(is_denoted(value, text, array.type) for text in texts)
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_the_null_of_exactly_the_values_that_it_writes_in_every_type(text: str) -> None:
    assert wrongly_null([text]) == []
    assert wrongly_null([text, "NA", "1e20"]) == []


@pytest.mark.parametrize("kind", ["integer", "number", "date", "datetime"])
@pytest.mark.parametrize("text", TEXTS)
def test_no_text_makes_other_values_missing(kind: str, text: str) -> None:
    attribute = replace(KINDS[kind][0], nulls=(text,))
    days = ("date", "datetime")
    columns = (
        [pa.array([date(2025, 3, 1)] * 3), pa.array([datetime(2025, 3, 1)] * 3, pa.timestamp("ns"))]
        if kind in days
        else [pa.array([1, 1, 1], each) for each in INTEGERS] + [pa.array([1.0] * 3), pa.array([1.0] * 3, pa.float32())]
    )
    for each in columns:
        assert attribute.missing_cell not in attribute.encode(each).tolist()


def test_an_error_in_what_a_spec_says_is_not_taken_for_undeclared_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflowing(values: nulls._Values, array: pa.Array) -> Any:
        return np.isin(reading.whole_numbers(array), np.array(values.wholes, dtype=np.int64))

    attribute = Integer(minimum=0, maximum=99, missing=True, nulls=("1e19",))
    assert attribute.encode(pa.array([1, 2, 3])).tolist() == [1, 2, 3]
    monkeypatch.setattr(nulls._Values, "find", overflowing)
    with pytest.raises(OverflowError):
        attribute.encode(pa.array([1, 2, 3]))
    monkeypatch.setattr(column, "_prove", lambda *_: None)
    assert attribute.encode(pa.array([1, 2, 3])).tolist() == [attribute.missing_cell] * 3


def test_texts_that_cannot_be_looked_for_are_refused_when_the_spec_is_read() -> None:
    with pytest.raises(SpecError, match="too many or too long"):
        Boolean(missing=True, nulls=("x" * 2_000_000,))
