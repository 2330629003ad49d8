"""The checks that an audit is made of: each runs installed code, and tells what it found.

A check is made of a sound mechanism, which must pass it, or of a planted bug, which must not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.audit.events import Outcomes, most_telling
from dpcore.audit.goodness import chi_square_p
from dpcore.audit.streams import determined
from dpcore.errors import UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency

MISS = 1e-8
"""The probability with which any one check finds a fault in sound code. With fewer than 100 checks, an audit does so less than once in 10^6 runs."""

MOST_CHECKS = 100

Draw: TypeAlias = Callable[[int], Outcomes]
"""Draws so many outputs of a mechanism on one made-up table, independently."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found.

    Attributes:
        check: Which check it was.
        setting: What was checked, in words.
        sound: Whether nothing speaks against what was claimed.
        shown: What was found, in words.
        currency: In which an amount was claimed, if one was.
        charged: The amount that was claimed.
        delta: The delta that was claimed with it.
        measured: The amount that was certainly lost.
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
    """One check; `effort` scales how many draws it makes."""

    kind: ClassVar[str]

    @property
    def setting(self) -> str:
        """What is checked, in words."""

    def run(self, *, effort: float) -> Finding:
        """Check, and tell what was found."""


@dataclass(frozen=True, kw_only=True)
class EventCheck:
    """No event on two neighbours shows more privacy loss than was charged.

    Attributes:
        setting: The mechanism and the neighbours, in words.
        currency: What was charged in.
        charged: The amount that was charged.
        here: Draws on one of two neighbours.
        there: Draws on the other.
        draws: How many of each.
        delta: The delta of a claim of (epsilon, delta).
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
        """Draw on both neighbours and bound what the most telling event shows."""
        count = scaled(self.draws, effort)
        shown = most_telling(self.here(count), self.there(count), currency=self.currency, miss=MISS, delta=self.delta)
        p, q = (tally.hits / tally.trials for tally in (shown.here, shown.there))
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=shown.amount * AMOUNT_OF_ONE <= self.charged,
            shown=f"an event of {p:.3g} against {q:.3g} in {shown.here.trials:,} draws a side",
            currency=self.currency,
            charged=self.charged / AMOUNT_OF_ONE,
            delta=self.delta,
            measured=shown.amount,
        )


@dataclass(frozen=True, kw_only=True)
class DistributionCheck:
    """Outputs have their exact probabilities.

    Attributes:
        setting: The mechanism and its input, in words.
        draw: Draws from it.
        draws: How many.
        outcomes: What can come out; whatever else does is counted with the nearest one.
        probabilities: The exact probability of each.
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
    """All noise comes from the operating system's entropy."""

    kind: ClassVar[str] = "stream"

    setting: str
    draw: Draw

    def run(self, *, effort: float) -> Finding:
        """Draw with recorded words, with the same again, and with new ones."""
        count = scaled(100, effort)
        sound = determined(lambda: self.draw(count))
        shown = "the recorded words decide every output" if sound else "outputs differ though the words are the same"
        return Finding(check=self.kind, setting=self.setting, sound=sound, shown=shown)


def scaled(draws: int, effort: float) -> int:
    """Return how many draws to make."""
    if not 0 < effort <= 100:
        raise UsageError("the share of draws to make must be above 0, such as 1 for all of them; at most 100")
    return max(100, round(draws * effort))
