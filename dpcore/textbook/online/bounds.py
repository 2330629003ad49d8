"""The theorem behind `online`: thresholds, noise and the number of hard rounds that follow from alpha, beta and the budget.

Setting. A table of n rows over a universe of N cells, a noisy total m with |m - n| <= e, and a public model p, a distribution, uniform at
first. A query q asks for the rows in some cells, x(q). The model expects m p(q), rounded to a whole number.

1. A gate compares |x(q) - expected| with a threshold T. Let no noise of a threshold exceed u, no noise of a comparison v, and no noise of a
   measured count w. A query that stays below is *easy*: its error is at most T + u + v. A query that reaches the threshold is *hard*: its
   error was at least T - u - v, its count is measured with an error of at most w, and the model learns it.
2. Write P(q) = x(q) / n. For a hard query |P(q) - p(q)| >= g = (T - u - v - 1/2 - e) / (m + e), since rounding moves the expectation by up to
   1/2 and the scale by up to e.
3. Learning multiplies p by exp(s c q) and normalises it; s is the sign of the error. It lowers the relative entropy D(P || p) by
   s c P(q) - ln E_p exp(s c q) >= c |P(q) - p(q)| - c^2 / 8, by Hoeffding's lemma. With c = 4 g that is at least 2 g^2.
4. D(P || uniform) <= ln N, and D is never negative. So there are at most B = ln N / (2 g^2) hard rounds.
5. After B, rounded down, D < 2 g^2, so |P(q) - p(q)| < g for every q by Pinsker's inequality: all later answers come from the model, with an
   error below (m + e) g + e + 1/2 < T, and need no gate.

T is alpha m - u - v, so all answers are within alpha m rows. The sizes e, u, v and w are chosen so that each of the four holds for all
noises of its kind with probability 1 - beta / 4. The queries may be chosen adaptively, and even by somebody who knows the table.

The theorem is about one table x: the rows that count under the limit on rows per unit. If a unit may have more rows than the limit, each opening
of a session draws anew which of them count. P then changes between openings, step 4 does not hold across them, and the promise is that of one
opening. If no unit has more rows than the limit, all openings read the same x.

Reference: Hardt and Rothblum 2010; Dwork and Roth 2014, section 4.2, for the sparse vector technique in it; the constants are those above.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from dpcore.errors import UsageError
from dpcore.mechanisms.noise import LEAST_NOISE, DiscreteLaplace, Noise, RoundedGaussian
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.scalars import is_number, is_whole

TOTAL_SHARE = Fraction(1, 40)
"""The share of the budget for the total. It is set aside twice, in case a crash loses the first."""

GATES_SHARE = Fraction(7, 8)
"""The share of the rest for gates. Counts get less: their noise may be almost alpha, while a gate's counts four times."""

MOST_ROWS = 10**12


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a session promises, and what it may spend.

    Attributes:
        alpha: All answers are within this share of the rows.
        beta: With at most this probability, some answer is not.
        queries: The most queries that are answered.
        restarts: How often the session may be interrupted and resumed. Each time, one more gate and one more count may be paid for.
        cells: The number of cells of the universe.
        amount: The amount that it may spend.
        currency: The currency of the amount.
        protection: The unit to protect, and the neighbouring relation.
    """

    alpha: float
    beta: float
    queries: int
    restarts: int
    cells: int
    amount: int
    currency: Currency
    protection: Protection

    def __post_init__(self) -> None:
        """Check the ranges of the numbers."""
        for name in ("alpha", "beta"):
            number = getattr(self, name)
            if not is_number(number) or not 0 < number < 1:
                raise UsageError(f"{name} must be a number between 0 and 1, such as 0.05")
        for name, least in (("queries", 1), ("restarts", 0)):
            number = getattr(self, name)
            if not is_whole(number) or not least <= number <= MOST_ROWS:
                raise UsageError(f"{name} must be a whole number of at least {least}")

    @property
    def total_noise(self) -> Noise:
        """The noise of the total."""
        return _count_noise(int(self.amount * TOTAL_SHARE), self.currency, self.protection)

    @cached_property
    def total_error(self) -> int:
        """The error of the noisy total that is not exceeded with probability 1 - beta / 4."""
        return noise_bound(self.total_noise, miss=self.beta / 4)

    def parts(self, times: int) -> tuple[SparseVector, Noise]:
        """Return the mechanism of gates and the noise of counts, if as many of each are paid for."""
        left = self.amount - 2 * int(self.amount * TOTAL_SHARE)
        return (
            _gate(int(left * GATES_SHARE / times), self.currency, self.protection),
            _count_noise(int(left * (1 - GATES_SHARE) / times), self.currency, self.protection),
        )


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The parameters of a session with a noisy number of rows, as the theorem gives them.

    Attributes:
        rows: The noisy total, m.
        rows_error: The bound of its error, e.
        hard_rounds: The most hard rounds, B.
        threshold: The threshold of the gates, T.
        gate: The mechanism of a gate.
        noise: The noise of a measured count.
        gate_error: The bound of a gate's noises together, u + v.
        count_error: The bound of a count's noise, w.
    """

    rows: int
    rows_error: int
    hard_rounds: int
    threshold: int
    gate: SparseVector
    noise: Noise
    gate_error: int
    count_error: int

    @property
    def within(self) -> int:
        """All answers are within this many rows."""
        return self.threshold + self.gate_error

    def gap(self, error: float) -> float:
        """Return the least distance of the distributions on a query whose expected count is wrong by this many rows."""
        return (error - 0.5 - self.rows_error) / (self.rows + self.rows_error)

    def step(self, *, expected: int, measured: int) -> float:
        """Return the logarithm of the factor by which a hard query's cells are multiplied."""
        error = max(self.threshold - self.gate_error, abs(measured - expected) - self.count_error)
        return math.copysign(4 * min(1.0, self.gap(error)), measured - expected)


def bounds_for(terms: Terms, *, rows: int) -> Bounds:
    """Return the parameters for a number of rows. Raise if the theorem holds for none.

    Raises:
        UsageError: The message names the smallest alpha, and the fewest rows, that would do.
    """
    bounds = _attempt(terms, rows)
    if bounds is None:
        raise UsageError(_refusal(terms, rows))
    return bounds


def noise_bound(noise: Noise, *, miss: float) -> int:
    """Return the size that noise exceeds with at most a probability: exact for Laplace noise, by the sub-Gaussian tail otherwise."""
    if isinstance(noise, DiscreteLaplace):
        return laplace_bound(noise.scale, miss=miss)
    reach = noise.scale * math.sqrt(2 * math.log(2 / miss))
    return math.ceil(reach + (0.5 if isinstance(noise, RoundedGaussian) else 0.0))


def laplace_bound(scale: float, *, miss: float) -> int:
    """Return the size that discrete Laplace noise exceeds with at most a probability.

    >>> laplace_bound(1.0, miss=0.5)
    1
    """
    # P(|X| >= t) = 2 e^(-t / scale) / (1 + e^(-1 / scale)) for t >= 1
    return max(0, math.ceil(scale * (math.log(2 / miss) - math.log1p(math.exp(-1 / scale)))) - 1)


def smallest_alpha(terms: Terms, *, rows: int) -> float | None:
    """Return the smallest alpha, rounded up to three digits, for which the theorem holds; None if there is none below 1."""
    low, high = 0.0, 1 - 1e-9
    if _attempt(replace(terms, alpha=high), rows) is None:
        return None
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _attempt(replace(terms, alpha=middle), rows) else (middle, high)
    digits = 2 - math.floor(math.log10(high))
    rounded = math.ceil(high * 10**digits) / 10**digits
    return rounded if rounded < 1 else None


def fewest_rows(terms: Terms) -> int | None:
    """Return the fewest rows, rounded up to three digits, for which the theorem holds; None if no table has as many."""
    low, high = 0, 1
    while _attempt(terms, high) is None:
        low, high = high, 2 * high
        if high > MOST_ROWS:
            return None
    while high - low > max(1, high // 2000):
        middle = (low + high) // 2
        low, high = (low, middle) if _attempt(terms, middle) else (middle, high)
    unit = int(10 ** max(0, len(str(high)) - 3))
    return -(-high // unit) * unit


@lru_cache(maxsize=4096)
def _gate(amount: int, currency: Currency, protection: Protection) -> SparseVector:
    linf = protection.count_sensitivity.linf
    # not monotone: |true - expected| may move either way
    return SparseVector.for_amount(amount, currency=currency, sensitivity=linf, positives=1, monotone=False)


@lru_cache(maxsize=4096)
def _count_noise(amount: int, currency: Currency, protection: Protection) -> Noise:
    return LEAST_NOISE[currency].for_amount(amount, currency=currency, sensitivity=protection.count_sensitivity)


def _attempt(terms: Terms, rows: int) -> Bounds | None:
    """Search for the fewest hard rounds that the theorem allows with the noise that their number leaves room for.

    More hard rounds leave less budget for each, so their noise grows and the theorem asks for more of them. The fewest that suffice are
    found from below. None suffice if the noise has taken more than half of alpha: from there on, the number that is needed grows faster
    than the number that is tried.
    """
    hard_rounds = _rounded_up(math.log(terms.cells) / (2 * terms.alpha**2))
    while bounds := _with_rounds(terms, rows, hard_rounds):
        least = bounds.threshold - bounds.gate_error
        gap = bounds.gap(least)
        if least <= bounds.count_error or gap < 0.49 * terms.alpha:
            return None
        needed = math.log(terms.cells) / (2 * gap * gap)
        if math.floor(needed) <= hard_rounds:
            return bounds
        hard_rounds = max(_rounded_up(needed), hard_rounds + 1)
    return None


def _rounded_up(number: float) -> int:
    """Round down to a whole number, which is rounded up by at most one part in 32, so that a search tries few numbers.

    >>> [_rounded_up(number) for number in (0.9, 17.2, 1001.0)]
    [0, 17, 1008]
    """
    whole = math.floor(number)
    unit = 1 << max(0, (whole // 32).bit_length() - 1)
    return -(-whole // unit) * unit


def _with_rounds(terms: Terms, rows: int, hard_rounds: int) -> Bounds | None:
    times, miss = max(1, hard_rounds + terms.restarts), terms.beta / 4
    try:
        (gate, noise), rows_error = terms.parts(times), terms.total_error
    except UsageError:  # so little for each that no noise can be bought
        return None
    threshold_scale, value_scale = gate.scales
    gate_error = laplace_bound(threshold_scale, miss=miss / times)
    gate_error += laplace_bound(value_scale, miss=miss / (terms.queries * (1 + terms.restarts)))
    return Bounds(
        rows=rows,
        rows_error=rows_error,
        hard_rounds=hard_rounds,
        threshold=math.floor(terms.alpha * rows) - gate_error,
        gate=gate,
        noise=noise,
        gate_error=gate_error,
        count_error=noise_bound(noise, miss=miss / times),
    )


def _refusal(terms: Terms, rows: int) -> str:
    alpha, fewest = smallest_alpha(terms, rows=rows), fewest_rows(terms)
    ways = [] if alpha is None else [f"choose alpha {alpha:g} or more"]
    ways += [] if fewest is None else [f"use a table of at least {fewest:,} rows"]
    ways += ["spend more"]
    none = ", and neither can any other alpha" if alpha is None else ""
    return (
        f"with about {rows:,} rows, a universe of {terms.cells:,} cells and this budget, alpha {terms.alpha:g} cannot be promised for "
        f"{terms.queries:,} queries{none}; {', '.join(ways[:-1])}{', or ' if len(ways) > 1 else ''}{ways[-1]}"
    )
