"""A declared grid takes any column as whole numbers within its bounds, and its answers' last bits tell nothing."""

import math
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.grid import MOST_STEPS, ValueGrid, exact_step
from dpcore.universe import Boolean, Integer, Number, Outside
from tests.contracts.mechanism_catalogue import ROW

CENTS = ValueGrid.of(Number((0, 10)), step="0.01")


def read(grid: ValueGrid, column: pa.Array) -> list[int | None]:
    steps, known = grid.read(column)
    return [int(step) if there else None for step, there in zip(steps, known, strict=True)]


def test_values_are_clipped_and_rounded_to_the_nearest_step():
    values = pa.array([0.0, 0.004, 0.005, 3.14159, 10.0, 11.0, -1.0, math.inf, -math.inf])
    assert read(CENTS, values) == [0, 0, 1, 314, 1000, 1000, 0, 1000, 0]


def test_what_says_nothing_has_no_step():
    assert read(CENTS, pa.array([None, math.nan, 1.0], pa.float64())) == [None, None, 100]
    assert read(CENTS, pa.array(["", "x", " 1 ", None, "1_0", "nan"])) == [None, None, 100, None, None, None]
    assert read(CENTS, pa.nulls(2)) == [None, None]
    assert read(CENTS, pa.array([[1.0]])) == [None]
    assert read(ValueGrid.of(Number((0, 10), nulls=("-9", "5")), step=1), pa.array([-9.0, 5.0, 6.0])) == [None, None, 6]


@pytest.mark.parametrize("outside", [Outside.DROP, Outside.OTHER])
def test_what_is_outside_says_nothing_unless_it_is_clipped(outside):
    grid = ValueGrid.of(Integer(minimum=1, maximum=9, outside=outside), step=1)
    assert read(grid, pa.array([0, 1, 9, 10, 2**62])) == [None, 1, 9, None, None]


def test_whole_numbers_are_compared_as_the_nearest_doubles_and_fractions_rounded_down():
    edge = 2**53
    grid = ValueGrid.of(Integer(minimum=-edge, maximum=edge, width=2 * edge, outside=Outside.DROP), step=2**24)
    assert read(grid, pa.array([edge, edge + 2, -edge, -edge - 2])) == [2**29, None, -(2**29), None]
    ages = ValueGrid.of(Integer(minimum=0, maximum=99), step=1)
    assert read(ages, pa.array([17.999, 0.5, 99.9])) == [17, 0, 99]
    assert read(ages, pa.array(["17.999", "1e1"])) == [17, 10]


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.decimal128(9, 2),
        pa.string(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_every_type_of_column_gives_the_same_steps(kind):
    values = pa.array(["3", "7", None]) if pa.types.is_dictionary(kind) else pa.array([3, 7, None], pa.int8())
    assert read(CENTS, values.cast(kind)) == [300, 700, None]


@given(
    low=st.floats(-1e4, 1e4),
    width=st.floats(1, 1e6),
    pieces=st.integers(1, 10_000),
    values=st.lists(st.floats(width=64)),
)
def test_whatever_is_in_a_column_becomes_a_whole_number_within_the_bounds_each_by_itself(low, width, pieces, values):
    grid = ValueGrid.of(Number((low, low + width)), step=Fraction(width) / pieces)
    steps, known = grid.read(pa.array(values, pa.float64()))
    assert known.tolist() == [not math.isnan(value) for value in values]
    assert all(grid.lowest <= step <= grid.highest for step in steps[known].tolist())
    for value, step in zip(values, steps.tolist(), strict=True):
        assert grid.read(pa.array([value], pa.float64()))[0][0] == step
        if low <= value <= low + width:
            assert abs(Fraction(value) - step * grid.step) <= grid.step * Fraction(51, 100)


def test_a_step_is_taken_at_its_exact_value():
    assert exact_step("0.01") == exact_step(Decimal("0.01")) == exact_step(Fraction(1, 100)) == Fraction(1, 100)
    assert exact_step(0.01) == Fraction(0.01) != Fraction(1, 100)
    assert CENTS.value(314) == 3.14
    assert CENTS.value(-(10**15)) == -1e13


@pytest.mark.parametrize(
    "step", [0, -1, 0.0, math.nan, math.inf, "none", "1/0", "", True, None, 1e300, 1e-300, Decimal("NaN")]
)
def test_a_step_that_divides_nothing_is_refused(step):
    with pytest.raises(UsageError, match="step must be"):
        ValueGrid.of(Number((0, 1)), step=step)


def test_a_step_larger_than_the_range_and_bounds_without_a_range_are_refused():
    with pytest.raises(UsageError, match="larger than the declared range"):
        ValueGrid.of(Number((0, 1)), step=3)
    with pytest.raises(UsageError, match="below its maximum"):
        ValueGrid.of(Integer(minimum=4, maximum=4), step=1)
    for low, high in ((1.0, 0.0), (0.0, math.inf), (math.nan, 1.0), (True, 2.0), (None, 1.0)):
        with pytest.raises(UsageError, match="grid"):
            ValueGrid(minimum=low, maximum=high, step=Fraction(1), whole=False, outside=Outside.CLIP)
    with pytest.raises(UsageError, match="count other columns"):
        ValueGrid.of(Boolean(), step=1)


def test_a_grid_whose_sums_would_overflow_is_refused_with_the_step_that_would_do():
    with pytest.raises(UsageError, match=r"coarser step, of at least 0\.000931"):
        ValueGrid.of(Number((0, 1_000_000)), step="0.0001")
    assert ValueGrid.of(Number((0, 1_000_000)), step="0.001").reach <= MOST_STEPS


@pytest.mark.parametrize(
    "grid", [CENTS, ValueGrid.of(Integer(minimum=-3, maximum=9, outside=Outside.DROP, nulls=("?", "é,;")), step="1/3")]
)
def test_a_description_gives_the_grid_back(grid):
    assert ValueGrid.from_description(grid.describe()) == grid


def test_a_decimal_grid_gives_the_same_floats_whatever_the_table():
    """What can come out is the float nearest to some number of steps: a function of that whole number alone."""
    gridded = BoundedSum.for_epsilon(1.0, delta=0, attribute=Number((0, 1)), step="0.001", protection=ROW)
    for value in (0.0, 0.3, 1.0):
        for answer in [gridded.draw([value]) for _ in range(50)]:
            assert answer == gridded.grid.value(round(Fraction(answer) / gridded.grid.step))
