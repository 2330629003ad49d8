"""Coins have their probabilities to the last of 128 bits."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import coins, entropy
from dpcore.privacy.accounting.rounding import real
from tests.contracts.mechanism import fixed_stream, recorded_words

mp = mpmath.MPContext()
mp.prec = 900

EXPONENTS = [
    (1, Fraction(1)),
    (1, Fraction(1, 2**70)),
    (17, Fraction(0.1)),
    (12_345, Fraction(1, 1000)),
    (44, Fraction(1)),
    (3, Fraction(20)),
    (2**63 + 12_345, Fraction(1, 2**62)),
    (2**64 - 1, Fraction(1, 3 * 2**61)),
]


def exact_threshold(difference: int, rate: Fraction) -> int:
    exponent = rate * difference
    return int(mp.floor(mp.ldexp(mp.exp(-mp.mpf(exponent.numerator) / exponent.denominator), 128)))


def test_a_threshold_is_the_floor_of_its_exact_value():
    assert coins.threshold(Fraction(1, 3)) == 2**128 // 3
    assert (coins.threshold(Fraction(0)), coins.threshold(Fraction(1))) == (0, 1 << 128)
    assert coins.threshold(real.exp(real.mpf(-1))) == exact_threshold(1, Fraction(1))
    assert coins.threshold(real.mpf(1)) == 1 << 128


@pytest.mark.parametrize("probability", [Fraction(-1, 9), Fraction(10, 9), math.nan, real.mpf(2)])
def test_what_is_no_probability_is_refused(probability):
    with pytest.raises(UsageError, match="probability"):
        coins.threshold(probability)


@pytest.mark.parametrize("edge", [0, 1, 5 << 64, (5 << 64) + 7, (1 << 128) - 1, 2**128 // 3])
def test_a_biased_coin_is_the_exact_comparison_of_128_bits(edge, monkeypatch):
    for number in {edge - 1, edge, edge + 1, 0, (1 << 128) - 1}:
        if 0 <= number < 1 << 128:
            monkeypatch.setattr(entropy, "random_words", fixed_stream([number >> 64, number % (1 << 64)]))
            assert coins.biased(edge, 1).tolist() == [number < edge]


def test_ties_of_biased_coins_go_to_their_own_places(monkeypatch):
    monkeypatch.setattr(entropy, "random_words", fixed_stream([5, 9, 5, 0, 6, 7]))
    assert coins.biased((5 << 64) + 7, 4).tolist() == [True, False, False, True]


@pytest.mark.parametrize("threshold", [-1, (1 << 128) + 1, 0.5, True, None])
def test_a_threshold_that_is_no_share_of_128_bits_is_refused_before_any_draw(threshold, monkeypatch):
    monkeypatch.setattr(entropy, "random_words", fixed_stream([]))
    with pytest.raises(UsageError, match="threshold"):
        coins.biased(threshold, 1)


@pytest.mark.parametrize("rate", [Fraction(1, 2**72), Fraction(0.1), Fraction(1, 3), Fraction(500)])
def test_estimates_are_within_a_quarter_of_what_the_proofs_allow(rate):
    generator = np.random.default_rng(5)
    farthest = min(int(80 / rate), 2**64 - 1)
    differences = np.array([0, 1, farthest, 2**64 - 1, *(int(u * farthest) for u in generator.random(1500))], np.uint64)
    for difference, estimate in zip(differences.tolist(), coins.exp_estimates(differences, rate=rate), strict=True):
        exponent = rate * difference
        exact = mp.exp(-mp.mpf(exponent.numerator) / exponent.denominator)
        off = abs(mp.mpf(float(estimate)) - exact)
        assert off < exact * mp.ldexp(1, -45) or (exponent > 64 and off < mp.ldexp(1, -92))


@pytest.mark.parametrize(("difference", "rate"), EXPONENTS)
def test_a_coin_of_an_exponential_is_the_exact_comparison_of_128_bits(difference, rate, monkeypatch):
    edge = exact_threshold(difference, rate)
    margin = int(coins.MARGIN * 2**128)
    offsets = {
        0,
        -1,
        1,
        1 << 64,
        -(1 << 64),
        1 << 75,
        -(1 << 75),
        margin,
        -margin,
        margin + (1 << 76),
        -margin - (1 << 76),
    }
    for number in {edge + offset for offset in offsets} | {0, (1 << 128) - 1}:
        if 0 <= number < 1 << 128:
            monkeypatch.setattr(entropy, "random_words", fixed_stream([number >> 64, number % (1 << 64)]))
            assert coins.exp_minus(np.array([difference], np.uint64), rate=rate).tolist() == [number < edge]


def test_coins_near_their_edge_are_settled_at_their_own_places(monkeypatch):
    edges = [exact_threshold(difference, Fraction(1, 7)) for difference in (3, 30, 300)]
    numbers = [1 << 127, edges[0], 7 << 125, edges[1] - 1, edges[2], edges[0] - 1]
    differences = np.array([0, 3, 1, 30, 300, 3], dtype=np.uint64)
    upper = [number >> 64 for number in numbers]
    lower = [numbers[place] % (1 << 64) for place in (1, 3, 4, 5)]
    monkeypatch.setattr(entropy, "random_words", fixed_stream(upper + lower))
    expected = [True, False, exact_threshold(1, Fraction(1, 7)) > (7 << 125), True, False, True]
    assert coins.exp_minus(differences, rate=Fraction(1, 7)).tolist() == expected


@pytest.mark.parametrize("word", [0, 2**64 - 1, 2**63])
def test_no_difference_is_certain_and_the_largest_one_impossible(word, monkeypatch):
    monkeypatch.setattr(entropy, "random_words", lambda count: np.full(count, word, dtype=np.uint64))
    assert coins.exp_minus(np.array([0, 2**64 - 1], np.uint64), rate=Fraction(1000)).tolist() == [True, False]


def test_the_words_taken_depend_on_the_number_of_coins_only(monkeypatch):
    for differences in (
        np.zeros(5000, np.uint64),
        np.arange(5000, dtype=np.uint64),
        np.full(5000, 2**64 - 1, np.uint64),
    ):
        taken: list[int] = []
        words = recorded_words(1)

        def counted(count, taken=taken, words=words):
            taken.append(count)
            return words(count)

        monkeypatch.setattr(entropy, "random_words", counted)
        coins.exp_minus(differences, rate=Fraction(1, 500))
        assert taken == [5000]


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(-1), Fraction(2**64 + 1)])
def test_a_rate_that_means_nothing_is_refused_before_any_draw(rate, monkeypatch):
    monkeypatch.setattr(entropy, "random_words", fixed_stream([]))
    with pytest.raises(UsageError, match="rate"):
        coins.exp_minus(np.zeros(1, np.uint64), rate=rate)
