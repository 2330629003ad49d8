"""Exact arithmetic on quotients of sums of a e^-b with rational a and b, the form of an exponential mechanism's expectations.

Two such numbers are compared exactly. By the Lindemann-Weierstrass theorem, powers of e with different rational exponents are
linearly independent over the rationals: a sum of them is zero only if every coefficient is zero, and otherwise enough digits
show its sign.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, total_ordering

from mpmath import libmp

from dpcore.errors import UsageError

Terms = Mapping[Fraction, Fraction]
"""Maps each exponent b to its coefficient a in a sum of a e^-b."""

_BITS = 192
"""The initial precision of an enclosure, in bits. Most comparisons need no more."""


@total_ordering
@dataclass(frozen=True, kw_only=True, eq=False)
class Exact:
    """A quotient of two sums of a e^-b. The coefficients of the denominator are all positive.

    >>> half = Exact.of(Fraction(1, 2))
    >>> tanh = Exact.ratio({0: 1, 1: -1}, {0: 1, 1: 1})  # (1 - 1/e) / (1 + 1/e), which is tanh(1/2)
    >>> tanh < half, tanh - tanh == Exact.of(0), float(tanh)
    (True, True, 0.46211715726000974)
    """

    numerator: Terms
    denominator: Terms

    @classmethod
    def of(cls, value: Fraction | int) -> "Exact":
        """Return a rational number."""
        return cls(numerator={Fraction(0): Fraction(value)}, denominator=_ONE)

    @classmethod
    def ratio(
        cls,
        numerator: Mapping[Fraction, Fraction] | Mapping[int, int],
        denominator: Mapping[Fraction, Fraction] | Mapping[int, int],
    ) -> "Exact":
        """Return a quotient of two sums, each given as its coefficients by exponent."""
        above, below = ({Fraction(b): Fraction(a) for b, a in terms.items() if a} for terms in (numerator, denominator))
        if not below or min(below.values()) <= 0:
            raise UsageError("a denominator needs positive coefficients; if all are negative, negate both sums")
        return cls(numerator=above, denominator=below)

    def __add__(self, other: "Exact") -> "Exact":
        if self.denominator is other.denominator or self.denominator == other.denominator:
            return Exact(numerator=_sum((self.numerator, other.numerator)), denominator=self.denominator)
        crossed = (_product(self.numerator, other.denominator), _product(other.numerator, self.denominator))
        return Exact(numerator=_sum(crossed), denominator=_product(self.denominator, other.denominator))

    def __sub__(self, other: "Exact") -> "Exact":
        return self + other.times(-1)

    def times(self, factor: Fraction | int) -> "Exact":
        """Return the product with a rational number."""
        scaled = {b: a * factor for b, a in self.numerator.items()} if factor else {}
        return Exact(numerator=scaled, denominator=self.denominator)

    def sign(self) -> int:
        """Return -1, 0 or 1, exactly: zero is decided by the coefficients, not by a tolerance."""
        terms = {b: a for b, a in self.numerator.items() if a}
        if not terms:
            return 0
        least = min(terms)
        shifted = {b - least: a for b, a in terms.items()}
        bits = _BITS
        while True:  # ends, because the sum is not zero
            low, high = _enclosed(shifted, bits)
            if low > 0 or high < 0:
                return 1 if low > 0 else -1
            bits *= 2

    @cached_property
    def enclosure(self) -> tuple[Fraction, Fraction]:
        """Rational lower and upper bounds of the value, usually within 2^-180 of each other."""
        least = min((*self.numerator, *self.denominator))
        above, below = ({b - least: a for b, a in terms.items()} for terms in (self.numerator, self.denominator))
        bits = _BITS
        while (bottom := _enclosed(below, bits))[
            0
        ] <= 0:  # ends, because every coefficient of the denominator is positive
            bits *= 2
        low, high = _enclosed(above, bits)
        return low / bottom[low >= 0], high / bottom[high < 0]

    @property
    def upper(self) -> Fraction:
        """A rational upper bound of the value."""
        return self.enclosure[1]

    @property
    def lower(self) -> Fraction:
        """A rational lower bound of the value."""
        return self.enclosure[0]

    def __float__(self) -> float:
        return float((self.lower + self.upper) / 2)

    def __eq__(self, other: object) -> bool:
        return (self._compared(other) == 0) if isinstance(other, Exact) else NotImplemented

    def __lt__(self, other: "Exact") -> bool:
        return self._compared(other) < 0

    __hash__ = None  # type: ignore[assignment]  # equal numbers may be written in different ways

    def _compared(self, other: "Exact") -> int:
        if self.upper < other.lower:
            return -1
        if self.lower > other.upper:
            return 1
        return (self - other).sign()


_ONE: Terms = {Fraction(0): Fraction(1)}


def _sum(parts: Iterable[Terms]) -> Terms:
    total: dict[Fraction, Fraction] = {}
    for part in parts:
        for exponent, coefficient in part.items():
            total[exponent] = total.get(exponent, Fraction(0)) + coefficient
    return {exponent: coefficient for exponent, coefficient in total.items() if coefficient}


def _product(left: Terms, right: Terms) -> Terms:
    return _sum({b + d: a * c for b, a in left.items()} for d, c in right.items())


def _enclosed(terms: Terms, bits: int) -> tuple[Fraction, Fraction]:
    """Return bounds, times 2^bits, of a sum whose exponents are all nonnegative."""
    common = math.lcm(*(coefficient.denominator for coefficient in terms.values()))
    low = high = 0
    for exponent, coefficient in terms.items():
        least, most = _exp_of_minus(exponent, bits)
        whole = coefficient.numerator * (common // coefficient.denominator)
        low += whole * (least if whole > 0 else most)
        high += whole * (most if whole > 0 else least)
    return Fraction(low, common), Fraction(high, common)


@lru_cache(maxsize=2**14)
def _exp_of_minus(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers below and above 2^bits e^-exponent."""
    if exponent == 0:
        return 1 << bits, 1 << bits
    if exponent > bits:
        return 0, 1
    working = bits + 64  # the argument is at most `bits`, so both rounding errors stay far below one unit
    argument = libmp.from_rational(-exponent.numerator, exponent.denominator, working)
    value = int(libmp.to_fixed(libmp.mpf_exp(argument, working), bits))
    return max(value - 2, 0), value + 2
