"""Compute the epsilon of a history's steps at a delta under each theorem. `history` decides whether the result is valid."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction

from dpcore.privacy.accounting.amounts import Currency
from dpcore.privacy.accounting.conversions import zcdp_to_epsilon
from dpcore.privacy.accounting.gaussian import gdp_to_epsilon
from dpcore.privacy.accounting.prices import pure_gdp
from dpcore.privacy.accounting.rounding import float_up
from dpcore.textbook.theorems.composition import advanced_composition, basic_composition
from dpcore.textbook.theorems.numeric import approximate_losses, gaussian_losses, numeric_composition
from dpcore.textbook.theorems.optimal import SMALLEST_EPSILON, optimal_composition
from dpcore.textbook.theorems.steps import Price, Step


class Theorem(StrEnum):
    """The theorems by which a history can be accounted for."""

    BASIC = "basic"
    ADVANCED = "advanced"
    OPTIMAL = "optimal"
    ZCDP = "zcdp"
    GDP = "gdp"
    NUMERIC = "numeric"

    @property
    def filter_in(self) -> Currency | None:
        """The currency in which the theorem is a filter: it holds for adaptive prices within a cap fixed in advance. None if none."""
        return {Theorem.BASIC: Currency.PURE, Theorem.ZCDP: Currency.ZCDP, Theorem.GDP: Currency.GDP}.get(self)


class Inapplicable(Exception):  # noqa: N818  a finding, not an error
    """A theorem does not apply. The message gives the reason."""


def epsilon_by(theorem: Theorem, steps: Sequence[Step], *, delta: Fraction) -> float:
    """Return the epsilon at `delta` of all steps together by one theorem, rounded up. Raise Inapplicable if it does not apply."""
    if delta == 0 and theorem is not Theorem.BASIC:
        raise Inapplicable("it needs a delta above 0")
    epsilon = _ACCOUNTS[theorem](steps, delta)
    if not math.isfinite(epsilon):
        raise Inapplicable("its epsilon is beyond any float")
    return epsilon


def amount_in(currency: Currency, steps: Sequence[Step]) -> Fraction:
    """Return the sum of all steps in a currency. Raise Inapplicable if a step has no price that implies one."""
    total = Fraction(0)
    for step in steps:
        amount = step.amount_in(currency)
        if amount is None:
            what = {Currency.PURE: "a pure epsilon", Currency.ZCDP: "a rho", Currency.GDP: "a mu squared"}[currency]
            raise Inapplicable(f"a step has no price from which {what} follows")
        total += amount * step.count
    return total


def _basic(steps: Sequence[Step], delta: Fraction) -> float:
    return float_up(basic_composition(_priced(steps, delta))[0])


def _advanced(steps: Sequence[Step], delta: Fraction) -> float:
    slack = _spare(steps, delta)
    if slack == 0:
        raise Inapplicable("the steps' own deltas leave nothing for its slack")
    converted = any(step.pair is None for step in steps)
    priced = _priced(steps, delta - slack / 2 if converted else delta)
    return advanced_composition(priced, slack=slack / 2 if converted else slack)[0]


def _optimal(steps: Sequence[Step], delta: Fraction) -> float:
    converted = any(step.pair is None for step in steps)
    half = delta - _spare(steps, delta) / 2 if converted else delta
    counted = _priced(steps, half)
    if len(counted) > 1:
        raise Inapplicable("it is known for equal prices only; numeric composes others")
    (((epsilon, lost), count),) = counted.items()
    optimal = optimal_composition(epsilon, delta=lost, count=count, total_delta=delta)
    return min(optimal, _basic(steps, delta)) if converted else optimal  # basic composition may split delta better


def _numeric(steps: Sequence[Step], delta: Fraction) -> float:
    normal, parts = Fraction(0), []
    for step in steps:
        mu_squared, pure = step.amount_in(Currency.GDP), step.pure
        if step.losses is not None:
            parts.append((step.losses, step.count))
        elif pure is not None and (step.mu_squared is None or Fraction(step.mu_squared) >= Fraction(pure_gdp(pure))):
            parts.append((approximate_losses(pure, delta=0), step.count))
        elif mu_squared is not None:
            normal += step.count * mu_squared  # normal losses add up to a normal loss
        elif step.pair is not None:
            parts.append((approximate_losses(step.pair[0], delta=step.pair[1]), step.count))
        else:
            raise Inapplicable("only the rho of a step is known, which gives no privacy loss distribution")
    if not parts:
        return gdp_to_epsilon(normal, delta=delta)
    return numeric_composition([*parts, (gaussian_losses(normal), 1)] if normal else parts, delta=delta)


_ACCOUNTS: Mapping[Theorem, Callable[[Sequence[Step], Fraction], float]] = {
    Theorem.BASIC: _basic,
    Theorem.ADVANCED: _advanced,
    Theorem.OPTIMAL: _optimal,
    Theorem.ZCDP: lambda steps, delta: zcdp_to_epsilon(amount_in(Currency.ZCDP, steps), delta=delta),
    Theorem.GDP: lambda steps, delta: gdp_to_epsilon(amount_in(Currency.GDP, steps), delta=delta),
    Theorem.NUMERIC: _numeric,
}


def _spare(steps: Sequence[Step], delta: Fraction) -> Fraction:
    """Return the part of a delta that the steps' own deltas leave."""
    spare = delta - sum((step.pair[1] * step.count for step in steps if step.pair), start=Fraction(0))
    if spare < 0:
        raise Inapplicable("the steps' own deltas add up to more than this delta")
    return spare


def _priced(steps: Sequence[Step], delta: Fraction) -> Counter[Price]:
    """Return how many steps have each (epsilon, delta). Steps without one are converted at equal parts of the remaining delta."""
    spare, lacking = _spare(steps, delta), sum(step.count for step in steps if step.pair is None)
    if lacking and spare == 0:
        raise Inapplicable("a step has only a rho or mu squared, and its conversion needs a part of a delta above 0")
    counted: Counter[Price] = Counter()
    for step in steps:
        counted[step.pair or _converted(step, spare / lacking)] += step.count
    return counted


def _converted(step: Step, part: Fraction) -> Price:
    rho, mu_squared = step.amount_in(Currency.ZCDP), step.amount_in(Currency.GDP)
    epsilons = [] if rho is None else [zcdp_to_epsilon(rho, delta=part)]
    epsilons += [] if mu_squared is None else [gdp_to_epsilon(mu_squared, delta=part)]
    if not epsilons:
        raise Inapplicable("only the losses of a step are known; numeric composes them")
    return max(Fraction(min(epsilons)), SMALLEST_EPSILON), part  # the least that optimal composition accepts
