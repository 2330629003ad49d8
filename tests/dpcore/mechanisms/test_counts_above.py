"""Comparisons of counts with a threshold: answered in order, ended by the last positive, with noise that suits the neighbours."""

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import CountsAbove
from tests.contracts.mechanism_catalogue import PERSON, ROW, SWAPPED_PERSON

ROWS = np.arange(1000)


def made(*, threshold=500, positives=1, protection=ROW):
    return CountsAbove.for_epsilon(5.0, delta=0, threshold=threshold, positives=positives, protection=protection)


def test_answers_end_with_the_last_positive_one():
    few, many = ROWS < 100, ROWS < 900
    assert made().draw(few, few, many, many) == (False, False, True)
    assert made(positives=2).draw(few, many, few, many, many) == (False, True, False, True)
    assert made().draw(few) == (False,)


def test_the_noise_follows_from_the_declarations():
    assert made()._sparse_vector.monotone
    swapped = made(protection=SWAPPED_PERSON)._sparse_vector
    assert (swapped.sensitivity, swapped.monotone) == (2, False)


def test_rows_of_a_person_are_bounded():
    assert made(protection=PERSON).draw(ROWS < 900, ids=np.zeros(1000, dtype=np.int64)) == (False,)


def test_at_least_one_property_one_positive_and_a_threshold_are_needed():
    for threshold in (-1, 1.5, True, None, 2**63):
        with pytest.raises(UsageError, match="threshold must be a whole number"):
            made(threshold=threshold)
    with pytest.raises(UsageError, match="number of positives"):
        made(positives=0)
    with pytest.raises(UsageError, match="at least one property"):
        made().draw()
