"""Divergences between two finite distributions, in every measure of privacy that is used here.

A mechanism's outputs on two neighbours are a pair of distributions. The mechanism is epsilon-DP if the max-divergence is at most epsilon
in both directions for every pair of neighbours, (epsilon, delta)-DP if the excess of one over e^epsilon times the other is at most delta,
and so on. Rational measures are computed exactly with fractions, the others at 400 bits and rounded up.

References: Dwork and Roth 2014, sections 2.3 and 3.5 (privacy loss, max-divergence and its approximate form); Van Erven and Harremoes
2014 (Renyi divergence).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self, TypeAlias

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import as_real, below_one, float_up, positive, real, rounded_up

Distribution: TypeAlias = Sequence[Fraction | float] | Mapping[Any, Fraction | float]
"""Probabilities in order, or keyed by outcome. A missing outcome has probability 0."""

_TOLERANCE = Fraction(1, 10**9)
"""How far a sum of floats may be from 1. They are then divided by their sum, exactly."""

_GUARD = real.mpf(2) ** -380


@dataclass(frozen=True)
class Pair:
    """Two distributions, `here` and `there`, over the same finite set of outcomes."""

    names: tuple[Hashable, ...]
    outcomes: tuple[tuple[Fraction, Fraction], ...]

    @classmethod
    def of(cls, here: Distribution, there: Distribution) -> Self:
        """Return a pair of distributions. Raise unless both are distributions over the same outcomes.

        >>> Pair.of({"heads": Fraction(3, 4), "tails": Fraction(1, 4)}, {"heads": Fraction(1, 4), "tails": Fraction(3, 4)}).max_divergence()
        1.0986122886681098
        """
        if isinstance(here, Mapping) != isinstance(there, Mapping):
            raise UsageError(
                "both distributions must name their outcomes, or neither; give two mappings or two sequences"
            )
        first, second = _by_outcome(here), _by_outcome(there)
        if not isinstance(here, Mapping) and len(first) != len(second):
            raise UsageError("both distributions must have the same number of outcomes; add outcomes of probability 0")
        names = tuple(dict.fromkeys([*first, *second]))
        nothing = Fraction(0)
        return cls(names, tuple((first.get(name, nothing), second.get(name, nothing)) for name in names))

    @property
    def reversed(self) -> "Pair":
        """The same pair with `here` and `there` exchanged."""
        return Pair(self.names, tuple((there, here) for here, there in self.outcomes))

    def losses(self) -> dict[Hashable, float]:
        """Return the privacy loss ln(here / there) of each outcome possible here, rounded up. It is infinite if impossible there."""
        return {
            name: _log_up(here, there)
            for name, (here, there) in zip(self.names, self.outcomes, strict=True)
            if here > 0
        }

    def max_divergence(self) -> float:
        """Return the largest privacy loss in this direction, rounded up. Epsilon is the larger of both directions."""
        return max(*self.losses().values(), 0.0)

    def excess(self, *, factor: Fraction | float) -> Fraction:
        """Return the exact hockey-stick divergence, the sum of max(0, here - factor there): delta at epsilon = ln factor.

        >>> Pair.of([Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]).excess(factor=2)
        Fraction(1, 4)
        """
        exact = positive(factor, what="a factor")
        return sum((max(here - exact * there, Fraction(0)) for here, there in self.outcomes), start=Fraction(0))

    def delta(self, *, epsilon: Fraction | float) -> float:
        """Return the least delta in this direction at an epsilon, rounded up."""
        if epsilon == 0:
            return min(float_up(self.excess(factor=1)), 1.0)
        factor = real.exp(as_real(positive(epsilon, what="epsilon")))
        guards = [as_real(here) * _GUARD for here, _ in self.outcomes]  # more than the rounding error of a difference
        terms = [as_real(here) - factor * as_real(there) for here, there in self.outcomes]
        above = [term + guard for term, guard in zip(terms, guards, strict=True) if term > -guard]
        return min(rounded_up(sum(above, start=real.mpf(0))), 1.0)

    def epsilon(self, *, delta: Fraction | float) -> float:
        """Return the delta-approximate max-divergence: the least epsilon in this direction at a delta, rounded up.

        The excess is piecewise linear in the factor between the outcomes' ratios, so its root is the logarithm of a fraction.
        """
        allowed = Fraction(0) if delta == 0 else below_one(delta)
        ratios = sorted({here / there for here, there in self.outcomes if there > 0 and here > there}, reverse=True)
        for low in [*ratios, Fraction(1)]:
            above = [(here, there) for here, there in self.outcomes if here > low * there]
            if sum((here - low * there for here, there in above), start=Fraction(0)) < allowed:
                continue
            sure, odds = sum(here for here, _ in above) - allowed, sum(there for _, there in above)
            if not above or odds == 0:
                return math.inf if sure > 0 else _log_up(low, Fraction(1))
            return _log_up(max(sure / odds, Fraction(1)), Fraction(1))
        return 0.0

    def renyi(self, *, order: Fraction | float) -> float:
        """Return the Renyi divergence of an order above 1, rounded up. The order `math.inf` gives the max-divergence."""
        if order == math.inf:
            return self.max_divergence()
        exact = positive(order, what="an order")
        if exact <= 1:
            raise UsageError("an order must be above 1; for the Kullback-Leibler divergence, at order 1, use `kl`")
        return math.inf if self.infinite > 0 else max(rounded_up(self.renyi_real(as_real(exact))), 0.0)

    def renyi_real(self, order: Any) -> Any:
        """Return the Renyi divergence of an order above 1 at 400 bits. It must be finite."""
        return real.ln(sum(here * real.exp((order - 1) * loss) for here, loss in self._real_losses)) / (order - 1)

    def kl(self) -> float:
        """Return the Kullback-Leibler divergence, rounded up: the mean of the privacy loss."""
        if self.infinite > 0:
            return math.inf
        return max(rounded_up(sum(here * loss for here, loss in self._real_losses)), 0.0)

    @property
    def infinite(self) -> Fraction:
        """The probability of outcomes that are impossible there."""
        return sum((here for here, there in self.outcomes if there == 0), start=Fraction(0))

    @cached_property
    def _real_losses(self) -> list[tuple[Any, Any]]:
        """Each probability here with its privacy loss, at 400 bits. No outcome may be impossible there."""
        return [(as_real(here), real.ln(as_real(here / there))) for here, there in self.outcomes if here > 0]

    def after(self, rule: Mapping[Any, Distribution]) -> "Pair":
        """Return the pair after post-processing: the rule maps each outcome to a distribution of new outcomes."""
        sides: tuple[dict[Any, Fraction], dict[Any, Fraction]] = ({}, {})
        for name, outcome in zip(self.names, self.outcomes, strict=True):
            if name not in rule:
                raise UsageError("a rule must map every outcome; add the missing ones")
            for processed, share in _by_outcome(rule[name]).items():
                for side, probability in zip(sides, outcome, strict=True):
                    side[processed] = side.get(processed, Fraction(0)) + probability * share
        return Pair.of(*sides)


def _by_outcome(distribution: Distribution) -> dict[Any, Fraction]:
    named = distribution if isinstance(distribution, Mapping) else dict(enumerate(distribution))
    exact: dict[Any, Fraction] = {}
    for name, probability in named.items():
        if isinstance(probability, bool) or not isinstance(probability, int | float | Fraction):
            raise UsageError("a probability must be a number")
        if not math.isfinite(probability) or not 0 <= probability <= 1:
            raise UsageError("a probability must be from 0 to 1")
        exact[name] = Fraction(probability)
    total = sum(exact.values(), start=Fraction(0))
    rounded = any(isinstance(probability, float) for probability in named.values())
    if abs(total - 1) > (_TOLERANCE if rounded else 0):
        raise UsageError("the probabilities of a distribution must add up to 1; add the missing outcomes")
    return {name: probability / total for name, probability in exact.items()}


def _log_up(here: Fraction, there: Fraction) -> float:
    return math.inf if there == 0 else rounded_up(real.ln(as_real(here / there)))
