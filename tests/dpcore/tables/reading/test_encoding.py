"""Every kind of column: which cell a value belongs to, in every type that can hold it."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from math import floor, inf, nan, nextafter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import SourceError
from dpcore.tables.reading import values as reading
from dpcore.tables.reading.encoding import encode, encode_rows
from dpcore.universe import Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside, Universe
from dpcore.universe.categorical import Stems
from dpcore.universe.fine_days import FineDatetime, WeekTimes
from dpcore.universe.fine_numbers import FineNumber
from dpcore.universe.leaves import Scale
from dpcore.universe.numeric import UnevenInteger

YEAR = {"minimum": date(2025, 1, 1), "maximum": date(2025, 12, 31), "every": Every.MONTH}
LARGEST = 1.7976931348623157e308

# Null, below, above, alien: what becomes of them. This is the contract, written out.
FIRST, LAST, OTHER, MISSING, DROP = "first", "last", "other", "missing", -1
POLICY = {
    (Outside.CLIP, True): (MISSING, FIRST, LAST, MISSING),
    (Outside.CLIP, False): (DROP, FIRST, LAST, DROP),
    (Outside.OTHER, True): (MISSING, OTHER, OTHER, OTHER),
    (Outside.OTHER, False): (OTHER, OTHER, OTHER, OTHER),
    (Outside.DROP, True): (MISSING, DROP, DROP, DROP),
    (Outside.DROP, False): (DROP, DROP, DROP, DROP),
}
STRANGE = {
    Integer: ({"minimum": 0, "maximum": 99, "width": 10}, [["", "-1", "100", "ten"], [None, "-1e999", "1e999", "1_0"]]),
    Number: ({"edges": (0, 1, 50, 99)}, [["", "-0.1", "99.1", "ten"], ["nan", "-inf", "inf", "0x10"]]),
    Date: (YEAR, [["", "2024-12-31", "2026-01-01", "2025-02-30"], ["NaT", "0001-01-01", "9999-12-31", "2025"]]),
    Datetime: (
        {"minimum": datetime(2025, 1, 1), "maximum": datetime(2025, 12, 31), "every": Every.WEEK},
        [["", "2024-12-31T23:59:59", "2025-12-31T00:00:01", "2025-01-01T24:61:00"], [" ", "1000-01-01", "3000-01-01", "x"]],
    ),
    Categorical: ({"values": ("a", "b")}, [["", "c", "d", "undeclared"], [nan, 7.5, 8.5, 9.5]]),
    Boolean: ({}, [["", "c", "d", "undeclared"], [nan, 7.5, 8.5, 9.5]]),
}  # fmt: skip


@pytest.mark.parametrize("outside", list(Outside))
@pytest.mark.parametrize("kind", STRANGE, ids=lambda kind: kind.__name__)
def test_what_lies_in_no_cell_follows_the_policy(kind, outside):
    declared, columns = STRANGE[kind]
    if outside is Outside.CLIP and kind in (Categorical, Boolean):
        return
    for missing in (True, False):
        attribute = kind(**declared, outside=outside, missing=missing)
        codes = {
            FIRST: 0,
            LAST: attribute.cells - 1,
            OTHER: attribute.cells,
            MISSING: attribute.size - 1,
            DROP: -1,
        }
        for values in columns:
            assert encode(attribute, pa.array(values)).tolist() == [codes[at] for at in POLICY[outside, missing]]


ONE_TWO, TENTHS, SHORT = Categorical((1, 2)), Categorical((0.1, 2.5)), ("WD", " New", "COD", "COD ")
TIMES = Categorical(("2025-03-01", "2025-03-01T10:00:00", "10:30:00"))
ICD = Categorical(("250", "250.1"), prefixes=True, missing=True, outside=Outside.OTHER)
HALVES, TO_99 = Integer(minimum=-2, maximum=2), {"minimum": 0, "maximum": 99}
EDGE = Integer(minimum=2**53 - 2, maximum=2**53, outside=Outside.OTHER, missing=True)
AGES = UnevenInteger(**TO_99, cuts=(1, 18, 65), missing=True, outside=Outside.OTHER)
OPEN = {edges: Number(edges, missing=True, outside=Outside.DROP) for edges in ((0, 1), (-LARGEST, 0, LARGEST))}
DAYS = Date(minimum=date(2025, 3, 1), maximum=date(2025, 3, 3), every=Every.DAY, outside=Outside.DROP)
PARTS = Date(minimum=date(2024, 1, 15), maximum=date(2024, 3, 10), every=Every.MONTH, outside=Outside.OTHER)
PARTS_DAYS = [date(2024, 1, 14), date(2024, 1, 15), date(2024, 1, 31), date(2024, 2, 1), date(2024, 2, 29), date(2024, 3, 10), date(2024, 3, 11)]  # fmt: skip
HOURS = Datetime(minimum=datetime(2025, 3, 1), maximum=datetime(2025, 3, 2), every=Every.HOUR, outside=Outside.DROP)
AEON = Datetime(minimum=datetime(1, 1, 1), maximum=datetime(9999, 12, 31, 23, 59, 59), every=Every.YEAR)
NIGHT, NOON = datetime(2025, 3, 1, 23, 30, tzinfo=UTC), datetime(2025, 3, 1, 10, tzinfo=UTC)
US = Date(minimum=date(2026, 1, 1), maximum=date(2026, 12, 31), every=Every.MONTH, formats=("%m/%d/%Y",), missing=True)
CENTS = Scale(low=0, step=1, per=100, size=1_000_001)
WEEK = FineDatetime(minimum=datetime(2025, 1, 6), maximum=datetime(2025, 1, 19, 23), step="hour")
WEEK_DAYS = [
    datetime(2025, 1, 6, 0, 59),
    datetime(2025, 1, 14, 13),
    datetime(2025, 1, 19, 23, 30),
    datetime(2024, 1, 1),
]
ENCODED = {
    **{f"declared numbers in {column.type}": (ONE_TWO, column, [0, 1, -1]) for column in (
        pa.array([1, 2, 3]), pa.array([1, 2, 3], pa.uint8()), pa.array([1.0, 2.0, 3.5]), pa.array([1.0, 2.0, 3.0], pa.float16()),
        pa.array(["1.0", " 2", "0x1"]), pa.array(["1", "2", "3"]).dictionary_encode(), pa.array([b"1", b"2", b"3"]),
        pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("1.01")], pa.decimal32(5, 2)),
    )},
    "blanks around categories": (Categorical(SHORT, missing=True), ["WD ", " WD", "WD", "New", "COD", "COD ", "  ", " W D"], [0, 0, 0, 1, 2, 3, 4, -1]),
    "exact blanks": (Categorical(SHORT, missing=True, exact=True), ["WD ", " WD", "WD", "New", "COD", "COD ", "  ", " W D"], [-1, -1, 0, -1, 2, 3, -1, -1]),
    "a category of blanks": (Categorical((" ", "a"), missing=True), ["", None, " ", "a"], [2, 2, 0, 1]),
    "an exact category of blanks": (Categorical((" ", "a"), missing=True, exact=True), ["", None, " ", "a"], [2, 2, 0, 1]),
    "exact texts": (Categorical(("01", "1", " a"), exact=True), ["01", "1", " a", "a", "1.0", "001"], [0, 1, 2, -1, -1, -1]),
    "exact texts, numbers": (Categorical(("01", "1"), exact=True), [1, 2], [1, -1]),
    "fractions in float32": (TENTHS, pa.array([0.1, 2.5, 0.2], pa.float32()), [0, 1, -1]),
    "fractions in float64": (TENTHS, [0.1, 2.5, 0.2], [0, 1, -1]),
    "fractions in decimals": (TENTHS, [Decimal("0.100"), Decimal("2.500"), Decimal("0.101")], [0, 1, -1]),
    "days as categories": (TIMES, [date(2025, 3, 1)], [0]),
    "moments as categories": (TIMES, [NOON.replace(tzinfo=None)], [1]),
    "moments elsewhere as categories": (TIMES, pa.array([NOON], pa.timestamp("ns", "Asia/Tokyo")), [1]),
    "times as categories": (TIMES, pa.array([37800], pa.time32("s")), [2]),
    "truth as categories": (Categorical((True, False)), [False, True], [1, 0]),
    "truth as categories, in text": (Categorical((True, False)), ["true", "false", "True"], [0, 1, -1]),
    "a declared other": (Categorical(("a", "other", "b"), outside=Outside.OTHER, missing=True), ["zzz", "other", "b", None], [1, 1, 2, 3]),
    "a declared other, dropping": (Categorical(("a", "other")), ["zzz", "other"], [-1, 1]),
    "a declared missing": (Categorical(("missing", "(missing)"), missing=True), ["missing", None], [0, 2]),
    "prefixes of texts": (ICD, ["250", "250.1", "250.13", "250.2", "25", "401", "", " 250", "x250"], [0, 1, 1, 0, 2, 2, 3, 0, 2]),
    "prefixes of whole numbers": (ICD, [250, 2500, 25], [0, 0, 2]),
    "prefixes of fractions": (ICD, [250.0, 250.13, 25.0], [0, 1, 2]),
    "prefixes of days": (Categorical(("2025-03", "2025"), prefixes=True), [date(2025, 3, 1), date(2024, 3, 1)], [0, -1]),
    "no prefixes": (Categorical(("250",)), ["250", "250.1"], [0, -1]),
    "a number before a prefix": (Categorical((1, 10), prefixes=True), ["1", "1.0", "10.0", "100", "2"], [0, 0, 1, 1, -1]),
    "a stem that is a null": (Stems(values=("NA", "NB"), depth=2, length=4, missing=True, nulls=("NA",), outside=Outside.OTHER), ["NA", "NAB", "NB"], [3, 0, 1]),
    "words for true": (Boolean(), ["true", "T", "Yes", " y ", "1", "TRUE"], [1] * 6),
    "words for false": (Boolean(), ["false", "F", "No", "\tn", "0", "FALSE"], [0] * 6),
    "truth in whole numbers": (Boolean(), [0, 1, 2], [0, 1, -1]),
    "truth in fractions": (Boolean(), [0.0, 1.0, 0.5], [0, 1, -1]),
    "truth in decimals": (Boolean(), [Decimal("0.0"), Decimal("1.0"), Decimal("0.1")], [0, 1, -1]),
    "the last bin is shorter": (Integer(minimum=3, maximum=12, width=4), [3, 6, 7, 10, 11, 12], [0, 0, 1, 1, 2, 2]),
    "the widest bin": (Integer(minimum=-(2**53), maximum=2**53, width=2**54 + 1), [-(2**53), 0, 2**53], [0, 0, 0]),
    "floors": (HALVES, [-2.0, -1.5, -0.5, 0.0, 0.9, 2.9], [0, 0, 1, 2, 2, 4]),
    "floors in text": (HALVES, ["-2.0", "-1.5", "-0.5", "0.0", "0.9", "2.9"], [0, 0, 1, 2, 2, 4]),
    "floors in decimals": (HALVES, [Decimal("-2.0"), Decimal("-1.5"), Decimal("0.9")], [0, 0, 2]),
    "truth as numbers": (Integer(minimum=0, maximum=1), [True, False, None], [1, 0, -1]),
    "large numbers beside nulls": (EDGE, [2**53 - 3, 2**53 - 2, 2**53 - 1, 2**53, 2**53 + 2, 2**62 + 1, None], [3, 0, 1, 2, 3, 3, 4]),
    "large unsigned numbers": (EDGE, pa.array([2**53 - 1, 2**64 - 1, None], pa.uint64()), [1, 3, 4]),
    "decimals with many places": (Integer(**TO_99), pa.array([Decimal(7), Decimal(98)], pa.decimal128(38, 5)), [7, 98]),
    **{f"uneven bins in {kind}": (AGES, pa.array([0, 1, 17, 18, 64, 65, 99, None]).cast(kind), [0, 1, 1, 2, 2, 3, 3, 5])
       for kind in (pa.int8(), pa.uint64(), pa.float64(), pa.decimal128(25, 2), pa.string())},
    "outside uneven bins": (AGES, pa.array([100, 2**64 - 1], pa.uint64()), [4, 4]),
    "edges": (Number((0, 1, 2.5), outside=Outside.OTHER), [-0.0, nextafter(1, 0), 1, 2.5, nextafter(2.5, 3), -5e-324], [0, 0, 1, 1, 2, 2]),
    "infinity": (OPEN[0, 1], [inf, -inf, nan], [-1, -1, 1]),
    "infinity beyond the largest": (OPEN[-LARGEST, 0, LARGEST], [inf, -inf, nan], [-1, -1, 2]),
    "unsigned beyond signed": (Number((0, 1e19, 2e19)), pa.array([0, 2**64 - 1], pa.uint64()), [0, 1]),
    "parts of months": (PARTS, PARTS_DAYS, [3, 0, 0, 1, 1, 2, 3]),
    "weeks": (Date(minimum=date(2025, 1, 1), maximum=date(2025, 1, 14), every=Every.WEEK), [date(2025, 1, day) for day in (5, 6, 12, 13)], [0, 1, 1, 2]),
    "hours": (HOURS, [datetime(2025, 3, 1, 10, 59, 59, 999999), datetime(2025, 3, 1, 11)], [10, 11]),
    "to the end of a second": (HOURS, [datetime(2025, 3, 2), datetime(2025, 3, 2, 0, 0, 0, 999999), datetime(2025, 3, 2, 0, 0, 1)], [24, 24, -1]),
    "days as moments": (HOURS, [date(2025, 3, 2)], [24]),
    "days as moments in text": (HOURS, ["2025-03-02"], [24]),
    **{f"night in {unit} {zone}": (DAYS, pa.array([NIGHT], pa.timestamp(unit, zone)), [0])
       for unit in ("s", "ms", "us", "ns") for zone in (None, "Europe/Berlin", "No/Where")},
    "ISO texts": (DAYS, ["2025-03-02", " 2025-03-02 ", "20250302", "2025-03-02T23:59:59.999999", "2025-03-02 00:00", "2025-03-02T23:30:00Z",
        "2025-03-02T23:30:00-01:00", "2025-03-03T00:30:00+01:00", "2025-02-30", "02/03/2025", "45718"], [1, 1, 1, 1, 1, 1, 2, 1, -1, -1, -1]),
    "whole numbers are no days": (DAYS, [20149], [-1]),
    "numbers are no days": (DAYS, [20149.0], [-1]),
    "ends of the calendar": (AEON, ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"], [0, 9998]),
    "formats": (US, ["01/31/2026", "2026-01-31", None, "13/31/2026"], [0, 12, 12, 12]),
    "formats of typed days": (US, [date(2026, 2, 3), date(2027, 1, 1)], [1, 11]),
    "formats of numbers": (US, [0, 1], [12, 12]),
    "nearest multiples": (FineNumber(scale=CENTS, starts=(1, 29, 30), missing=True), [0.0049, 0.0051, 0.29, 0.2949, 0.2951, -3.0, 2e4, None], [0, 1, 2, 2, 3, 0, 3, 4]),
    "ends of multiples": (FineNumber(scale=CENTS, starts=(1,), outside=Outside.DROP), [-0.001, 10_000.0, 10_000.001], [-1, 1, -1]),
    "times of the week": (WeekTimes(column=WEEK, starts=tuple(range(1, 168)), outside=Outside.OTHER), WEEK_DAYS, [0, 37, 168, 168]),
    "clipped times of the week": (WeekTimes(column=WEEK, starts=tuple(range(1, 168)), outside=Outside.CLIP), WEEK_DAYS, [0, 37, 167, 0]),
}  # fmt: skip


@pytest.mark.parametrize("case", ENCODED)
def test_a_value_has_the_code_of_its_cell(case):
    attribute, column, codes = ENCODED[case]
    assert encode(attribute, column if isinstance(column, pa.Array) else pa.array(column)).tolist() == codes


KINDS = ["int8", "int64", "uint8", "uint64"]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_whole_numbers_of_any_width_are_binned_as_by_hand(kind, data):
    limits = np.iinfo(kind)
    near = st.integers(-300, 300) | st.integers(max(limits.min, 1 - 2**53), min(limits.max, 2**53 - 1))
    minimum = data.draw(near)
    maximum = min(minimum + data.draw(st.integers(0, 2_000)), 2**53 - 1)
    width = data.draw(st.integers(1, 3) | st.integers(1, 2**40))
    attribute = Integer(minimum=minimum, maximum=maximum, width=width, outside=Outside.OTHER)
    around = [minimum - 1, minimum, minimum + 1, minimum + width, maximum, maximum + 1, limits.min, limits.max]
    values = [value for value in (*around, *data.draw(st.lists(near))) if limits.min <= value <= limits.max]
    expected = [(v - minimum) // width if minimum <= v <= maximum else attribute.other_cell for v in values]
    assert encode(attribute, pa.array(values, pa.from_numpy_dtype(kind))).tolist() == expected


@given(st.integers(-1000, 1000), st.integers(1, 50), st.floats(allow_nan=False))
def test_the_bin_of_a_float_is_that_of_its_floor(minimum, width, value):
    attribute = Integer(minimum=minimum, maximum=minimum + 500, width=width)
    whole = minimum - 1 if value == -inf else minimum + 501 if value == inf else floor(value)
    expected = (min(max(whole, minimum), minimum + 500) - minimum) // width
    assert encode(attribute, pa.array([value])).tolist() == [expected]


@given(
    minimum=st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda moment: moment.replace(microsecond=0)),
    seconds=st.integers(0, 3 * 10**6),
    every=st.sampled_from(Every),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    others=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
)
def test_every_bound_of_a_calendar_and_its_neighbours_are_placed_as_by_a_search(
    minimum, seconds, *, every, unit, others
):
    maximum, scale = minimum + timedelta(seconds=seconds), {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    attribute = Datetime(minimum=minimum, maximum=maximum, every=every, outside=Outside.OTHER)
    bounds = attribute.whole_bounds * scale
    values = np.concatenate([bounds, bounds - 1, bounds + 1, np.array(others, dtype=np.int64)])
    found = np.searchsorted(bounds, values, side="right") - 1
    expected = np.where((values < bounds[0]) | (values >= bounds[-1]), attribute.other_cell, found)
    assert encode(attribute, pa.array(values).view(pa.timestamp(unit))).tolist() == expected.tolist()
    days = np.concatenate([bounds, bounds - 1, bounds + 1]) // (86_400 * scale)
    midnights, column = (
        pa.array(days * 86_400).view(pa.timestamp("s")),
        pa.array(days.astype(np.int32)).view(pa.date32()),
    )
    assert encode(attribute, column).tolist() == encode(attribute, midnights).tolist()


LETTERS = st.text("ab.", max_size=5)


@given(st.lists(LETTERS.filter(bool), min_size=1, unique=True), st.lists(LETTERS))
def test_a_text_goes_to_its_longest_declared_prefix(declared, texts):
    attribute = Categorical(tuple(declared), prefixes=True, missing=True, outside=Outside.OTHER)
    for text, code in zip(texts, encode(attribute, pa.array(texts, pa.string())).tolist(), strict=True):
        fitting = [value for value in declared if text.startswith(value)]
        expected = declared.index(max(fitting, key=len)) if fitting else attribute.other_cell
        assert code == (expected if text else attribute.missing_cell)


@given(st.lists(LETTERS))
def test_stems_split_all_texts_and_each_level_refines_the_one_before(texts):
    all_texts = ["a", "b", ".", *(first + second for first in "ab." for second in "ab.")]
    coarse = Stems(values=("a", "b", "."), depth=1, length=3, missing=True, outside=Outside.OTHER)
    fine = Stems(values=tuple(all_texts), depth=2, length=3, missing=True, outside=Outside.OTHER)
    column = pa.array(texts, pa.string())
    for text, rough, exact in zip(texts, encode(coarse, column), encode(fine, column), strict=True):
        if not 1 <= len(text) <= 3:
            assert (rough, exact) == ((coarse.missing_cell, fine.missing_cell) if not text else (3, len(all_texts)))
        else:
            assert (coarse.values[rough], fine.values[exact]) == (text[:1], text[:2])


def read_alone(read, text, refused):
    try:
        value = read(text)
    except ValueError:
        return refused, 0
    return (-1, 0) if value is None else (0, value)


MOMENTS = st.datetimes(timezones=st.none() | st.just(timezone(timedelta(hours=7))) | st.just(UTC))
PLAIN_DAYS = [f"{year}-{month:02}-{day:02}" for year in (1900, 2023, 2024) for month in range(14) for day in range(33)]


@settings(deadline=None)
@given(
    st.lists(st.from_regex(r"\A-?[0-9]{1,15}(\.[0-9]{1,15})?\Z") | st.text() | st.floats().map(str)),
    st.lists(MOMENTS.map(datetime.isoformat) | MOMENTS.map(lambda moment: str(moment.replace(microsecond=0)))),
)
def test_arrow_and_python_read_the_same_from_a_text(numbers, moments):
    for texts, read, alone in (
        (numbers, reading.numbers, reading.number),
        ([*moments, *PLAIN_DAYS], reading.moments, reading._moment),
    ):
        values, states = read(pa.array([text.encode() for text in texts], pa.large_binary()))
        expected = [read_alone(alone, text, refused=-4) for text in texts]
        np.testing.assert_array_equal(states, [state for state, _ in expected])
        np.testing.assert_array_equal(values, np.array([value for _, value in expected], dtype=values.dtype))


CLINIC = Universe(
    {
        "sex": Categorical(("F", "M"), missing=True),
        "age": Integer(minimum=0, maximum=99, width=5),
        "cost": Number((0, 100, 500, 2000, 10000)),
        "visit": Date(minimum=date(2025, 1, 1), maximum=date(2026, 12, 31), every=Every.MONTH),
        "smoker": Boolean(outside=Outside.OTHER),
    }
)


def test_a_row_that_one_attribute_drops_is_dropped_from_all_and_from_the_mask():
    table = pa.table(
        {
            "id": [1, 2, 3, 4],
            "smoker": ["yes", "no", "perhaps", None],
            "visit": ["2025-03-01", "2025-02-28", "never", "2030-01-01"],
            "cost": [50.0, 100.0, 1.0, inf],
            "age": [7, 99, 1, -3],
            "sex": ["F", "X", "M", None],
        }
    )
    codes, keep = encode_rows(CLINIC, table)
    assert keep.tolist() == [True, False, False, True]
    assert [column.tolist() for column in codes] == [[0, 2], [1, 0], [0, 3], [2, 23], [1, 2]]
    assert {column.dtype for column in codes} == {np.dtype(np.uint8)}
    empty, kept = encode_rows(CLINIC, CLINIC.schema.empty_table())
    assert ([len(column) for column in empty], len(kept)) == ([0] * 5, 0)


@pytest.mark.parametrize("names", [["a"], ["a", "b", "b"]])
def test_a_table_without_exactly_one_of_each_column_is_refused_by_name(names):
    universe = Universe({"a": Boolean(), "b": Boolean()})
    table = pa.Table.from_arrays([pa.array(["poison"])] * len(names), names=names)
    with pytest.raises(SourceError, match="'b'") as refusal:
        encode_rows(universe, table)
    assert "poison" not in str(refusal.value)
