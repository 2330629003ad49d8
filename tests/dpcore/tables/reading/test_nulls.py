"""Texts that count as null: found in every kind of column, in every type that can write them."""

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpcore.tables.reading.encoding import encode
from dpcore.tables.reading.nulls import named_nulls
from dpcore.universe import Attribute, Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside

OPEN: dict[str, Any] = {"missing": True, "nulls": ("?", "NA", "-9"), "outside": Outside.OTHER}
KINDS: dict[str, Attribute] = {
    "F": Categorical(("F", "M"), **OPEN),
    "no": Boolean(**OPEN),
    "-99": Integer(minimum=-99, maximum=99, **OPEN),
    "0.5": Number((0, 1), **OPEN),
    "2025-01-31": Date(minimum=date(2025, 1, 1), maximum=date(2025, 12, 31), every=Every.MONTH, **OPEN),
    "2025-01-31T08:00:00": Datetime(minimum=datetime(2025, 1, 1), maximum=datetime(2025, 12, 31), every=Every.MONTH, **OPEN),
}  # fmt: skip


@pytest.mark.parametrize("inside", KINDS)
def test_a_text_that_counts_as_null_goes_to_the_missing_cell(inside: str) -> None:
    attribute = KINDS[inside]
    texts = pa.array(["?", " NA ", inside, "-9", "NN", "??", None])
    missing, other = attribute.missing_cell, attribute.other_cell
    for column in (texts, texts.cast(pa.large_string()), texts.cast(pa.binary()), texts.dictionary_encode()):
        assert encode(attribute, column).tolist() == [missing, missing, 0, missing, other, other, missing]
    assert encode(attribute, pa.array([b"?", b"\xff\xfe"], pa.binary())).tolist() == [missing, other]


DENOTED = [
    ([-9, 9, 0], pa.int8(), ["-9", "NA"]),
    ([9, 1, 0], pa.uint64(), ["9.0"]),
    ([2**63 - 1, 2**62, 0], pa.int64(), ["9223372036854775807", "?"]),
    ([1e20, 7, 0], pa.float64(), ["1e20"]),
    ([-9.0, 9.0, 0.0], pa.float64(), ["-9", "nan"]),
    ([0.1, 0.2, 0.0], pa.float32(), ["0.1"]),
    ([np.inf, 3e38, -np.inf], pa.float32(), ["inf", "1e300"]),  # 1e300 is no float32
    ([Decimal("-9.00"), Decimal("9.00"), Decimal(0)], pa.decimal128(5, 2), ["-9", "NA"]),
    ([date(1900, 1, 1), date(1900, 1, 2), date(1970, 1, 1)], pa.date32(), ["1900-01-01", "0"]),
    ([datetime(1900, 1, 1), datetime(1900, 1, 2), datetime(1970, 1, 1)], pa.timestamp("us"), ["1900-01-01"]),
    ([time(0), time(1), time(2)], pa.time32("s"), ["00:00:00"]),
    ([True, False, False], pa.bool_(), ["true"]),
    ([".*", "x", "a"], pa.large_binary(), [".*", "(", "a|b"]),
]


@pytest.mark.parametrize(("values", "stored", "texts"), DENOTED, ids=lambda part: str(part)[:40])
def test_a_text_stands_for_the_value_it_writes(values: list[Any], stored: pa.DataType, texts: list[str]) -> None:
    assert named_nulls(pa.array(values, stored), texts).tolist() == [True, False, False]
    assert (
        named_nulls(pa.array([*values, None], stored), ["77"]).tolist()[:3] == [False] * 3
    )  # nulls are not its affair


def test_a_text_that_writes_no_value_of_a_type_is_in_no_column_of_it() -> None:
    assert not named_nulls(pa.array([0, 1, -(2**63)]), ["?", "NA", "nan", "1.5", "inf", "2025-01-31", "1_0"]).any()
    assert not named_nulls(pa.array([[1], [2]]), ["1"]).any()
    assert not named_nulls(pa.array([date(2025, 3, 1), None]), ["7", "0.5", "20148"]).any()
