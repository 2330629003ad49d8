"""The forms of values."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dpcore.starter.forms import DATES, FORMS, Form, Forms
from dpcore.tables.reading.encoding import encode

TEXTS = [
    *("7", "-3", "7.0", "0.25", "1e3", "007", "12 Main St", "NA", "yes", "No", "", " 5 ", "inf", "nan", "x" * 40),
    *("2025-01-31", "2025-01-31T10:00:00", "2025-02-30", "1/31/2025", "31/1/2025", "31.01.2025", "31-Jan-2025"),
    *("1/31/2025 10:00", "20250131", "caf\u00e9"),
]


def form_of(value: Any) -> Form | str:
    forms = Forms()
    code = int(encode(forms, pa.array([value]))[0])
    return FORMS[code] if code < forms.cells else forms.labels[code]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        *(("7", "integer"), ("7.0", "integer"), (" 5 ", "integer"), ("20250131", "integer"), ("1e3", "integer")),
        *(("0.25", "number"), (0.25, "number"), (3.0, "integer"), (-3, "integer"), (Decimal("1.50"), "number")),
        *(("007", "text"), ("12 Main St", "text"), ("2025-02-30", "text"), ("x" * 40, "text"), ("inf", "text")),
        *(("NA", "null"), ("?", "null"), ("yes", "boolean"), ("No", "boolean"), (True, "boolean")),
        *((dt.date(2025, 1, 31), "date"), (dt.datetime(2025, 1, 31, 10), "datetime")),
    ],
)
def test_a_value_has_the_form_that_it_is_written_in(value: object, kind: str) -> None:
    form = form_of(value)
    assert isinstance(form, Form)
    assert form.kind == kind


@pytest.mark.parametrize("value", ["", " ", "nan", float("nan")])
def test_what_is_empty_or_no_number_is_missing(value: object) -> None:
    assert form_of(value) == "missing"


def test_dates_are_told_apart_by_their_formats_and_decades() -> None:
    for kind, written in DATES:
        text = dt.datetime(2025, 12, 31, 10, 5).strftime(
            written or ("%Y-%m-%d" if kind == "date" else "%Y-%m-%dT%H:%M:%S")
        )
        assert form_of(text) == Form(kind, 2020, 2030, written)
    assert form_of("1/12/2025") == Form("date", 2020, 2030, "%m/%d/%Y")  # either, so the first


def test_numbers_lie_between_the_bounds_of_their_form_and_those_beyond_in_the_outermost() -> None:
    for number in (-4321, -1, 0, 1, 2, 999, 1000, 0.003, -0.5):
        form = form_of(number)
        assert isinstance(form, Form)
        assert form.low <= number < form.high
    assert form_of(10**14) == form_of(9 * 10**13)


def test_the_form_of_a_value_depends_on_that_value_alone() -> None:
    together = encode(Forms(), pa.array(TEXTS)).tolist()
    assert together == [int(encode(Forms(), pa.array([text]))[0]) for text in TEXTS]
