"""Declared columns: labels and codes of their cells, the values that are drawn, and what cannot be declared."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, nan

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from dpcore.errors import SpecError, UsageError
from dpcore.tables.reading.encoding import encode
from dpcore.universe import Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside
from dpcore.universe.attribute import MAX_CELLS
from dpcore.universe.categorical import Stems, canonical
from dpcore.universe.numeric import UnevenInteger

RNG = np.random.default_rng(0)
TEXT = pa.dictionary(pa.int32(), pa.string())
DAY, MOMENT = date(2025, 1, 1), datetime(2025, 1, 1)
YEAR = {"minimum": DAY, "maximum": date(2025, 12, 31)}
CLOCK = {"minimum": datetime(2025, 3, 1, 10, 30, 30), "maximum": datetime(2025, 3, 1, 12, 0, 0)}
OPEN = {"missing": True, "outside": Outside.OTHER}

LABELS = {
    "bins": (Integer(minimum=3, maximum=12, width=4), ("[3, 7)", "[7, 11)", "[11, 13)")),
    "single numbers": (Integer(minimum=-1, maximum=1), ("-1", "0", "1")),
    "edges": (Number((0, 1, 2.5), **OPEN), ("[0, 1)", "[1, 2.5]", "other", "missing")),
    "huge edges": (Number([-1e300, 0.1, 1e300]), ("[-1e+300, 0.1)", "[0.1, 1e+300]")),
    "weeks": (Date(minimum=DAY, maximum=date(2025, 1, 14), every=Every.WEEK), ("2025-W01", "2025-W02", "2025-W03")),
    "hours": (Datetime(**CLOCK, every=Every.HOUR), ("2025-03-01T10", "2025-03-01T11", "2025-03-01T12")),
    "truth": (Boolean(**OPEN), ("false", "true", "other", "missing")),
    "a declared other": (Categorical(("a", "other", "b"), **OPEN), ("a", "other", "b", "missing")),
    "a declared missing": (Categorical(("missing", "(missing)"), missing=True), ("missing", "(missing)", "((missing))")),
}  # fmt: skip


@pytest.mark.parametrize("case", LABELS)
def test_every_code_has_its_label(case):
    attribute, labels = LABELS[case]
    assert attribute.labels == labels
    assert attribute.size == len(labels)
    assert attribute.ordered is not isinstance(attribute, Boolean | Categorical)


def test_codes_for_other_and_missing_follow_the_declared_cells():
    attribute = Integer(minimum=0, maximum=99, width=10, **OPEN)
    assert (attribute.cells, attribute.other_cell, attribute.missing_cell, attribute.size) == (10, 10, 11, 12)
    assert (Boolean().other_cell, Boolean().missing_cell, Boolean().size) == (None, None, 2)
    declared = Categorical(("a", "other", "b"), **OPEN)
    assert (declared.size, declared.other_cell, declared.missing_cell) == (4, 1, 3)


DECODED = {
    "texts": (Categorical(("F", "M"), **OPEN), TEXT, ["F", "M", "other", None]),
    "a declared other": (Categorical(("a", "other", "b"), **OPEN), TEXT, ["a", "other", "b", None]),
    "whole numbers": (Categorical((1, 2), **OPEN), pa.int64(), [1, 2, None, None]),
    "fractions": (Categorical((np.float64(0.5), 2.0), **OPEN), pa.float64(), [0.5, 2.0, None, None]),
    "truth values": (Categorical((True, False), **OPEN), pa.bool_(), [True, False, None, None]),
    "texts and numbers": (Categorical((1, "a"), **OPEN), TEXT, ["1", "a", "other", None]),
    "truth and numbers": (Categorical((1, True), **OPEN), TEXT, ["1", "true", "other", None]),
    "booleans": (Boolean(**OPEN), pa.bool_(), [False, True, None, None]),
    "integers": (Integer(minimum=7, maximum=8, **OPEN), pa.int64(), [7, 8, None, None]),
    "parts of months": (
        Date(minimum=date(2024, 1, 15), maximum=date(2024, 3, 10), every=Every.MONTH, **OPEN),
        pa.date32(),
        [date(2024, 1, 15), date(2024, 2, 1), date(2024, 3, 1), None, None],
    ),
    "hours": (
        Datetime(**CLOCK, every=Every.HOUR),
        pa.timestamp("us"),
        [datetime(2025, 3, 1, 10, 30, 30), datetime(2025, 3, 1, 11), datetime(2025, 3, 1, 12)],
    ),
}


@pytest.mark.parametrize("case", DECODED)
def test_a_release_has_the_type_and_the_values_of_its_cells(case):
    attribute, kind, values = DECODED[case]
    decoded = attribute.decode(np.arange(attribute.size, dtype=np.int16), RNG)
    assert (decoded.type, attribute.arrow_type, decoded.to_pylist()) == (kind, kind, values)
    assert len(attribute.decode(np.array([], dtype=np.int64), RNG)) == 0
    for code in (-1, attribute.size):
        with pytest.raises(UsageError, match=f"0 to {attribute.size - 1}"):
            attribute.decode(np.array([0, code]), RNG)


@pytest.mark.parametrize("edges", [(0.0, 5e-324), (1.0, np.nextafter(1.0, 2.0)), (-1e308, 1e308), (1e308, 1.7e308)])
def test_a_number_is_drawn_inside_the_narrowest_and_the_widest_bin(edges):
    drawn = Number((*edges, 1.75e308)).decode(np.zeros(500, dtype=np.int64), RNG).to_numpy()
    assert (drawn >= edges[0]).all()
    assert (drawn < edges[1]).all()


@given(st.sets(st.integers(-999, 1000), max_size=8))
def test_values_that_are_drawn_go_back_to_their_bins(cuts):
    attribute = UnevenInteger(minimum=-1000, maximum=1000, cuts=tuple(sorted(cuts)))
    codes = np.repeat(np.arange(attribute.cells), 20)
    assert encode(attribute, attribute.decode(codes, np.random.default_rng(0))).tolist() == codes.tolist()
    assert len(set(attribute.labels)) == attribute.cells


@pytest.mark.parametrize(("maximum", "code", "values"), [(99, 3, 10), (94, 9, 5)])
def test_values_are_drawn_uniformly_from_their_cell(maximum, code, values):
    attribute = Integer(minimum=0, maximum=maximum, width=10)
    drawn = attribute.decode(np.full(20_000, code), np.random.default_rng(1)).to_numpy(zero_copy_only=False)
    counts = np.bincount(drawn - 10 * code, minlength=values)
    assert (len(counts), chisquare(counts).pvalue > 1e-6) == (values, True)
    counts[0] -= counts[0] // 5  # negative control: one value drawn a fifth too rarely
    assert chisquare(counts).pvalue < 1e-6


def label_of(day: date, every: Every) -> str:
    """What the calendar says, written down a second time."""
    week = day.isocalendar()
    return {
        Every.DAY: day.isoformat(),
        Every.WEEK: f"{week.year:04}-W{week.week:02}",
        Every.MONTH: f"{day.year:04}-{day.month:02}",
        Every.QUARTER: f"{day.year:04}-Q{(day.month - 1) // 3 + 1}",
        Every.YEAR: f"{day.year:04}",
    }[every]


@given(st.dates(max_value=date(9990, 1, 1)), st.integers(0, 1500), st.sampled_from(list(Every)[2:]))
def test_a_day_lies_in_the_bin_that_the_calendar_names(minimum, span, every):
    days = [minimum + timedelta(days=step) for step in range(span + 1)]
    attribute, expected = Date(minimum=days[0], maximum=days[-1], every=every), [label_of(day, every) for day in days]
    assert attribute.labels == tuple(dict.fromkeys(expected))
    assert [attribute.labels[code] for code in encode(attribute, pa.array(days))] == expected
    moments = Datetime(
        minimum=datetime(minimum.year, minimum.month, minimum.day, 7),
        maximum=datetime(days[-1].year, days[-1].month, days[-1].day, 8),
        every=every,
    )
    assert moments.labels == attribute.labels


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**40), max_value=10**40), st.floats(allow_nan=False, allow_infinity=False))  # fmt: skip
def test_a_canonical_text_is_the_exact_value(exact, double):
    assert Decimal(canonical(exact)) == exact
    assert float(canonical(double)) == double


def test_a_list_of_values_is_as_good_as_a_tuple():
    assert Categorical(["a", "b"]) == Categorical(("a", "b"))
    assert hash(Categorical(["a", "b"])) == hash(Categorical(("a", "b")))


REFUSED = [
    *[(Integer, {"minimum": 0, "maximum": 1, **wrong}) for wrong in (
        {"maximum": -1}, {"width": 0}, {"width": 2**63}, {"maximum": 2**53 + 1, "width": 2**40}, {"minimum": 0.0}, {"minimum": False},
        {"minimum": -(2**53) - 1, "width": 2**40}, {"maximum": 9, "width": 2.5}, {"outside": "ignore"}, {"maximum": MAX_CELLS}, {"maximum": 2**53},
    )],
    *[(UnevenInteger, {"minimum": 0, "maximum": 99, "cuts": cuts}) for cuts in ((0,), (100,), (5, 5), (6, 5), (1.5,), (True,))],
    (UnevenInteger, {"minimum": 0, "maximum": 99, "width": 5, "cuts": (5,)}),
    *[(Number, {"edges": edges}) for edges in ((), (1,), (0, 0), (1, 0), (0, nan), (0, inf), (-0.0, 0.0), (0, "1"), (False, 1), (0, 10**400))],
    *[(Categorical, {"values": values}) for values in (
        (), "FM", ("a", "a"), (1, "1"), (1, 1.0), (0.0, -0.0), ("",), (None,), (nan,), (inf,), (2**63,), ("\ud800",), (datetime(2025, 1, 1, tzinfo=UTC),),
    )],
    (Categorical, {"values": ("a",), "outside": Outside.CLIP}),
    (Categorical, {"values": ("F", "?"), "missing": True, "nulls": ("?",)}),
    (Boolean, {"outside": Outside.CLIP}),
    *[(Boolean, {"missing": True, "nulls": nulls}) for nulls in ((" ",), ("?", " ?"), "NA", ("\ud800",), (7,), ("x" * 10**6,))],
    *[(Stems, {"values": ("ab",), **shape}) for shape in ({"depth": 1, "length": 3}, {"depth": 4, "length": 3}, {"depth": 0, "length": 3})],
    *[(Date, {"minimum": DAY, "maximum": DAY, "every": Every.DAY, **wrong}) for wrong in (
        {"minimum": date(2025, 1, 2)}, {"minimum": MOMENT, "maximum": MOMENT}, {"minimum": "2025-01-01"}, {"every": Every.HOUR}, {"every": Every.MINUTE}, {"every": "fortnight"},
        {"every": Every.WEEK, "formats": ("%b-%Y",)}, {"every": Every.MONTH, "minimum": date(2024, 1, 15), "formats": ("%b-%Y",)},
    )],
    *[(Datetime, {"minimum": MOMENT, "maximum": MOMENT, "every": Every.DAY, **wrong}) for wrong in (
        {"minimum": datetime(2025, 1, 2)}, {"minimum": DAY, "maximum": DAY}, {"minimum": MOMENT.replace(tzinfo=UTC)}, {"minimum": MOMENT.replace(year=2024, microsecond=1)},
        {"minimum": datetime(1, 1, 1), "every": Every.MINUTE}, {"every": Every.MONTH, "formats": ("%b-%Y",)},
    )],
]  # fmt: skip


@pytest.mark.parametrize(("kind", "declared"), REFUSED, ids=lambda part: getattr(part, "__name__", repr(part)))
def test_a_column_that_cannot_be_read_or_released_exactly_is_refused(kind, declared):
    with pytest.raises(SpecError):
        kind(**declared)


def test_as_many_cells_as_a_model_can_hold_are_allowed():
    assert Integer(minimum=0, maximum=MAX_CELLS - 1).cells == MAX_CELLS


@pytest.mark.parametrize(
    ("low", "high", "width"),
    [(-9 * 10**15, 9 * 10**15, 10**15), (-(2**53), 2**53, 2**51), (0, 2**53, 2**53), (-5, 7, 3)],
)
def test_a_range_of_any_size_has_a_bound_for_each_bin(low: int, high: int, width: int) -> None:
    attribute = Integer(minimum=low, maximum=high, width=width)
    assert attribute.whole_bounds.tolist() == [*range(low, high + 1, width), high + 1]
    assert len(attribute.whole_bounds) == attribute.cells + 1
