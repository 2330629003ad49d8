"""Choices between named properties: the right one, by each wish, with noise that suits the wish."""

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import NoisyChoice
from tests.contracts.mechanism_catalogue import PERSON, ROW, SWAPPED_ROW

AGE = np.random.default_rng(2).integers(0, 100, 3000)
PROPERTIES = (AGE >= 90, AGE >= 50, AGE < 70)
NAMES = ("old", "older", "not old")


def made(wanted, target=None, *, protection=ROW, delta=0.0, candidates=NAMES):
    return NoisyChoice.for_epsilon(
        5.0, delta=delta, candidates=candidates, wanted=wanted, target=target, protection=protection
    )


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_the_wanted_property_is_chosen(delta):
    for wanted, target, name in (("most", None, "not old"), ("fewest", None, "old"), ("nearest", 1400, "older")):
        assert made(wanted, target, delta=delta).draw(*PROPERTIES) == name


@pytest.mark.parametrize(
    ("wanted", "protection", "monotone"),
    [("most", ROW, True), ("fewest", ROW, True), ("nearest", ROW, False), ("most", SWAPPED_ROW, False)],
)
def test_only_counts_under_add_remove_are_taken_for_monotone(wanted, protection, monotone):
    assert made(wanted, 3 if wanted == "nearest" else None, protection=protection)._selection.monotone is monotone


def test_rows_of_a_person_are_bounded_for_each_property():
    ids = np.concatenate([np.zeros(2000, dtype=np.int64), np.arange(1, 301)])
    first, second = np.arange(2300) < 2000, np.arange(2300) >= 2000
    choice = made("most", protection=PERSON, candidates=("one person", "many"))
    assert choice.draw(first, second, ids=ids) == "many"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"candidates": []}, "name from 1"),
        ({"candidates": "ab"}, "list of names"),
        ({"candidates": ["a", "a"]}, "same name"),
        ({"candidates": ["a", 3]}, "each by a text"),
        ({"wanted": "best"}, "must be one of: most, fewest, nearest"),
        ({"wanted": "nearest"}, "give a target"),
        ({"target": 3}, "give a target"),
        ({"wanted": "nearest", "target": -1}, "whole number of rows"),
        ({"wanted": "nearest", "target": 2.5}, "whole number of rows"),
    ],
)
def test_choices_that_mean_nothing_are_refused(changed, said):
    with pytest.raises(UsageError, match=said):
        made(**{"wanted": "most", **changed})


def test_there_must_be_a_column_for_each_candidate():
    with pytest.raises(UsageError, match="one column for each of the 3"):
        made("most").draw(PROPERTIES[0])
