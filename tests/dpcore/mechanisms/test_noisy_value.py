"""A real-valued answer on a grid keeps the contract and moves by no more steps than it is priced for."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.mechanisms.noisy_value import NoisyValue
from dpcore.universe import Number

SHARE = {"attribute": Number((0, 1)), "step": "0.001", "moves_by": "0.05"}


@given(value=st.floats(-2, 3), moved=st.floats(-0.3, 0.3), step=st.sampled_from(["0.001", "1/7", "0.05", "0.3", 0.1]))
def test_answers_that_move_as_declared_move_by_no_more_than_the_sensitivity(value, moved, step):
    there = value + moved
    distance = abs(Fraction(value) - Fraction(there))
    if distance == 0:
        return
    mechanism = NoisyValue.for_epsilon(
        1.0, delta=0, attribute=Number((0, 1)), step=step, moves_by=max(distance, Fraction(1, 10**9))
    )
    steps = abs(mechanism.grid.nearest(value) - mechanism.grid.nearest(there))
    assert steps <= mechanism.sensitivity.l1


def test_rounding_can_reach_the_next_whole_step_so_that_less_would_be_too_little():
    mechanism = NoisyValue.for_epsilon(1.0, delta=0, attribute=Number((0, 10)), step=1, moves_by="0.1")
    assert mechanism.grid.nearest(0.55) - mechanism.grid.nearest(0.45) == mechanism.sensitivity.l1 == 1


def test_answers_are_clipped_and_never_refused_for_what_they_are():
    sure = replace(NoisyValue.for_epsilon(1.0, delta=0, **SHARE), scale=0.01)
    for value, wanted in (
        (0.25, 0.25),
        (7.0, 1.0),
        (-math.inf, 0.0),
        (math.nan, 0.0),
        (1, 1.0),
        (np.float64(0.5), 0.5),
    ):
        assert sure.draw(value) == wanted


@pytest.mark.parametrize("moves_by", [0, -1, math.nan, math.inf, "x", None, True])
def test_a_movement_that_means_nothing_is_refused(moves_by):
    with pytest.raises(UsageError, match="moves_by must be"):
        NoisyValue.for_epsilon(1.0, delta=0, attribute=Number((0, 1)), step="0.1", moves_by=moves_by)


@pytest.mark.parametrize("value", ["0.5", None, [0.5], True])
def test_what_is_no_number_by_its_type_is_refused(value):
    with pytest.raises(UsageError, match="must be a number"):
        NoisyValue.for_epsilon(1.0, delta=0, **SHARE).draw(value)


@pytest.mark.parametrize(
    "value", [10**309, -(10**309), math.inf, -math.inf, math.nan, Fraction(10**400), np.float32(1e30)]
)
def test_no_number_is_too_large_to_be_clipped(value):
    assert isinstance(NoisyValue.for_epsilon(1.0, delta=0, **SHARE).draw(value), float)
