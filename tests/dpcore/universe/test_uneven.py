"""Whole numbers in bins of different widths."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import SpecError
from dpcore.universe import Outside
from dpcore.universe.uneven import UnevenInteger

AGES = UnevenInteger(minimum=0, maximum=99, cuts=(1, 18, 65), missing=True, outside=Outside.OTHER)
VALUES = [0, 1, 17, 18, 64, 65, 99]
CODES = [0, 1, 1, 2, 2, 3, 3]


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
