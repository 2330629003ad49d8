"""Noise that is too wide for a table is as exact as that of a table."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import entropy, wide
from dpcore.mechanisms.sampling.noise import LARGEST_SCALE, integer_noise
from dpcore.mechanisms.sampling.thresholds import Shape
from tests.contracts.mechanism import recorded_words

mp = mpmath.MPContext()
mp.prec = 900

DRAW = {Shape.LAPLACE: wide.laplace, Shape.GAUSSIAN: wide.gaussian}
BASE = 1 << wide.BASE_BITS


def thresholds(table) -> list[int]:
    return [(int(high) << 64) | int(low) for high, low in zip(table.high, table.low, strict=True)]


@pytest.mark.parametrize("scale", [2858.0, 1e6, 1234567.8, 2.0**40])
def test_the_thresholds_of_every_digit_are_those_of_the_closed_form(scale):
    tables = wide._digits(scale)
    assert 256 * BASE ** (len(tables) - 1) >= scale
    for number, table in enumerate(tables):
        ratio = mp.exp(-(mp.mpf(BASE) ** number) / mp.mpf(scale))
        edges = thresholds(table)
        outcomes = len(edges) + 1
        assert outcomes == BASE if table is not tables[-1] else ratio**outcomes < mp.ldexp(1, -140)
        for k in {0, 1, outcomes // 3, outcomes // 2, outcomes - 2}:
            exact = mp.ldexp((1 - ratio ** (k + 1)) / (1 - ratio**outcomes), 128)
            assert abs(edges[k] - exact) <= 1


@pytest.mark.parametrize("shape", DRAW)
@pytest.mark.parametrize("scale", [1e6, 1e9, LARGEST_SCALE])
def test_noise_of_any_width_follows_the_continuous_distribution_to_which_it_is_so_close(shape, scale):
    ideal = stats.laplace if shape is Shape.LAPLACE else stats.norm
    noise = DRAW[shape](200_000, scale=scale)
    assert stats.kstest(noise / scale, ideal.cdf).pvalue > 1e-9
    assert stats.kstest(noise / scale / 1.1, ideal.cdf).pvalue < 1e-9


def test_a_zero_with_a_minus_is_drawn_again(monkeypatch):
    """At scale 300 a number has two digits: words of 0 make both 0, and the words after them hold the signs."""
    plus, minus = 0, 2**64 - 1
    tries = [[0, 0], [0, 0], [plus]], [[0, 0], [0, 0], [minus]], [[0, 0], [1 << 62, 0], [minus]], [[0], [0], [plus]]
    stream = itertools.chain.from_iterable(tries)
    asked: list[int] = []

    def words(count: int) -> np.ndarray:
        asked.append(count)
        return np.array(next(stream), dtype=np.uint64)

    monkeypatch.setattr(entropy, "random_words", words)
    assert wide.laplace(2, scale=300.0).tolist() == [0, 0]
    assert asked == [2, 2, 1]
    monkeypatch.setattr(entropy, "random_words", words)
    asked.clear()
    first, second = wide.laplace(2, scale=300.0).tolist()
    assert asked == [2, 2, 1, 2, 2, 1, 1, 1, 1]
    assert first < 0
    assert second == 0


@pytest.mark.parametrize("sigma", [20_001.0, 123_456.789, 2.0**40])
def test_the_acceptance_of_a_gaussian_number_is_settled_exactly(sigma, monkeypatch):
    """Coins are put on either side of their edges; what is accepted must be what 900 bits say."""
    t = math.floor(sigma) + 1
    digits = wide._digits(float(t))
    noise = np.array([0, 1, -int(0.3 * sigma), int(2.2 * sigma), -int(5 * sigma)], dtype=np.int64)
    monkeypatch.setattr(wide, "_laplace_tries", lambda count, _: (noise.copy(), np.ones(count, dtype=np.bool_)))
    exact = mp.mpf(sigma)
    edges = [int(mp.floor(mp.ldexp(mp.exp(-((abs(int(y)) - exact**2 / t) ** 2) / (2 * exact**2)), 128))) for y in noise]
    for offset in (-(1 << 100), -(1 << 64), -1, 0, 1, 1 << 64, 1 << 100):
        numbers = [edge + offset for edge in edges]
        parts = [[number >> 64 for number in numbers], [number % (1 << 64) for number in numbers]]
        monkeypatch.setattr(entropy, "random_words", lambda _, parts=parts: np.array(parts.pop(0), dtype=np.uint64))
        accepted = wide._gaussian_tries(5, digits, sigma=sigma)[1]
        assert accepted.tolist() == [offset < 0] * 5
        assert len(parts) == (abs(offset) == 1 << 100)  # all others are within the margin, and take their second words


def test_estimates_of_acceptance_are_far_within_what_coins_allow():
    seen: list[np.ndarray] = []
    sigma = 54_321.987
    noise = np.arange(0, 700_000, 331, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide, "_laplace_tries", lambda count, _: (noise, np.ones(count, dtype=np.bool_)))
        patch.setattr(wide.coins, "flips", lambda estimates, exponent: seen.append(estimates) or estimates > 2)
        wide._gaussian_tries(noise.size, (), sigma=sigma)
    for y, estimate in zip(noise.tolist(), seen[0].tolist(), strict=True):
        exponent = wide._exponent(y, sigma=sigma)
        exact = mp.exp(-mp.mpf(exponent.numerator) / exponent.denominator)
        assert abs(estimate - exact) < mp.ldexp(1, -47)
    assert wide._exponent(-7, sigma=2.5) == (7 - Fraction(25, 12)) ** 2 / Fraction(25, 2)


@pytest.mark.parametrize("shape", DRAW)
def test_every_bit_of_wide_noise_comes_from_the_entropy_stream(shape, monkeypatch):
    monkeypatch.setattr("os.urandom", None)

    def drawn(seed: int) -> list[int]:
        monkeypatch.setattr(entropy, "random_words", recorded_words(seed))
        return integer_noise(100_000, shape=shape, scale=1e7).tolist()

    first = drawn(1)
    assert drawn(1) == first
    assert drawn(2) != first


@pytest.mark.parametrize("shape", DRAW)
def test_no_noise_may_be_asked_for_and_the_widest_stays_far_within_64_bits(shape):
    assert DRAW[shape](0, scale=1e6).size == 0
    assert np.abs(DRAW[shape](100_000, scale=LARGEST_SCALE)).max() < 2**47


def test_rounded_noise_has_no_wide_form_and_is_refused():
    with pytest.raises(UsageError, match="discrete Gaussian"):
        integer_noise(1, shape=Shape.ROUNDED_GAUSSIAN, scale=1e6)
