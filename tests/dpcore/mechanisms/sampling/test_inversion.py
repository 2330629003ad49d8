"""The inversion sampler, down to the last of its 128 bits."""

import itertools
import math
from bisect import bisect_right

import mpmath
import numpy as np
import pytest

from dpcore.mechanisms.sampling import entropy
from dpcore.mechanisms.sampling.inversion import MOST_OUTCOMES, InversionTable, has_table, inversion_table
from dpcore.mechanisms.sampling.thresholds import Shape, _rounded_tails, reach_of
from tests.contracts.mechanism import fixed_stream

mp = mpmath.MPContext()
mp.dps = 60


def thresholds(table: InversionTable) -> list[int]:
    return [(int(high) << 64) | int(low) for high, low in zip(table.high, table.low, strict=True)]


def reference(shape: Shape, scale: float, reach: int) -> list[int]:
    """The thresholds of the cut distribution, each probability by its formula at 60 digits."""
    exact = mp.mpf(scale)
    if shape is Shape.ROUNDED_GAUSSIAN:
        below = [mp.erfc((reach - 0.5 - place) / exact / mp.sqrt(2)) / 2 for place in range(2 * reach)]
        return [min(int(mp.floor(mp.ldexp(mass, 128))), (1 << 128) - 1) for mass in below]
    exponents = [k / exact if shape is Shape.LAPLACE else (k / exact) ** 2 / 2 for k in range(reach + 1)]
    weights = [mp.exp(-exponent) for exponent in exponents]
    total = weights[0] + 2 * mp.fsum(weights[1:])
    cumulated = itertools.accumulate(weights[:0:-1] + weights[:-1])
    # 60 digits cannot tell 1 - 1e-80 from 1, but no threshold is 2^128
    return [min(int(mp.floor(mp.ldexp(weight / total, 128))), (1 << 128) - 1) for weight in cumulated]


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 2.5, 40.1])
def test_every_threshold_is_the_floor_of_its_exact_value(shape, scale):
    table = inversion_table(shape, scale)
    assert table.reach == reach_of(shape, scale)
    assert thresholds(table) == reference(shape, scale, table.reach)


@pytest.mark.parametrize("sigma", [math.nextafter(1.0, 0.0), 1.0, 3.3, 700.3, 19_999.0])
def test_tails_of_rounded_noise_are_right_to_a_hundred_bits_more_than_are_used(sigma):
    """From the middle to the far end: these are 2^320 F(-k), of which a threshold has the first 128 bits."""
    fine = mpmath.MPContext()
    fine.prec = 700
    tails = list(_rounded_tails(sigma))
    reach = len(tails)
    assert reach == reach_of(Shape.ROUNDED_GAUSSIAN, sigma)
    for k in {1, 2, 3, reach} | {int(reach * part) + 1 for part in (0.01, 0.07, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)}:
        below = fine.ldexp(fine.erfc((k - 0.5) / fine.mpf(sigma) / fine.sqrt(2)) / 2, 320)
        assert abs(tails[reach - k] - below) < 2**86


def test_a_long_gaussian_table_is_exact_too():
    table = inversion_table(Shape.GAUSSIAN, 700.3)
    assert thresholds(table) == reference(Shape.GAUSSIAN, 700.3, table.reach)


@pytest.mark.parametrize("scale", [0.5, 40.0, 2857.0])
def test_a_laplace_table_agrees_with_the_closed_form_of_the_uncut_distribution(scale):
    table = inversion_table(Shape.LAPLACE, scale)
    ours = thresholds(table)
    q = mp.exp(-1 / mp.mpf(scale))
    for k in {1, 2, 3, table.reach // 100 + 1, table.reach // 3, table.reach}:
        below = mp.ldexp(q**k / (1 + q), 128)
        assert abs(ours[table.reach - k] - below) <= 1
        assert abs((1 << 128) - ours[table.reach + k - 1] - below) <= 1


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])
def test_less_than_two_to_the_minus_140_is_cut_off(shape, scale):
    beyond = reach_of(shape, scale) + 1
    if shape is Shape.LAPLACE:
        q = mp.exp(-1 / mp.mpf(scale))
        tail = 2 * q**beyond / (1 + q)
    elif shape is Shape.ROUNDED_GAUSSIAN:
        tail = mp.erfc((beyond - 0.5) / mp.mpf(scale) / mp.sqrt(2))
    else:  # a geometric series that starts at the first term beyond and falls no faster than the terms do
        ratio = mp.exp(-(2 * beyond + 1) / (2 * mp.mpf(scale) ** 2))
        weight = mp.exp(-(beyond**2) / (2 * mp.mpf(scale) ** 2))
        tail = 2 * weight / (1 - ratio) / max(1, scale * math.sqrt(2 * math.pi))
    assert tail < mp.mpf(2) ** -140


@pytest.mark.parametrize(
    ("shape", "scale"),
    [(Shape.LAPLACE, 0.3), (Shape.LAPLACE, 5.0), (Shape.GAUSSIAN, 2500.0), (Shape.ROUNDED_GAUSSIAN, 0.2)],
)
def test_a_draw_is_the_exact_comparison_of_128_bits(shape, scale, monkeypatch):
    table = inversion_table(shape, scale)
    edges = thresholds(table)
    random = np.random.default_rng(3)
    sample = [edges[place] for place in random.integers(0, len(edges), 300)]
    numbers = [edge + step for edge in sample for step in (-1, 0, 1)] + [0, 1, (1 << 128) - 1, (1 << 128) - 2]
    for number in numbers:
        if not 0 <= number < 1 << 128:
            continue
        monkeypatch.setattr(entropy, "random_words", fixed_stream([number >> 64, number % (1 << 64)]))
        assert table.draw(1)[0] == bisect_right(edges, number) - table.reach


def test_ties_among_many_draws_go_to_their_own_places(monkeypatch):
    table = inversion_table(Shape.LAPLACE, 5.0)
    edges = thresholds(table)
    middle = table.reach + 4
    words = [1 << 63, edges[middle] >> 64, 3 << 61, edges[middle + 1] >> 64]
    lower = [edges[middle] % (1 << 64), edges[middle + 1] % (1 << 64) - 1]
    monkeypatch.setattr(entropy, "random_words", fixed_stream(words + lower))
    assert table.draw(4).tolist()[1::2] == [middle + 1 - table.reach, middle + 1 - table.reach]


def test_the_guide_changes_no_outcome():
    for shape, scale in ((Shape.GAUSSIAN, 40.0), (Shape.LAPLACE, 900.0)):
        table = inversion_table(shape, scale)
        words = entropy.random_words(200_000)
        assert np.array_equal(table._outcomes(words), np.searchsorted(table.high, words, side="right"))


def test_the_number_of_words_taken_depends_on_the_number_of_draws_only(monkeypatch):
    taken: list[int] = []
    words = entropy.random_words

    def counted(count: int) -> np.ndarray:
        taken.append(count)
        return words(count)

    monkeypatch.setattr(entropy, "random_words", counted)
    assert inversion_table(Shape.GAUSSIAN, 3.0).draw(300_000).size == 300_000
    assert sum(taken) == 300_000


def test_tables_are_limited_in_length_and_built_once_per_scale():
    assert has_table(Shape.GAUSSIAN, 19_999.0)
    assert not has_table(Shape.GAUSSIAN, 20_001.0)
    assert has_table(Shape.ROUNDED_GAUSSIAN, 19_999.0)
    assert has_table(Shape.LAPLACE, 2857.0)
    assert not has_table(Shape.LAPLACE, 2858.0)
    assert 2 * reach_of(Shape.LAPLACE, 2857.0) + 1 <= MOST_OUTCOMES
    assert inversion_table(Shape.LAPLACE, 5.0) is inversion_table(Shape.LAPLACE, 5.0)
