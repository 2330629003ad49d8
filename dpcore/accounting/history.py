"""What a history of mechanisms amounts to at a delta, under each theorem that applies, and the smallest that is valid.

Theorems differ in what they need to know of each step, and in what may have been chosen on the way. A history is adaptive if prices,
parameters or the number of steps were chosen in the light of earlier answers, as runs do that spend a share of what is left. Then only
the theorems that are filters hold: basic composition, zCDP and Gaussian DP, and of these only the one in whose currency a cap was fixed
in advance and kept. To take the smallest of several afterwards would be to let a charge pass if any of several filters did, which no
theorem covers. Even so the promise is about that cap: the sum so far stands for it only if no answer could have made it larger.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from dpcore.accounting.amounts import Currency
from dpcore.accounting.composition import advanced_composition, checked_delta
from dpcore.accounting.conversions import zcdp_to_epsilon
from dpcore.accounting.gaussian import gdp_to_epsilon
from dpcore.accounting.loss_sources import approximate_losses, gaussian_losses
from dpcore.accounting.losses import compose_losses
from dpcore.accounting.optimal import mixed_composition
from dpcore.accounting.prices import pure_gdp
from dpcore.accounting.rounding import below_one, float_up
from dpcore.accounting.steps import Price, Step
from dpcore.errors import UsageError


class Theorem(StrEnum):
    """By which theorem a history is accounted for."""

    BASIC = "basic"
    ADVANCED = "advanced"
    OPTIMAL = "optimal"
    ZCDP = "zcdp"
    GDP = "gdp"
    NUMERIC = "numeric"

    @property
    def filter_in(self) -> Currency | None:
        """The currency in which it holds for prices that are chosen on the way, within a cap fixed in advance; None: in none."""
        return {Theorem.BASIC: Currency.PURE, Theorem.ZCDP: Currency.ZCDP, Theorem.GDP: Currency.GDP}.get(self)


@dataclass(frozen=True)
class Finding:
    """What one theorem says of a history: an epsilon at the delta, or None and why; valid if it holds for this history."""

    theorem: Theorem
    epsilon: float | None
    delta: float
    valid: bool
    because: str


@dataclass(frozen=True)
class Comparison:
    """What every theorem says of a history."""

    findings: tuple[Finding, ...]

    @property
    def smallest(self) -> Finding | None:
        """The valid finding with the smallest epsilon."""
        valid = (finding for finding in self.findings if finding.valid and finding.epsilon is not None)
        return min(valid, key=lambda finding: finding.epsilon or 0.0, default=None)


class _Inapplicable(Exception):  # noqa: N818  names what was found
    """A theorem has nothing to say; the text says why."""


def compare_theorems(
    steps: Iterable[Step], *, delta: Fraction | float, adaptive: bool, cap_in: Currency | None = None
) -> Comparison:
    """Return what a history amounts to at `delta` under each theorem.

    Args:
        steps: The mechanisms, in any order; equal ones may be counted.
        delta: At which each theorem's epsilon is computed; at 0 only basic composition of pure steps says anything.
        adaptive: Whether parameters, prices or the number of steps were chosen in the light of earlier answers.
        cap_in: For an adaptive history, the currency of the one cap that was fixed in advance. Without it no theorem is valid.
    """
    history = tuple(steps)
    if not history:
        raise UsageError("there is no step in this history; nothing was spent")
    if not isinstance(adaptive, bool):
        raise UsageError("say with True or False whether the history was chosen in the light of its answers")
    allowed = checked_delta(delta) if delta == 0 else below_one(delta)
    cap = None if cap_in is None else Currency(cap_in)
    return Comparison(tuple(_finding(theorem, history, allowed, adaptive=adaptive, cap_in=cap) for theorem in Theorem))


def _finding(
    theorem: Theorem, steps: Sequence[Step], delta: Fraction, *, adaptive: bool, cap_in: Currency | None
) -> Finding:
    try:
        epsilon = _epsilon(theorem, steps, delta)
    except (_Inapplicable, UsageError) as reason:
        return Finding(theorem, None, float(delta), valid=False, because=str(reason))
    valid, because = _standing(theorem, cap_in) if adaptive else (True, "it holds for prices fixed in advance")
    return Finding(theorem, epsilon, float(delta), valid=valid, because=because)


def _epsilon(theorem: Theorem, steps: Sequence[Step], delta: Fraction) -> float:
    if delta == 0 and theorem is not Theorem.BASIC:
        raise _Inapplicable("it needs a delta above 0")
    epsilon = _ACCOUNTS[theorem](steps, delta)
    if not math.isfinite(epsilon):
        raise _Inapplicable("its epsilon is beyond any float")
    return epsilon


def _standing(theorem: Theorem, cap_in: Currency | None) -> tuple[bool, str]:
    """Return whether a theorem holds for a history that was chosen on the way, and why."""
    if theorem.filter_in is None:
        return False, "it needs prices and their number fixed in advance"
    if theorem.filter_in is not cap_in:
        return False, f"it is a filter, but no cap in {theorem.filter_in.symbol} was fixed in advance"
    return True, "it is a filter in the currency of the cap: prices may be chosen on the way"


def _basic(steps: Sequence[Step], delta: Fraction) -> float:
    total = sum((epsilon * count for (epsilon, _), count in _priced(steps, delta)), start=Fraction(0))
    return float_up(total)


def _advanced(steps: Sequence[Step], delta: Fraction) -> float:
    slack = _spare(steps, delta)
    if slack == 0:
        raise _Inapplicable("the steps' own deltas leave nothing for its slack")
    converted = any(step.pair is None for step in steps)
    priced = _priced(steps, delta - slack / 2 if converted else delta)
    parts = [price for price, count in priced for _ in range(count)]
    return advanced_composition(parts, slack=slack / 2 if converted else slack)[0]


def _optimal(steps: Sequence[Step], delta: Fraction) -> float:
    converted = any(step.pair is None for step in steps)
    half = delta - _spare(steps, delta) / 2 if converted else delta
    parts = [price for price, count in _priced(steps, half) for _ in range(count)]
    found = mixed_composition(parts, total_delta=delta)
    return min(found, _basic(steps, delta)) if converted else found  # basic composition may share delta out better


def _zcdp(steps: Sequence[Step], delta: Fraction) -> float:
    return zcdp_to_epsilon(_sum([(step.least_rho, step.count) for step in steps], what="a rho"), delta=delta)


def _gdp(steps: Sequence[Step], delta: Fraction) -> float:
    amounts = [(step.least_mu_squared, step.count) for step in steps]
    return gdp_to_epsilon(_sum(amounts, what="a mu squared"), delta=delta)


def _numeric(steps: Sequence[Step], delta: Fraction) -> float:
    normal, parts = Fraction(0), []
    for step in steps:
        mu_squared, pure = step.least_mu_squared, step.pure
        if step.losses is not None:
            parts.append((step.losses, step.count))
        elif pure is not None and (step.mu_squared is None or Fraction(step.mu_squared) >= Fraction(pure_gdp(pure))):
            parts.append((approximate_losses(pure, delta=0), step.count))
        elif mu_squared is not None:
            normal += step.count * mu_squared  # normal losses add up to a normal loss
        elif step.pair is not None:
            parts.append((approximate_losses(step.pair[0], delta=step.pair[1]), step.count))
        else:
            raise _Inapplicable("of a step only its rho is known, which is no privacy loss distribution")
    if normal:
        parts.append((gaussian_losses(normal), 1))
    return compose_losses(parts).epsilon(delta=delta)


_ACCOUNTS: Mapping[Theorem, Callable[[Sequence[Step], Fraction], float]] = {
    Theorem.BASIC: _basic,
    Theorem.ADVANCED: _advanced,
    Theorem.OPTIMAL: _optimal,
    Theorem.ZCDP: _zcdp,
    Theorem.GDP: _gdp,
    Theorem.NUMERIC: _numeric,
}


def _sum(amounts: Sequence[tuple[Fraction | None, int]], *, what: str) -> Fraction:
    total = Fraction(0)
    for amount, count in amounts:
        if amount is None:
            raise _Inapplicable(f"a step has no price from which {what} follows")
        total += amount * count
    return total


def _spare(steps: Sequence[Step], delta: Fraction) -> Fraction:
    """Return what the steps' own deltas leave of a delta."""
    spare = delta - sum((step.pair[1] * step.count for step in steps if step.pair), start=Fraction(0))
    if spare < 0:
        raise _Inapplicable("the steps' own deltas add up to more than this delta")
    return spare


def _priced(steps: Sequence[Step], delta: Fraction) -> list[tuple[Price, int]]:
    """Return an (epsilon, delta) of every step; those without one are converted at equal parts of what is left of delta."""
    spare, lacking = _spare(steps, delta), sum(step.count for step in steps if step.pair is None)
    if lacking and spare == 0:
        raise _Inapplicable("a step is known by its rho or mu squared only, which needs a part of a delta above 0")
    return [(step.pair or _converted(step, spare / lacking), step.count) for step in steps]


def _converted(step: Step, part: Fraction) -> Price:
    rho, mu_squared = step.least_rho, step.least_mu_squared
    known = [] if rho is None else [zcdp_to_epsilon(rho, delta=part)]
    known += [] if mu_squared is None else [gdp_to_epsilon(mu_squared, delta=part)]
    known += [] if step.losses is None else [step.losses.epsilon(delta=part)]
    return Fraction(max(min(known), 1e-12)), part
