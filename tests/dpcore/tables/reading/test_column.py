"""Totality: no Arrow type and no value raises, warns, or changes what happens to another row."""

import logging
import struct
import warnings
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.tables.reading import column
from dpcore.tables.reading.encoding import encode, encode_rows
from dpcore.tables.reading.places import ALIEN, signed_type
from dpcore.universe import Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside, Universe
from dpcore.universe.categorical import Stems
from dpcore.universe.numeric import UnevenInteger

ATTRIBUTES = {
    "categorical text": Categorical(("F", "M", "1", "2025-01-01"), missing=True),
    "categorical int": Categorical((1, 2, 3), outside=Outside.OTHER),
    "categorical float": Categorical((0.1, 1.0, 1e300), missing=True, outside=Outside.OTHER),
    "categorical mixed": Categorical((1, "a", 2.5, True)),
    "categorical prefixes": Categorical(("1", "2025", "a"), prefixes=True, outside=Outside.OTHER),
    "categorical with nulls": Categorical(
        ("F", "1"), missing=True, nulls=("?", "-3", "2025-01-01", "true"), outside=Outside.OTHER
    ),
    "stems": Stems(values=("1", "a", "2"), depth=1, length=10, missing=True, outside=Outside.OTHER),
    "boolean": Boolean(missing=True),
    "integer uneven": UnevenInteger(minimum=-5, maximum=7, cuts=(0, 1), missing=True, nulls=("1", "NaT")),
    "integer": Integer(minimum=-5, maximum=7, width=3, missing=True),
    "integer wide": Integer(minimum=-(2**53), maximum=2**53, width=2**50, outside=Outside.OTHER),
    "number": Number((-1.5, 0, 1e10), missing=True, outside=Outside.OTHER),
    "number wide": Number((-1.7976931348623157e308, 0, 1.7976931348623157e308), outside=Outside.DROP),
    "date": Date(minimum=date(2024, 12, 30), maximum=date(2025, 2, 1), every=Every.WEEK, missing=True),
    "date wide": Date(minimum=date(1, 1, 1), maximum=date(9999, 12, 31), every=Every.YEAR, outside=Outside.OTHER),
    "datetime": Datetime(minimum=datetime(1, 1, 1), maximum=datetime(9999, 12, 31), every=Every.MONTH, missing=True),
}
TEXTS = [
    None, "", " ", "F", "1", "1.0", "-3", "+4", "1e999", "-1e999", "9" * 5000, "1_0", "nan", "inf", "NaT", "0x1F", "\x00", "1\x00", "٣",
    "true", " Yes ", "TRUE", "2025-01-01", "2025-02-29", "2025-01-01T10:00:00Z", "0001-01-01T00:00:00+23:59", "20250101", "2025-W01-1",
    "9999-12-31T23:59:59-23:59", "2025-01-01 10:00:00.123456789+01:00", "0000-01-01", "12025-01-01", "\U0001f600", "a" * 10_000,
]  # fmt: skip
INTS = {kind: np.iinfo(str(kind)) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())}  # fmt: skip
FLOATS = [None, 0.0, -0.0, 1.0, 2.5, -1.5, float("nan"), float("inf"), float("-inf"), 65504.0]
DAYS = [None, 0, 1, -1, 20089, 2**31 - 1, -(2**31)]
TICKS = [None, 0, 1, -1, 2**63 - 1, -(2**63), 1735689600, 1735689600 * 10**6]
SIGNALLING_NAN = struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf0\x7f")[0]


class Tagged(pa.ExtensionType):
    """A type that nobody registered."""

    def __init__(self):
        super().__init__(pa.string(), "dpflow.tests.tagged")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def not_utf8():
    offsets = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    return pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"\xff\xfe12"))


def every_column():
    texts = pa.array(TEXTS)
    yield pa.nulls(3)
    yield pa.array([None, True, False])
    for kind, info in INTS.items():
        yield pa.array([None, 0, 1, 7, info.min, info.max], kind)
    for kind in (pa.float32(), pa.float64()):
        yield pa.array([*FLOATS, 1e30], kind)
    yield pa.array([None if value is None else np.float16(value) for value in FLOATS], pa.float16())
    yield pa.array(np.array([SIGNALLING_NAN, 1.0]))
    for kind in (
        pa.decimal32(5, 2),
        pa.decimal64(9, 3),
        pa.decimal128(38, 0),
        pa.decimal128(3, 3),
        pa.decimal256(76, 40),
    ):
        yield pa.array([None, Decimal(0), Decimal("0.5")] if kind.scale else [None, Decimal(10**37)], kind)
    yield pa.array([None, Decimal(10**40), Decimal(-(10**40))], pa.decimal256(40, -30))
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()):
        yield texts.cast(kind)
    yield pa.array([b"\xff", b"1", None, b"\xed\xa0\x80"])
    yield not_utf8()
    yield pa.array([b"F\x00\x00", b"123", None], pa.binary(3))
    yield pa.array(DAYS, pa.int32()).view(pa.date32())
    yield pa.array(TICKS, pa.int64()).view(pa.date64())
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Europe/Berlin", "+07:30", "No/Where"):
            yield pa.array(TICKS, pa.int64()).view(pa.timestamp(unit, zone))
        yield pa.array(TICKS, pa.int64()).view(pa.duration(unit))
    for kind in (pa.time32("s"), pa.time32("ms")):
        yield pa.array(DAYS, pa.int32()).view(kind)
    for kind in (pa.time64("us"), pa.time64("ns")):
        yield pa.array(TICKS, pa.int64()).view(kind)
    yield pa.array([None, (1, 2, 3)], pa.month_day_nano_interval())
    for kind in (
        pa.list_(pa.string()),
        pa.large_list(pa.string()),
        pa.list_view(pa.string()),
        pa.list_(pa.string(), 1),
    ):
        yield pa.array([None, ["F"], ["1"]], kind)
    yield pa.array([None, {"a": 1}])
    yield pa.array([None, [("a", 1)]], pa.map_(pa.string(), pa.int8()))
    children = [pa.array([1, None]), pa.array(["F", None])]
    yield pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), children)
    yield pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), children)
    yield texts.dictionary_encode()
    yield pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.uint8()), pa.array(["F", None, ""]))
    yield pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.string()))
    yield pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([["F"], None]))
    yield pa.RunEndEncodedArray.from_arrays([2, 3, 9], pa.array(["F", None, "1"]))
    yield pa.RunEndEncodedArray.from_arrays([2, 3, 9], pa.array(["F", None, "1"]).dictionary_encode())
    yield pa.ExtensionArray.from_storage(Tagged(), texts)
    yield pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef", None], pa.binary(16)))
    yield pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, None], pa.int8()))
    yield pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "{", None]))


COLUMNS = list(every_column())


@pytest.fixture(params=list(ATTRIBUTES))
def attribute(request):
    return ATTRIBUTES[request.param]


@pytest.fixture
def no_catch_all(monkeypatch):
    """Let through what the catch-all would catch, so that a test sees whether anything needed it."""
    monkeypatch.setattr(column, "_total", lambda array, attempt: attempt(array))


def row_by_row(attribute, array):
    return [encode(attribute, array.slice(row, 1)).item() for row in range(len(array))]


@pytest.mark.parametrize("array", COLUMNS, ids=[f"{i}-{array.type}" for i, array in enumerate(COLUMNS)])
def test_every_row_of_every_type_gets_a_code_that_no_other_row_changes(array):
    for attribute in ATTRIBUTES.values():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            codes = encode(attribute, array)
        assert not told
        assert codes.dtype == signed_type(attribute.size)
        assert codes.tolist() == row_by_row(attribute, array)
        assert codes.min(initial=-1) >= -1
        assert codes.max(initial=-1) < attribute.size
        assert encode(attribute, pa.chunked_array([array, array[1:]])).tolist() == [
            *codes.tolist(),
            *codes.tolist()[1:],
        ]
        assert encode(attribute, array[:0]).tolist() == []


def test_no_known_type_needs_the_catch_all(attribute, no_catch_all):
    with np.errstate(all="ignore"):
        for array in COLUMNS:
            encode(attribute, array)


def any_array():
    def of(kind, values):
        return st.lists(st.none() | values, max_size=12).map(lambda found: pa.array(found, kind))

    def viewed(kind, storage, bits):
        return of(storage, st.integers(-(2**bits), 2**bits - 1)).map(lambda array: array.view(kind))

    near = st.integers(-(2**40), 2**40)
    moments = (
        st.datetimes().map(str) | st.datetimes(timezones=st.timezones()).map(datetime.isoformat) | st.dates().map(str)
    )
    writing = (
        st.text()
        | st.floats().map(repr)
        | near.map(str)
        | moments
        | st.from_regex(r"[ +-]?[0-9_]*\.?[0-9]*(e[0-9]+)? ?")
    )
    texts = of(
        pa.large_string(),
        writing.filter(lambda text: text.isprintable() or not any("\ud800" <= c <= "\udfff" for c in text)),
    )
    return st.one_of(
        of(pa.int64(), near | st.integers(-(2**63), 2**63 - 1)),
        of(pa.uint64(), st.integers(0, 2**64 - 1)),
        of(pa.float64(), st.floats()),
        of(pa.float32(), st.floats(width=32)),
        of(pa.binary(), st.binary(max_size=6)),
        of(pa.decimal128(38, 5), st.decimals(-(10**30), 10**30, places=5)),
        of(pa.bool_(), st.booleans()),
        viewed(pa.date32(), pa.int32(), 31),
        viewed(pa.timestamp("ns", "UTC"), pa.int64(), 63),
        viewed(pa.timestamp("s"), pa.int64(), 63),
        viewed(pa.timestamp("s"), pa.int64(), 37),
        texts,
        texts.map(lambda array: array.dictionary_encode()),
    )


@settings(deadline=None)
@given(array=any_array(), name=st.sampled_from(list(ATTRIBUTES)))
def test_any_value_gets_a_code_that_no_other_row_changes(array, name):
    attribute = ATTRIBUTES[name]
    codes = encode(attribute, array).tolist()
    assert codes == row_by_row(attribute, array)
    assert encode(attribute, array[::-1] if len(array) else array).tolist() == codes[::-1]
    assert all(-1 <= code < attribute.size for code in codes)


def test_what_breaks_the_reading_makes_only_its_own_row_alien():
    def place(array):
        values = array.to_numpy(zero_copy_only=False)
        if (values == 13).any():
            raise RuntimeError("poison 13")
        return values.copy()

    array = pa.array([5, 13, 7, 8, 13, 2])
    assert column.place_column(array, place).tolist() == [5, ALIEN, 7, 8, ALIEN, 2]


def test_blocks_join_without_a_seam(monkeypatch, attribute):
    array = pa.array(TEXTS + [str(number) for number in range(-20, 20)])
    whole = encode(attribute, array)
    monkeypatch.setattr(column, "CHUNK_ROWS", 7)
    np.testing.assert_array_equal(encode(attribute, array), whole)
    numbers = pa.array(np.arange(-20.0, 20.0))
    np.testing.assert_array_equal(encode(attribute, numbers), row_by_row(attribute, numbers))


def test_encoding_leaves_the_column_as_it_was(attribute):
    values = np.array([1, 2, -(2**40), 2**40])
    array = pa.array(values)
    before = array.to_pylist()
    encode(attribute, array)
    assert array.to_pylist() == before


def test_nothing_is_said_about_a_value(capfd, caplog):
    poison = pa.table({"a": ["poison-\x00", "1e999", None], "b": pa.array([[1], None, [2]])})
    with caplog.at_level(logging.DEBUG):
        encode_rows(Universe({"a": ATTRIBUTES["number wide"], "b": ATTRIBUTES["date"]}), poison)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
