"""Uniform whole numbers are uniform to the last word."""

import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import entropy, uniform
from tests.contracts.mechanism import fixed_stream

UNEVEN = 3 << 61
"""A bound that 64 bits hold two and two thirds times: a plain remainder favours the lower two thirds of its range."""


def test_exactly_the_words_beyond_the_last_multiple_are_drawn_again(monkeypatch):
    words = [2 * UNEVEN - 1, 2 * UNEVEN, 7, 2**64 - 1, 2 * UNEVEN, UNEVEN + 5, 4]
    monkeypatch.setattr(entropy, "random_words", fixed_stream(words))
    assert uniform.below(UNEVEN, 4).tolist() == [UNEVEN - 1, 4, 7, 5]


@pytest.mark.parametrize("bound", [1, 2**20, 2**63])
def test_a_power_of_two_takes_every_word(bound, monkeypatch):
    words = [0, 2**64 - 1, 2**63, 12345]
    monkeypatch.setattr(entropy, "random_words", fixed_stream(words))
    assert uniform.below(bound, 4).tolist() == [word % bound for word in words]


def test_no_numbers_may_be_asked_for():
    assert uniform.below(5, 0).size == 0


@pytest.mark.parametrize("bound", [0, -1, 2**63 + 1, 2.0, True, None])
def test_a_bound_below_which_there_is_nothing_to_draw_is_refused_before_any_draw(bound, monkeypatch):
    monkeypatch.setattr(entropy, "random_words", fixed_stream([]))
    with pytest.raises(UsageError, match="at least one outcome"):
        uniform.below(bound, 1)


@pytest.mark.parametrize("count", [-1, 1.0, True, None])
def test_a_count_that_is_no_whole_number_is_refused(count):
    with pytest.raises(UsageError, match="number of draws"):
        uniform.below(5, count)
