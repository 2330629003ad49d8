"""A protection says whom it protects in words that mean something, and its sensitivities follow."""

import math

import pytest

from dpcore.errors import SpecError
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity


@pytest.mark.parametrize("neighbours", [Neighbours.REPLACE_ONE, "replace-one"])
def test_a_relation_means_the_same_as_text(neighbours):
    protection = Protection(unit="row", rows_per_unit=1, neighbours=neighbours)
    assert protection.neighbours is Neighbours.REPLACE_ONE
    assert protection.sensitivity == Sensitivity(l1=2, l2_squared=2, linf=1)


@pytest.mark.parametrize("bound", [0, -1, 1.5, 1.0, math.nan, True, "1", None])
def test_bounds_that_are_no_whole_numbers_are_refused(bound):
    with pytest.raises(SpecError):
        Protection(unit="person", rows_per_unit=bound, neighbours=Neighbours.ADD_REMOVE)
    with pytest.raises(SpecError):
        Protection(unit="p", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, weight="times", row_weight=bound)


@pytest.mark.parametrize("unit", ["", 5, None])
def test_a_unit_that_names_nothing_is_refused(unit):
    with pytest.raises(SpecError, match="unit must name"):
        Protection(unit=unit, rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)


@pytest.mark.parametrize("neighbours", ["swap", "", None, 1])
def test_a_relation_that_there_is_not_is_refused(neighbours):
    with pytest.raises(SpecError, match="add-remove, replace-one"):
        Protection(unit="row", rows_per_unit=1, neighbours=neighbours)
