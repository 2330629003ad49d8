"""Uniform whole numbers are uniform to the last word."""

import itertools

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import entropy, uniform
from tests.contracts.mechanism import chi_square_p

UNEVEN = 3 << 61
"""A bound that 64 bits hold two and two thirds times: a plain remainder favours the lower two thirds of its range."""


def fixed_stream(words: list[int]):
    remaining = iter(words)
    return lambda count: np.array(list(itertools.islice(remaining, count)), dtype=np.uint64)


def evenness(numbers: np.ndarray, bound: int, cells: int) -> float:
    observed = np.bincount((numbers.astype(np.float64) / bound * cells).astype(np.int64), minlength=cells)
    return chi_square_p(observed, np.full(cells, numbers.size / cells))


@pytest.mark.parametrize("bound", [2, 3, 7, 1000, 2**32 - 5])
def test_every_number_below_the_bound_is_as_likely(bound):
    numbers = uniform.below(bound, 300_000)
    assert numbers.dtype == np.int64
    assert numbers.min() >= 0
    assert numbers.max() < bound
    assert evenness(numbers, bound, min(bound, 1000)) > 1e-9


def test_an_uneven_bound_favours_nobody_where_a_plain_remainder_does():
    assert evenness(uniform.below(UNEVEN, 300_000), UNEVEN, 12) > 1e-9
    plain = entropy.random_words(300_000) % np.uint64(UNEVEN)
    assert evenness(plain, UNEVEN, 12) < 1e-9


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
