"""Compute the epsilon of a history of mechanisms at a delta under each theorem, and the smallest valid one.

Theorems differ in what they need to know about each step, and in what may be chosen adaptively. A history is adaptive if prices,
parameters or the number of steps were chosen in the light of earlier answers, as in a run that spends a share of what is left. Then only
a filter gives a guarantee: one cap, in one currency, that was fixed in advance and kept. Taking the smallest of several bounds afterwards
would amount to letting a charge pass if any of several filters did, which no theorem covers.

The guarantee is the epsilon of the cap, not of the sum so far. Someone who may stop when the answers happen to reveal much, and go on
otherwise, makes the sum depend on the answers: at the epsilon of a sum of rhos or of mu^2, the delta can be many times the stated one.
So for an adaptive history the sums so far are reported, but marked as not valid.

Pure epsilon is the exception, because it bounds the loss of every single outcome. Let t be all answers a_1, a_2, ... of a history. The
choices between them depend on earlier answers and on nothing private, so they are as probable under P as under Q, and of P(t) / Q(t) only
the ratios P(a_i | a_1 .. a_(i-1)) / Q(a_i | a_1 .. a_(i-1)) remain. Each is at most e^(e_i), whichever price e_i the earlier answers led
to. So P(t) <= e^(e_1 + e_2 + ...) Q(t) for every t, with the sum of that very t: whatever was chosen, and wherever it stopped, this
outcome lost no more than its own sum. This needs delta 0 for every step: with a delta, no single outcome is bounded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.privacy.accounting.amounts import AMOUNT_OF_ONE, Currency
from dpcore.privacy.accounting.promises import Cap, promise_of
from dpcore.privacy.accounting.rounding import below_one
from dpcore.textbook.theorems.composition import checked_delta
from dpcore.textbook.theorems.steps import Step
from dpcore.textbook.theorems.theorems import Inapplicable, Theorem, amount_in, epsilon_by


@dataclass(frozen=True)
class Finding:
    """The result of one theorem: an epsilon at the delta, or None and the reason; and whether it is valid for this history."""

    theorem: Theorem
    epsilon: float | None
    delta: float
    valid: bool
    because: str


@dataclass(frozen=True)
class Comparison:
    """The result of every theorem for the steps of a history, and the guarantee of its cap.

    Attributes:
        findings: One per theorem, with the epsilon of the steps so far.
        promised: The guarantee of the whole cap, by the theorem that is a filter in its currency; None without a cap. If the cap
            was raised, its delta may be a multiple of the findings' delta.
    """

    findings: tuple[Finding, ...]
    promised: Finding | None

    @property
    def smallest(self) -> Finding | None:
        """The valid finding with the smallest delta, then the smallest epsilon, among those of the steps and of the cap."""
        findings = (*self.findings, *([] if self.promised is None else [self.promised]))
        valid = ((f.delta, f.epsilon, f) for f in findings if f.valid and f.epsilon is not None)
        return min(valid, key=lambda row: row[:2], default=(None, None, None))[2]


def compare_theorems(
    steps: Iterable[Step], *, delta: Fraction | float, adaptive: bool, cap: Cap | None = None
) -> Comparison:
    """Return the epsilon of a history at `delta` under each theorem.

    Args:
        steps: The mechanisms, in any order. Equal ones may be merged into one step with a count.
        delta: The delta of each theorem's epsilon. At 0 only basic composition of pure steps applies.
        adaptive: Whether parameters, prices or the number of steps were chosen in the light of earlier answers.
        cap: The one cap that was kept. An adaptive history has no valid epsilon without a cap.

    >>> chosen = [Step(rho=Fraction(1, 100), count=3)]
    >>> comparison = compare_theorems(chosen, delta=1e-6, adaptive=True, cap=Cap(Currency.ZCDP, AMOUNT_OF_ONE // 10))
    >>> comparison.smallest == comparison.promised, 2.14193 < comparison.smallest.epsilon < 2.14194
    (True, True)
    >>> compare_theorems(chosen, delta=1e-6, adaptive=True).smallest is None
    True
    """
    history = tuple(steps)
    if not history:
        raise UsageError("this history has no steps; nothing was spent")
    if not isinstance(adaptive, bool):
        raise UsageError(
            "pass adaptive=True if the history was chosen in the light of earlier answers, else adaptive=False"
        )
    allowed = checked_delta(delta) if delta == 0 else below_one(delta)
    capped_in = None if cap is None else cap.currency
    return Comparison(
        tuple(_finding(theorem, history, allowed, adaptive=adaptive, capped_in=capped_in) for theorem in Theorem),
        None if cap is None else _promise(history, allowed, cap=cap),
    )


def _finding(
    theorem: Theorem, steps: Sequence[Step], delta: Fraction, *, adaptive: bool, capped_in: Currency | None
) -> Finding:
    try:
        epsilon = epsilon_by(theorem, steps, delta=delta)
    except (Inapplicable, UsageError) as reason:
        return Finding(theorem, None, float(delta), valid=False, because=str(reason))
    if adaptive:
        valid, because = _standing(theorem, steps, capped_in)
    elif theorem is Theorem.NUMERIC:
        valid, because = False, "an estimate, whose numerical error has no proved bound"
    else:
        valid, because = True, "it holds for prices fixed in advance"
    return Finding(theorem, epsilon, float(delta), valid=valid, because=because)


def _standing(theorem: Theorem, steps: Sequence[Step], capped_in: Currency | None) -> tuple[bool, str]:
    """Return whether the sum so far is valid for an adaptive history, and why."""
    if theorem.filter_in is None:
        return False, "it needs prices and their number fixed in advance"
    if theorem.filter_in is not capped_in:
        return False, f"it is a filter, but no cap in {theorem.filter_in.symbol} was fixed in advance"
    if theorem is not Theorem.BASIC:
        return False, "so far; no theorem promises it for adaptive prices"
    if any(step.pure is None for step in steps):
        return False, "a step has no pure epsilon, and with a delta no sum holds for adaptive prices"
    return True, "so far; every outcome's loss is within its own sum of pure epsilons"


def _promise(steps: Sequence[Step], delta: Fraction, *, cap: Cap) -> Finding:
    """Return the guarantee of a cap, provided that the steps kept within it."""
    currency = cap.currency
    theorem = next(theorem for theorem in Theorem if theorem.filter_in is currency)

    def none(because: str) -> Finding:
        return Finding(theorem, None, float(delta), valid=False, because=because)

    if delta == 0 and currency is not Currency.PURE:
        return none(f"a cap in {currency.symbol} promises an epsilon at a delta above 0 only")
    try:
        spent = amount_in(currency, steps)
    except Inapplicable as reason:
        return none(str(reason))
    if spent > Fraction(cap.amount, AMOUNT_OF_ONE):
        return none("the steps add up to more than the cap, which was not kept")
    promise = promise_of(cap, delta=delta)
    because = "the cap holds whatever is chosen on the way"
    if cap.raised and currency is not Currency.PURE:
        because = "it holds whatever is chosen on the way, the raises of the cap included"
    return Finding(theorem, promise.epsilon, promise.delta, valid=True, because=because)
