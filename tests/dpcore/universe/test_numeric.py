"""Numbers in bins: where the edges belong, and that no large number is rounded on its way."""

from decimal import Decimal
from math import floor, inf, nan, nextafter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import SpecError
from dpcore.universe import Integer, Number, Outside, reading
from dpcore.universe.numeric import UnevenInteger

RNG = np.random.default_rng(0)
AGES = UnevenInteger(minimum=0, maximum=99, cuts=(1, 18, 65), missing=True, outside=Outside.OTHER)
VALUES = [0, 1, 17, 18, 64, 65, 99]
CODES = [0, 1, 1, 2, 2, 3, 3]


def test_bins_of_integers_start_at_the_minimum_and_the_last_may_be_shorter():
    attribute = Integer(minimum=3, maximum=12, width=4)
    assert attribute.labels == ("[3, 7)", "[7, 11)", "[11, 13)")
    assert attribute.encode(pa.array([3, 6, 7, 10, 11, 12])).tolist() == [0, 0, 1, 1, 2, 2]
    assert set(attribute.decode(np.full(200, 2), RNG).to_pylist()) == {11, 12}


def test_bins_of_one_number_are_labelled_by_it():
    assert Integer(minimum=-1, maximum=1).labels == ("-1", "0", "1")


def test_the_widest_bin_holds_everything_there_is():
    attribute = Integer(minimum=-(2**53), maximum=2**53, width=2**54 + 1)
    assert attribute.encode(pa.array([-(2**53), 0, 2**53])).tolist() == [0, 0, 0]
    assert attribute.encode(attribute.decode(np.zeros(9, dtype=np.int64), RNG)).tolist() == [0] * 9


def test_fractions_are_rounded_down_not_towards_zero():
    attribute = Integer(minimum=-2, maximum=2)
    found = [-2.0, -1.5, -0.5, 0.0, 0.9, 2.9]
    assert attribute.encode(pa.array(found)).tolist() == [0, 0, 1, 2, 2, 4]
    assert attribute.encode(pa.array([str(value) for value in found])).tolist() == [0, 0, 1, 2, 2, 4]
    assert attribute.encode(pa.array([Decimal(str(value)) for value in found])).tolist() == [0, 0, 1, 2, 2, 4]


def test_a_boolean_is_nought_or_one():
    assert Integer(minimum=0, maximum=1).encode(pa.array([True, False])).tolist() == [1, 0]
    assert Number((0, 1, 2)).encode(pa.array([True, False])).tolist() == [1, 0]


def test_large_integers_are_compared_exactly_beside_nulls():
    edge = 2**53
    attribute = Integer(minimum=edge - 2, maximum=edge, outside=Outside.OTHER, missing=True)
    column = [edge - 3, edge - 2, edge - 1, edge, edge + 1, 2**62 + 1, None]
    expected = [3, 0, 1, 2, 3, 3, 4]
    assert attribute.encode(pa.array(column)).tolist() == expected
    assert attribute.encode(pa.array([*column, 2**64 - 1], pa.uint64())).tolist() == [*expected, 3]


def test_decimals_with_many_places_keep_their_whole_part():
    attribute = Integer(minimum=0, maximum=100_000)
    found = list(range(0, 100_000, 7))
    column = pa.array([Decimal(value) for value in found], pa.decimal128(38, 5))
    assert attribute.encode(column).tolist() == found


@settings(deadline=None)
@given(
    st.integers(-(2**53), 2**53),
    st.integers(0, 3000),
    st.integers(1, 50),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-50, 3100),
)
def test_the_bin_of_an_integer_is_what_arithmetic_says(minimum, span, width, value):
    maximum = min(minimum + span, 2**53)
    attribute = Integer(minimum=minimum, maximum=maximum, width=width, outside=Outside.OTHER)
    for candidate in {value, min(max(minimum + value, -(2**63)), 2**63 - 1)}:
        inside = minimum <= candidate <= maximum
        expected = (candidate - minimum) // width if inside else attribute.other_cell
        assert attribute.encode(pa.array([candidate])).tolist() == [expected]


@settings(deadline=None)
@given(st.integers(-1000, 1000), st.integers(1, 50), st.floats(allow_nan=False))
def test_the_bin_of_a_float_is_that_of_its_floor(minimum, width, value):
    attribute = Integer(minimum=minimum, maximum=minimum + 500, width=width)
    whole = minimum - 1 if value == -inf else minimum + 501 if value == inf else floor(value)
    expected = (min(max(whole, minimum), minimum + 500) - minimum) // width
    assert attribute.encode(pa.array([value])).tolist() == [expected]


@pytest.mark.parametrize(
    "declared",
    [
        {"minimum": 1, "maximum": 0},
        {"minimum": 0, "maximum": 1, "width": 0},
        {"minimum": 0, "maximum": 1, "width": 2**63},
        {"minimum": 0, "maximum": 2**53 + 1, "width": 2**40},
        {"minimum": -(2**53) - 1, "maximum": 0, "width": 2**40},
        {"minimum": 0.0, "maximum": 1},
        {"minimum": False, "maximum": 1},
        {"minimum": 0, "maximum": 9, "width": 2.5},
    ],
    ids=str,
)
def test_an_integer_attribute_without_exact_bins_is_refused(declared):
    with pytest.raises(SpecError):
        Integer(**declared)


def test_a_bin_of_numbers_holds_its_lower_edge_and_the_last_its_upper_too():
    attribute = Number((0, 1, 2.5), outside=Outside.OTHER)
    assert attribute.labels == ("[0, 1)", "[1, 2.5]", "other")
    column = pa.array([-0.0, nextafter(1, 0), 1, 2.5, nextafter(2.5, 3), -5e-324])
    assert attribute.encode(column).tolist() == [0, 0, 1, 1, 2, 2]


def test_infinity_is_outside_and_nan_is_null():
    largest = 1.7976931348623157e308
    for edges in ((0, 1), (-largest, 0, largest)):
        attribute = Number(edges, missing=True)
        assert attribute.encode(pa.array([inf, -inf, nan])).tolist() == [attribute.cells - 1, 0, attribute.cells]
        dropping = Number(edges, missing=True, outside=Outside.DROP)
        assert dropping.encode(pa.array([inf, -inf, nan])).tolist() == [-1, -1, attribute.cells]


def test_unsigned_integers_reach_edges_beyond_signed_ones():
    attribute = Number((0, 1e19, 2e19))
    assert attribute.encode(pa.array([0, 2**64 - 1], pa.uint64())).tolist() == [0, 1]


@pytest.mark.parametrize("edges", [(0.0, 5e-324), (1.0, nextafter(1.0, 2.0)), (-1e308, 1e308), (1e308, 1.7e308)])
def test_a_number_is_drawn_inside_the_narrowest_and_the_widest_bin(edges):
    attribute = Number((*edges, 1.75e308))
    drawn = attribute.decode(np.zeros(500, dtype=np.int64), RNG).to_numpy()
    assert (drawn >= edges[0]).all()
    assert (drawn < edges[1]).all()


@pytest.mark.parametrize(
    "edges", [(), (1,), (0, 0), (1, 0), (0, nan), (0, inf), (-0.0, 0.0), (0, "1"), (False, 1), (0, 10**400)], ids=str
)
def test_edges_that_do_not_ascend_or_are_not_numbers_are_refused(edges):
    with pytest.raises(SpecError):
        Number(edges)


def test_huge_edges_have_short_labels():
    assert Number([-1e300, 0.1, 1e300]).labels == ("[-1e+300, 0.1)", "[0.1, 1e+300]")


@settings(deadline=None)
@given(st.lists(st.from_regex(r"\A-?[0-9]{1,15}(\.[0-9]{1,15})?\Z") | st.text() | st.floats().map(str)))
def test_arrow_and_python_read_the_same_number_from_a_text(texts):
    column = pa.array([text.encode() for text in texts], pa.large_binary())
    values, states = reading.parsed_numbers(column)
    for text, value, state in zip(texts, values, states, strict=True):
        try:
            expected = reading.number(text)
        except ValueError:
            assert state == -4
            continue
        assert state == (-1 if expected is None else 0)
        assert expected is None or value == expected or (value != value and expected != expected)  # noqa: PLR0124  NaN


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
@given(data=st.data())
def test_whole_numbers_of_any_width_are_binned_as_by_hand(kind, data):
    limits = np.iinfo(kind)
    near = st.integers(-300, 300) | st.integers(max(limits.min, -(2**53)), min(limits.max, 2**53))
    minimum = data.draw(near)
    maximum = min(minimum + data.draw(st.integers(0, 2_000)), 2**53)
    width = data.draw(st.integers(1, 3) | st.integers(1, 2**40))
    attribute = Integer(minimum=minimum, maximum=maximum, width=width, outside=Outside.OTHER)
    around = [minimum - 1, minimum, minimum + 1, minimum + width, maximum, maximum + 1, limits.min, limits.max]
    values = [value for value in (*around, *data.draw(st.lists(near))) if limits.min <= value <= limits.max]
    expected = [(v - minimum) // width if minimum <= v <= maximum else attribute.other_cell for v in values]
    assert attribute.encode(pa.array(values, pa.from_numpy_dtype(kind))).tolist() == expected


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64(), pa.float64(), pa.decimal128(25, 2), pa.string()])
def test_a_value_goes_to_the_bin_that_starts_last_before_it(kind: pa.DataType) -> None:
    column = pa.array([*map(str, VALUES), None]) if kind == pa.string() else pa.array([*VALUES, None]).cast(kind)
    assert AGES.encode(column).tolist() == [*CODES, 5]


def test_what_is_below_and_above_follows_the_policy() -> None:
    assert AGES.encode(pa.array([-1, 100])).tolist() == [4, 4]
    assert AGES.encode(pa.array([2**64 - 1], pa.uint64())).tolist() == [4]
    clipped = UnevenInteger(minimum=0, maximum=99, cuts=(50,))
    assert clipped.encode(pa.array([-1, 100, None])).tolist() == [0, 1, -1]


@given(st.sets(st.integers(-999, 1000), max_size=8))
def test_values_that_are_drawn_go_back_to_their_bins(cuts: set[int]) -> None:
    attribute = UnevenInteger(minimum=-1000, maximum=1000, cuts=tuple(sorted(cuts)))
    codes = np.repeat(np.arange(attribute.cells), 20)
    drawn = attribute.decode(codes, np.random.default_rng(0))
    assert attribute.encode(drawn).tolist() == codes.tolist()
    assert len(set(attribute.labels)) == attribute.cells


@pytest.mark.parametrize("cuts", [(0,), (100,), (5, 5), (6, 5), (1.5,), (True,)])
def test_cuts_that_make_no_bins_are_refused(cuts: tuple[int, ...]) -> None:
    with pytest.raises(SpecError):
        UnevenInteger(minimum=0, maximum=99, cuts=cuts)


def test_a_width_is_refused_beside_cuts() -> None:
    with pytest.raises(SpecError):
        UnevenInteger(minimum=0, maximum=99, width=5, cuts=(5,))
