"""Categories: one canonical text for each value, whatever type the data gives it."""

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import SpecError
from dpcore.universe import Boolean, Categorical, Outside
from dpcore.universe.categorical import canonical

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 3]),
        pa.array([1, 2, 3], pa.uint8()),
        pa.array([1.0, 2.0, 3.5]),
        pa.array([1.0, 2.0, 3.0], pa.float16()),
        pa.array(["1", "2", "3"]),
        pa.array(["1.0", " 2", "0x1"]),
        pa.array(["1", "2", "3"]).dictionary_encode(),
        pa.array([b"1", b"2", b"3"]),
        pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("1.01")]),
        pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("1.01")], pa.decimal32(5, 2)),
    ],
    ids=str,
)
def test_declared_numbers_are_found_in_every_type(column):
    assert Categorical((1, 2)).encode(column).tolist() == [0, 1, -1]


def test_blanks_at_the_ends_of_a_text_do_not_matter_unless_values_are_exact_or_differ_in_them_alone():
    column = pa.array(["WD ", " WD", "WD", "New", "COD", "COD ", "  ", " W D"])
    declared = ("WD", " New", "COD", "COD ")
    assert Categorical(declared, missing=True).encode(column).tolist() == [0, 0, 0, 1, 2, 3, 4, -1]
    assert Categorical(declared, missing=True, exact=True).encode(column).tolist() == [-1, -1, 0, -1, 2, 3, -1, -1]


@pytest.mark.parametrize("exact", [False, True])
def test_a_null_is_no_category_of_blanks(exact):
    blank = Categorical((" ", "a"), missing=True, exact=exact)
    assert blank.encode(pa.array(["", None, " ", "a"])).tolist() == [2, 2, 0, 1]


def test_exact_texts_are_found_only_as_they_stand():
    zips = Categorical(("01", "1", " a"), exact=True)
    assert zips.encode(pa.array(["01", "1", " a", "a", "1.0", "001"])).tolist() == [0, 1, 2, -1, -1, -1]
    assert zips.encode(pa.array([1, 2])).tolist() == [1, -1]


def test_a_fraction_is_found_in_both_float_widths_and_in_decimals():
    attribute = Categorical((0.1, 2.5))
    assert attribute.encode(pa.array([0.1, 2.5, 0.2], pa.float32())).tolist() == [0, 1, -1]
    assert attribute.encode(pa.array([0.1, 2.5, 0.2])).tolist() == [0, 1, -1]
    assert attribute.encode(pa.array([Decimal("0.100"), Decimal("2.500"), Decimal("0.101")])).tolist() == [0, 1, -1]


def test_times_are_found_by_their_iso_text():
    attribute = Categorical(("2025-03-01", "2025-03-01T10:00:00", "10:30:00"))
    moment = datetime(2025, 3, 1, 10, tzinfo=UTC)
    assert attribute.encode(pa.array([moment.date()])).tolist() == [0]
    assert attribute.encode(pa.array([moment.replace(tzinfo=None)])).tolist() == [1]
    assert attribute.encode(pa.array([moment], pa.timestamp("ns", "Asia/Tokyo"))).tolist() == [1]
    assert attribute.encode(pa.array([37800], pa.time32("s"))).tolist() == [2]


def test_booleans_are_found_by_their_lower_case_text():
    attribute = Categorical((True, False))
    assert attribute.encode(pa.array([False, True])).tolist() == [1, 0]
    assert attribute.encode(pa.array(["true", "false", "True"])).tolist() == [0, 1, -1]


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**40), max_value=10**40))
def test_the_text_of_a_decimal_is_its_exact_value(value):
    assert Decimal(canonical(value)) == value


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_float_gives_it_back(value):
    assert float(canonical(value)) == value


def test_a_declared_other_is_the_cell_for_whatever_is_not_declared():
    attribute = Categorical(("a", "other", "b"), outside=Outside.OTHER, missing=True)
    assert (attribute.size, attribute.other_cell, attribute.missing_cell) == (4, 1, 3)
    assert attribute.labels == ("a", "other", "b", "missing")
    assert attribute.encode(pa.array(["zzz", "other", "b", None])).tolist() == [1, 1, 2, 3]
    assert attribute.decode(np.arange(4), RNG).to_pylist() == ["a", "other", "b", None]


def test_a_declared_other_is_an_ordinary_category_when_outside_is_drop():
    attribute = Categorical(("a", "other"))
    assert attribute.encode(pa.array(["zzz", "other"])).tolist() == [-1, 1]


def test_a_declared_missing_stays_apart_from_null():
    attribute = Categorical(("missing", "(missing)"), missing=True)
    assert attribute.labels == ("missing", "(missing)", "((missing))")
    assert attribute.encode(pa.array(["missing", None])).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("values", "kind", "decoded"),
    [
        (("F", "M"), pa.dictionary(pa.int32(), pa.string()), ["F", "M", "other", None]),
        ((1, 2), pa.int64(), [1, 2, None, None]),
        ((0.5, 2.0), pa.float64(), [0.5, 2.0, None, None]),
        ((True, False), pa.bool_(), [True, False, None, None]),
        ((1, "a"), pa.dictionary(pa.int32(), pa.string()), ["1", "a", "other", None]),
        ((1, True), pa.dictionary(pa.int32(), pa.string()), ["1", "true", "other", None]),
        ((np.float64(0.5), 1.5), pa.float64(), [0.5, 1.5, None, None]),
    ],
)
def test_a_release_keeps_the_type_of_the_values(values, kind, decoded):
    attribute = Categorical(values, outside=Outside.OTHER, missing=True)
    found = attribute.decode(np.arange(4), RNG)
    assert attribute.arrow_type == kind
    assert found.type == kind
    assert found.to_pylist() == decoded


@pytest.mark.parametrize(
    "values",
    [
        (),
        "FM",
        ("a", "a"),
        (1, "1"),
        (1, 1.0),
        (0.0, -0.0),
        ("",),
        (None,),
        (float("nan"),),
        (float("inf"),),
        (2**63,),
        ("\ud800",),
    ],
    ids=repr,
)
def test_categories_that_could_not_be_told_apart_or_written_are_refused(values):
    with pytest.raises(SpecError):
        Categorical(values)


def test_a_date_as_category_has_to_be_written_as_text():
    with pytest.raises(SpecError, match="quotes"):
        Categorical((datetime(2025, 1, 1, tzinfo=UTC),))


def test_a_list_of_values_is_as_good_as_a_tuple():
    assert Categorical(["a", "b"]) == Categorical(("a", "b"))
    assert hash(Categorical(["a", "b"])) == hash(Categorical(("a", "b")))


@pytest.mark.parametrize("text", ["true", "T", "Yes", " y ", "1", "TRUE"])
def test_boolean_reads_the_words_for_true(text):
    assert Boolean().encode(pa.array([text])).tolist() == [1]


@pytest.mark.parametrize("text", ["false", "F", "No", "\tn", "0", "FALSE"])
def test_boolean_reads_the_words_for_false(text):
    assert Boolean().encode(pa.array([text])).tolist() == [0]


@pytest.mark.parametrize(
    "column", [[0, 1, 2], [0.0, 1.0, 0.5], [Decimal("0.0"), Decimal("1.0"), Decimal("0.1")], ["0", "1", "2"]]
)
def test_boolean_reads_nought_and_one_of_any_type(column):
    assert Boolean().encode(pa.array(column)).tolist() == [0, 1, -1]


def test_boolean_decodes_to_booleans():
    attribute = Boolean(missing=True, outside=Outside.OTHER)
    assert attribute.labels == ("false", "true", "other", "missing")
    assert attribute.decode(np.arange(4), RNG).to_pylist() == [False, True, None, None]
