"""Numerical composition with privacy loss distributions on a grid. The result is never below the true cost.

The privacy loss of an answer is ln(P / Q), where P and Q are its probabilities on two neighbours. If it is L under P, with `infinite`
the probability of answers that are impossible under Q, then

    delta(epsilon) = infinite + E max(0, 1 - e^(epsilon - L))

is the least delta of the pair, and losses of independent answers add: distributions compose by convolution. A pair (P, Q) dominates
a mechanism if no pair of neighbours has a larger delta at any epsilon. Products of dominating pairs dominate compositions, including
those of adaptively chosen mechanisms (Zhu, Dong and Wang 2022).

Assumptions: the dominating pairs, that is all parameters, are fixed in advance. This is not a filter. A distribution describes one
direction; those in `loss_sources` are the same in both.

Every step errs upwards:

- Rounding to a grid: an answer of probability p and loss L between neighbouring points a and b is split into two answers with those
  losses and the same sums of P and of Q. Merging the two gives the original answer back, so it is post-processing of the split
  distribution, which therefore dominates. The error is of second order in the spacing (the method of Doroshenko, Ghazi, Kamath, Kumar
  and Manurangsi 2022, "connect the dots").
- Sums: masses are floats, not below the exact ones. Convolution is a sum of products of non-negative numbers without cancellation, so
  n terms are off by at most a factor of 1 + (n + 2) 2^-52, by which the result is multiplied. (A Fourier transform would be faster, but
  its error is absolute and would drown small deltas.)
- Truncation: improbable ends are dropped to bound the work. Their mass, at most 1e-24 each time, counts as infinite loss at the upper
  end, and moves up to the first remaining point at the lower end.
"""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count as counting

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import below_one, float_down, positive

POINTS = 4096
"""The most grid points of a distribution. A larger one gets a grid of twice the spacing."""

_CUT = 1e-24
"""The mass that may be dropped at either end of each convolution."""

_LOST = 1e-300
"""More than the sum of all products of one convolution that underflow."""

_ULP = 2.0**-52
_HALVINGS = 200

Masses = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """A privacy loss of (lowest + i) 2^-fineness with probability at most masses[i], or of infinity with `infinite`.

    The finite losses, before they were rounded to the grid, are at most `most`.
    """

    fineness: int
    lowest: int
    masses: Masses
    infinite: float
    most: float

    @property
    def losses(self) -> Masses:
        """The losses of the grid points, which floats represent exactly."""
        steps = np.arange(self.lowest, self.lowest + self.masses.size)
        return np.ldexp(steps.astype(np.float64), -self.fineness)

    def delta(self, *, epsilon: Fraction | float) -> float:
        """Return a delta that the pair satisfies at this epsilon, rounded up; at most 1."""
        promised = 0.0 if epsilon == 0 else float_down(positive(epsilon, what="epsilon"))
        return self._delta(promised)

    def epsilon(self, *, delta: Fraction | float) -> float:
        """Return the least epsilon, to 1e-12 of it, that satisfies `delta`, rounded up."""
        allowed = float_down(below_one(delta))
        if self._delta(0.0) <= allowed:
            return 0.0
        low, high = 0.0, max(self.most, 0.0)
        if self._delta(high) > allowed:
            raise UsageError(
                "these mechanisms have an infinite loss with more than this probability; allow a larger delta"
            )
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if high - low <= 1e-12 * high or not low < middle < high:
                break
            low, high = (low, middle) if self._delta(middle) <= allowed else (middle, high)
        return high

    def then(self, other: "LossDistribution") -> "LossDistribution":
        """Return the distribution of the sum of both losses."""
        fineness = min(self.fineness, other.fineness)
        one, two = _coarser(self, fineness), _coarser(other, fineness)
        terms = min(one.masses.size, two.masses.size)
        masses = np.convolve(one.masses, two.masses) * (1.0 + (terms + 2) * _ULP)
        infinite = (one.infinite + two.infinite * (1.0 - one.infinite)) * (1.0 + 8 * _ULP) + _LOST
        most = (self.most + other.most) * (1.0 + math.copysign(4 * _ULP, self.most + other.most))
        both = _cut(LossDistribution(fineness, one.lowest + two.lowest, masses, infinite, most))
        while both.masses.size > POINTS:
            both = _coarser(both, both.fineness - 1)
        return both

    def times(self, count: int) -> "LossDistribution":
        """Return the distribution of the sum of `count` such losses, by repeated doubling."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError("the number of repetitions must be a whole number of at least 1")
        result = self
        for digit in f"{count:b}"[1:]:
            result = result.then(result)
            if digit == "1":
                result = result.then(self)
        return result

    def _delta(self, epsilon: float) -> float:
        if epsilon >= self.most:
            return min(self.infinite, 1.0)
        first = max(0, math.floor(math.ldexp(epsilon, self.fineness)) + 1 - self.lowest)
        terms = self.masses[first:] * -np.expm1(epsilon - self.losses[first:])
        total = float(terms.sum()) * (1.0 + (terms.size + 16) * _ULP) + self.infinite * (1.0 + _ULP)
        return min(total * (1.0 + 4 * _ULP), 1.0)


def compose_losses(parts: Iterable[tuple[LossDistribution, int]]) -> LossDistribution:
    """Return the distribution of the sum of all losses, each repeated by its count.

    The finest grids are joined first: a coarse grid approximates a small loss badly, but not the sum of many small ones.
    """
    order = counting()
    heap = [(-part.fineness, next(order), part) for part in (losses.times(count) for losses, count in parts)]
    if not heap:
        raise UsageError("there is nothing to compose; name at least one privacy loss")
    heapq.heapify(heap)
    while len(heap) > 1:
        both = heapq.heappop(heap)[2].then(heapq.heappop(heap)[2])
        heapq.heappush(heap, (-both.fineness, next(order), both))
    return heap[0][2]


def on_grid(losses: Masses, masses: Masses, *, infinite: float) -> LossDistribution:
    """Return the distribution of answers with these losses and masses, on a grid of half of POINTS.

    Masses and losses may have a relative error of 2^-44: 2^-40 of each mass is added to both ends of its cell.
    """
    widest = float(losses.max() - losses.min()) or abs(float(losses[0])) or 1.0
    fineness = min(math.floor(math.log2(POINTS / 2 / widest)), 1000)
    return split(losses, masses, infinite=infinite, fineness=fineness, most=float(losses.max()))


def split(losses: Masses, masses: Masses, *, infinite: float, fineness: int, most: float) -> LossDistribution:
    """Split each answer between the grid points around its loss, so that the sums of P and of Q stay the same."""
    spacing = math.ldexp(1.0, -fineness)
    scaled = np.ldexp(losses, fineness)
    cells = np.floor(scaled)
    upper = -np.expm1((cells - scaled) * spacing) / -math.expm1(-spacing)
    places = (cells - cells.min()).astype(np.int64)
    size = int(places.max()) + 2
    grid = np.bincount(places, weights=masses * (1.0 - upper + 2.0**-40), minlength=size)
    grid += np.bincount(places + 1, weights=masses * (upper + 2.0**-40), minlength=size)
    masses_up = np.asarray(grid * (1.0 + (masses.size + 8) * _ULP), dtype=np.float64)
    top = most * (1.0 + math.copysign(16 * _ULP, most))
    return LossDistribution(fineness, int(cells.min()), masses_up, infinite, top)


def _coarser(losses: LossDistribution, fineness: int) -> LossDistribution:
    """Return a dominating distribution on a grid of 2^-fineness. Every second point is split between its neighbours."""
    here = losses
    while here.fineness > fineness:
        spacing = math.ldexp(1.0, -here.fineness)
        odds = max(math.exp(-spacing), _LOST)
        up, down = 1.0 / (1.0 + odds), odds / (1.0 + odds)
        first = here.lowest // 2
        masses = np.concatenate([np.zeros(here.lowest % 2), here.masses, np.zeros(2)])
        even, odd = masses[0::2], masses[1::2]
        size = min(even.size, odd.size)
        halved = np.zeros(size + 1)
        halved[:size] += even[:size] + odd[:size] * down
        halved[1:] += odd[:size] * up
        if even.size > size:
            halved[size] += even[size]
        kept = np.flatnonzero(halved)[-1] + 1 if halved.any() else 1
        here = LossDistribution(here.fineness - 1, first, halved[:kept] * (1.0 + 16 * _ULP), here.infinite, here.most)
    return here


def _cut(losses: LossDistribution) -> LossDistribution:
    """Drop improbable ends, erring on the safe side."""
    margin = 1.0 + losses.masses.size * _ULP
    from_below, from_above = np.cumsum(losses.masses) * margin, np.cumsum(losses.masses[::-1]) * margin
    low = int(np.searchsorted(from_below, _CUT, side="right"))
    high = int(np.searchsorted(from_above, _CUT, side="right"))
    if low + high >= losses.masses.size:
        return losses
    masses = losses.masses[low : losses.masses.size - high].copy()
    if low:
        masses[0] = (masses[0] + from_below[low - 1]) * (1.0 + 4 * _ULP)
    dropped = float(from_above[high - 1]) if high else 0.0
    infinite = (losses.infinite + dropped) * (1.0 + 4 * _ULP)
    return replace(losses, lowest=losses.lowest + low, masses=masses, infinite=infinite)
