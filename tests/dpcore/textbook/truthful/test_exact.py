"""Quotients of sums of exponentials are compared without any rounding, however close they are."""

import math
import random
from fractions import Fraction

import pytest

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import real
from dpcore.textbook.truthful import Exact

TANH = Exact.ratio({0: 1, 1: -1}, {0: 1, 1: 1})


def rational_near(value: object, *, bits: int) -> Fraction:
    return Fraction(int(real.floor(real.ldexp(value, bits))), 2**bits)


def test_zero_is_seen_in_the_coefficients_and_not_by_closeness():
    # (1 - x)(1 + x) = 1 - x^2 with x = 1/e, written in two ways
    left = Exact.ratio({0: 1, 2: -1}, {0: 1, 1: 1})
    right = Exact.ratio({0: 1, 1: -1}, {0: 1})
    assert left == right
    assert (left - right).sign() == 0
    assert not left < right
    assert not left > right
    assert left <= right


@pytest.mark.parametrize("bits", [10, 60, 150, 250, 380])
def test_a_rational_number_next_to_an_exponential_is_told_from_it(bits):
    """At 250 and 380 bits it takes more digits than the first enclosure has."""
    below = rational_near(real.exp(-1), bits=bits)
    power = Exact.ratio({1: 1}, {0: 1})
    assert Exact.of(below) < power < Exact.of(below + Fraction(1, 2**bits))
    assert power != Exact.of(below)


def test_arithmetic_agrees_with_real_numbers():
    generator = random.Random(3)  # noqa: S311  the same numbers each time

    def number() -> tuple[Exact, object]:
        above = {Fraction(generator.randint(0, 40), 7): Fraction(generator.randint(-9, 9), 5) for _ in range(4)}
        below = {Fraction(generator.randint(0, 40), 7): Fraction(generator.randint(1, 9), 5) for _ in range(4)}

        def value(terms: dict[Fraction, Fraction]) -> object:
            return real.fsum(
                real.mpf(a.numerator) / a.denominator * real.exp(-real.mpf(b.numerator) / b.denominator)
                for b, a in terms.items()
            )

        return Exact.ratio(above, below), value(above) / value(below)

    for _ in range(30):
        (a, real_a), (b, real_b) = number(), number()
        for exact, wanted in ((a + b, real_a + real_b), (a - b, real_a - real_b), (a.times(-3), -3 * real_a)):
            low, high = exact.enclosure
            assert low <= rational_near(wanted, bits=300) + Fraction(1, 2**299)
            assert high >= rational_near(wanted, bits=300)
            assert high - low < Fraction(1, 2**150)
        assert (a < b) == (real_a < real_b)


def test_very_small_and_very_large_exponents_are_numbers_like_any_other():
    tiny = Exact.ratio({5000: 1}, {0: 1})
    assert ZERO < tiny < Exact.of(Fraction(1, 2**7000))
    assert tiny.lower >= 0
    large = Exact.ratio({0: 1}, {5000: 1})
    assert large > Exact.of(2**7000)
    assert float(TANH) == pytest.approx(math.tanh(0.5), rel=1e-15)


ZERO = Exact.of(0)


@pytest.mark.parametrize("below", [{}, {0: 0}, {0: 1, 1: -1}])
def test_what_might_be_a_division_by_zero_is_refused(below):
    with pytest.raises(UsageError, match="positive coefficients"):
        Exact.ratio({0: 1}, below)
