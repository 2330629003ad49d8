"""How far every sampler is from its ideal distribution, summed exactly, and what that adds to delta."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import selection, wide
from dpcore.mechanisms.sampling.inversion import MOST_OUTCOMES, InversionTable, has_table
from dpcore.mechanisms.sampling.noise import LARGEST_SCALE, SMALLEST_SCALE
from dpcore.mechanisms.sampling.thresholds import Shape, _rounded_tails, reach_of, thresholds
from dpcore.privacy.accounting import sampler_delta
from dpcore.privacy.accounting.sampler import DRAW_DISTANCE_BITS

BITS = 600
"""Of the reference: twice as many as the tables are built with."""
WHOLE = 1 << 128
TAIL = Fraction(1, 1 << 140)
DISTANCE = Fraction(1, 1 << DRAW_DISTANCE_BITS)
fine = mpmath.MPContext()
fine.prec = BITS + 40


def weights_of(shape: Shape, scale: float, reach: int) -> list[int]:
    """Return 2^600 p(k) / p(0) for k = 0 .. reach."""
    inverse = 1 / fine.mpf(scale)
    first = inverse if shape is Shape.LAPLACE else inverse**2 / 2
    ratio = int(fine.ldexp(fine.exp(-first), BITS))
    step = (1 << BITS) if shape is Shape.LAPLACE else int(fine.ldexp(fine.exp(-(inverse**2)), BITS))
    weights = [1 << BITS]
    for _ in range(reach):
        weights.append((weights[-1] * ratio) >> BITS)
        ratio = (ratio * step) >> BITS
    return weights


def drawn(edges: list[int]) -> list[int]:
    """Return 2^128 times the probability of every outcome of a table."""
    return [high - low for low, high in itertools.pairwise([0, *edges, WHOLE])]


def distance_of(drawn_weights: list[int], ideal: list[int]) -> Fraction:
    """Return half the sum of the differences, which is the distance in total variation."""
    total = sum(ideal)
    apart = sum(abs(real * total - (weight << 128)) for real, weight in zip(drawn_weights, ideal, strict=True))
    return Fraction(apart, 2 * total << 128)


def ideal_of(shape: Shape, scale: float) -> list[int]:
    """Return weights of -reach .. reach."""
    reach = reach_of(shape, scale)
    if shape is Shape.ROUNDED_GAUSSIAN:
        tails = list(
            _rounded_tails(scale)
        )  # 2^320 F(-k), which test_mechanisms_inversion holds against another formula
        masses = [high - low for low, high in itertools.pairwise(tails)]
        return [tails[0], *masses, (1 << 320) - 2 * tails[-1], *reversed(masses), tails[0]]
    half = weights_of(shape, scale, reach)
    return [*reversed(half[1:]), *half]


LARGEST_TABLES = [(Shape.LAPLACE, 2857.0), (Shape.GAUSSIAN, 19_999.0), (Shape.ROUNDED_GAUSSIAN, 5_000.0)]


@pytest.mark.parametrize(
    ("shape", "scale"),
    [*itertools.product(Shape, [SMALLEST_SCALE, 0.3, 1.0, 17.3, 203.7]), *LARGEST_TABLES],
    ids=str,
)
def test_a_table_is_as_close_to_its_distribution_as_is_proved(shape: Shape, scale: float) -> None:
    assert has_table(shape, scale)
    edges, outcomes = thresholds(shape, scale), 2 * reach_of(shape, scale) + 1
    # what lies beyond the table is below 2^-140, as test_mechanisms_inversion shows
    distance = distance_of(drawn(edges), ideal_of(shape, scale)) + TAIL
    assert distance < Fraction(outcomes, 1 << 129) + 2 * TAIL <= Fraction(MOST_OUTCOMES, 1 << 129) + 2 * TAIL < DISTANCE


def test_laplace_noise_is_not_pure_to_the_last_bit_and_not_to_two_to_the_minus_140() -> None:
    """The exact delta of the largest table at its own epsilon: within the bound, and far above the tail alone."""
    scale = 2857.0
    probabilities = drawn(thresholds(Shape.LAPLACE, scale))
    e_up = Fraction(int(fine.ldexp(fine.exp(1 / fine.mpf(scale)), 300)) + 1, 1 << 300)
    moved = [0, *probabilities]
    above = sum(
        max(one * e_up.denominator - other * e_up.numerator, 0)
        for one, other in zip([*probabilities, 0], moved, strict=True)
    )
    delta = Fraction(above, e_up.denominator << 128)
    assert delta <= Fraction(sampler_delta(1, epsilon=1 / scale))
    assert Fraction(1, 1 << 113) < delta < Fraction(1, 1 << 111)
    assert delta > 2**27 * TAIL  # the control: what was once stated


@pytest.mark.parametrize("scale", [2_858.0, 20_000.0, 1e6, 3.7e9, LARGEST_SCALE, LARGEST_SCALE + 1])
def test_wide_noise_is_as_close_as_is_proved(scale: float) -> None:
    """Digits are independent, so that their distances add; of a Gaussian draw at least three in four are accepted."""
    tables, exact, total = wide._digits(scale), Fraction(scale), Fraction(0)
    for table in tables:
        outcomes = len(table.high) + 1
        ratio = int(fine.ldexp(fine.exp(-1 / (fine.mpf(exact.numerator) / exact.denominator)), BITS))
        weights = [1 << BITS]
        for _ in range(outcomes - 1):
            weights.append((weights[-1] * ratio) >> BITS)
        total += distance_of(drawn(edges_of(table)), weights)
        exact /= 1 << wide.BASE_BITS
    one_try = total + TAIL
    assert one_try < Fraction(3 * 4_096 + 25_090, 1 << 129) + 2 * TAIL
    assert (one_try + Fraction(1, WHOLE)) / Fraction(3, 4) < Fraction(1, 1 << 113) < DISTANCE


def edges_of(table: InversionTable) -> list[int]:
    return [(int(high) << 64) | int(low) for high, low in zip(table.high, table.low, strict=True)]


@pytest.mark.parametrize("sigma", [20_000.0, 20_000.99, 1e9, LARGEST_SCALE])
def test_three_in_four_wide_gaussian_draws_are_accepted(sigma: float) -> None:
    """By sum over y of (1 - q)/2 q^|y| e^(-(|y| - sigma^2/t)^2 / (2 sigma^2)), with a theta function that is at least its integral."""
    t = math.floor(sigma) + 1
    x = sigma / t
    least = (1 - 1 / (2 * t)) / (2 * t) * sigma * math.sqrt(2 * math.pi) * math.exp(-(x**2) / 2)
    assert least > 0.7501


def test_a_selection_is_within_its_bound_by_exact_counts() -> None:
    """How many of the 2^128 numbers lead to each candidate, by bisection on the exact edges."""
    differences = np.array([0, 3, 3, 7, 40, 1, 0, 500], dtype=np.uint64)
    rate = Fraction(1, 7)

    def first_number_beyond(place: int) -> int:
        low, high = 0, WHOLE
        while low < high:
            middle = (low + high) // 2
            if selection._settled(differences, rate=rate, number=middle) > place:
                high = middle
            else:
                low = middle + 1
        return low

    ends = [first_number_beyond(place) for place in range(differences.size - 1)]
    ideal = [
        int(fine.ldexp(fine.exp(-int(d) * fine.mpf(rate.numerator) / rate.denominator), BITS)) for d in differences
    ]
    distance = distance_of(drawn(ends), ideal)
    assert distance < Fraction(differences.size, WHOLE) < differences.size * DISTANCE


def test_what_draws_add_to_delta_grows_with_their_number_and_with_epsilon() -> None:
    one = sampler_delta(1, epsilon=0)
    assert one == pytest.approx(2.0**-108, rel=1e-15)
    assert one >= 2.0**-108
    assert sampler_delta(1000, epsilon=0) == pytest.approx(1000 * one, rel=1e-15)
    assert Fraction(sampler_delta(7, epsilon=2.0)) >= 7 * DISTANCE * (1 + Fraction(math.exp(2)))
    assert sampler_delta(0, epsilon=1.0) == 0.0
    assert sampler_delta(10**9, epsilon=500.0) == 1.0
    for bad in (-1, 1.5, True):
        with pytest.raises(UsageError, match="number of draws"):
            sampler_delta(bad, epsilon=1.0)
