"""The checks of an audit. Each runs installed code and returns a finding.

A check is built from a sound mechanism, which must pass, or from a planted bug, which must fail.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.audit.events import Outcomes, most_telling
from dpcore.audit.goodness import chi_square_p
from dpcore.audit.made_up import under_way
from dpcore.audit.one_run import least_amount
from dpcore.audit.streams import Words, determined, taken_from
from dpcore.errors import UsageError
from dpcore.ledger import Ledger
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency

MISS = 1e-8
"""The probability that one check reports a fault in sound code. With at most 100 checks, that happens in at most one of 10^6 audits."""

CANARIES = 10_000

Draw: TypeAlias = Callable[[int], Outcomes]
"""Draws the given number of independent outputs of a mechanism on one made-up table."""

Counts: TypeAlias = npt.NDArray[np.int64]

Measure: TypeAlias = Callable[[Counts], tuple[Counts, int]]
"""Measures made-up counts once. Returns the evidence for each canary (above 0: in the table, below 0: not) and the amount charged."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of a check.

    Attributes:
        check: The kind of check.
        setting: The mechanism and input that were checked, in words.
        sound: Whether the result is consistent with the claim.
        shown: The result, in words.
        currency: The currency of the claimed amount, if an amount was claimed.
        charged: The claimed amount.
        delta: The delta claimed with it.
        measured: A lower bound of the amount actually lost.
    """

    check: str
    setting: str
    sound: bool
    shown: str
    currency: Currency | None = None
    charged: float | None = None
    delta: float = 0.0
    measured: float | None = None


class Check(Protocol):
    """One check. `effort` scales its number of draws."""

    kind: ClassVar[str]

    @property
    def setting(self) -> str:
        """The mechanism and input that are checked, in words."""

    def run(self, *, effort: float) -> Finding:
        """Run the check and return its finding."""


@dataclass(frozen=True, kw_only=True)
class EventCheck:
    """Check that no event on two neighbours shows a larger privacy loss than was charged.

    Attributes:
        setting: The mechanism and the neighbours, in words.
        currency: The currency of the charge.
        charged: The amount charged.
        here: Draws on one of two neighbours.
        there: Draws on the other.
        draws: The number of draws on each.
        delta: The delta of an (epsilon, delta) claim.
    """

    kind: ClassVar[str] = "event"

    setting: str
    currency: Currency
    charged: int
    here: Draw
    there: Draw
    draws: int
    delta: float = 0.0

    def run(self, *, effort: float) -> Finding:
        """Draw on both neighbours and bound the loss that the most revealing event shows."""
        count = scaled(self.draws, effort)
        shown = most_telling(self.here(count), self.there(count), currency=self.currency, miss=MISS, delta=self.delta)
        p, q = (tally.hits / tally.trials for tally in (shown.here, shown.there))
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=shown.amount * AMOUNT_OF_ONE <= self.charged,
            shown=f"an event with frequency {p:.3g} against {q:.3g} in {shown.here.trials:,} draws each",
            currency=self.currency,
            charged=self.charged / AMOUNT_OF_ONE,
            delta=self.delta,
            measured=shown.amount,
        )


@dataclass(frozen=True, kw_only=True)
class DistributionCheck:
    """Check that outputs have their exact probabilities.

    Attributes:
        setting: The mechanism and its input, in words.
        draw: Draws from it.
        draws: The number of draws.
        outcomes: The possible outcomes, in ascending order. Any other output is counted as the next larger one, or else as the last.
        probabilities: The exact probability of each outcome.
    """

    kind: ClassVar[str] = "distribution"

    setting: str
    draw: Draw
    draws: int
    outcomes: Outcomes
    probabilities: npt.NDArray[np.float64] = field(repr=False)

    def run(self, *, effort: float) -> Finding:
        """Draw, count, and compare."""
        count = scaled(self.draws, effort)
        places = np.clip(np.searchsorted(self.outcomes, self.draw(count)), 0, len(self.outcomes) - 1)
        observed = np.bincount(places, minlength=len(self.outcomes))
        p = chi_square_p(observed, self.probabilities / self.probabilities.sum() * count)
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=p > MISS,
            shown=f"chi-square over {len(self.outcomes):,} outcomes, {count:,} draws: p {p:.2g}",
        )


@dataclass(frozen=True, kw_only=True)
class StreamCheck:
    """Check that all noise comes from the operating system's entropy."""

    kind: ClassVar[str] = "stream"

    setting: str
    draw: Draw

    def run(self, *, effort: float) -> Finding:
        """Draw while recording the random words, replay them, and draw again with new ones."""
        count = scaled(100, effort)
        sound = determined(lambda: self.draw(count))
        shown = (
            "the recorded words determine every output" if sound else "outputs differ although the words are the same"
        )
        return Finding(check=self.kind, setting=self.setting, sound=sound, shown=shown)


@dataclass(frozen=True, kw_only=True)
class OneRunCheck:
    """Check that the coins cannot be guessed better from one run than the charge, in pure epsilon, allows.

    Each canary is a row in its own cell. Canaries without evidence either way are not guessed.

    Reference: Steinke, Nasr and Jagielski 2023.
    """

    kind: ClassVar[str] = "one run"

    setting: str
    measure: Measure

    def run(self, *, effort: float) -> Finding:
        """Toss the coins, measure once, and guess."""
        canaries = min(scaled(CANARIES, effort), CANARIES)
        coins = (entropy.random_words(canaries) >> np.uint64(63)).astype(np.int64)
        evidence, charged = self.measure(coins)
        guesses = int(np.count_nonzero(evidence))
        correct = int(np.count_nonzero(np.sign(evidence) == 2 * coins - 1))
        measured = least_amount(currency=Currency.PURE, canaries=canaries, guesses=guesses, correct=correct, miss=MISS)
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=measured * AMOUNT_OF_ONE <= charged,
            shown=f"{correct:,} of {guesses:,} guesses right",
            currency=Currency.PURE,
            charged=charged / AMOUNT_OF_ONE,
            measured=measured,
        )


@dataclass(frozen=True, kw_only=True)
class ChargeCheck:
    """Check that random words are drawn only while an operation is charged, and has no result yet.

    Attributes:
        setting: The operation that is checked, in words.
        spending: Opens a made-up account, and gives its ledger and a function that spends from it.
        least: The least amount that must be charged at every request for random words.
    """

    kind: ClassVar[str] = "charge"

    setting: str
    spending: Callable[[], AbstractContextManager[tuple[Ledger, Callable[[], object]]]]
    least: int = 1

    def run(self, *, effort: float) -> Finding:  # noqa: ARG002  as often as it takes
        """Spend once and observe every request for random words."""
        paid: list[bool] = []
        system = entropy.random_words

        with self.spending() as (ledger, spend):

            def watched(count: int) -> Words:
                paid.append(under_way(ledger) >= self.least)
                return system(count)

            with taken_from(watched):
                spend()
        free = len(paid) - sum(paid)
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=bool(paid) and not free,
            shown=f"{free} of {len(paid)} requests for random words came without a charge",
        )


def scaled(draws: int, effort: float) -> int:
    """Return the number of draws scaled by the effort, at least 100."""
    if not 0 < effort <= 100:
        raise UsageError("the share of draws must be above 0 and at most 100; choose 1 for all of them")
    return max(100, round(draws * effort))
