"""The one-run audit as a check: canaries, each in the table or not by a fair coin, and guesses from one noisy histogram."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.audit.checks import MISS, Finding, scaled
from dpcore.audit.one_run import least_epsilon
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency

CANARIES = 10_000

Counts: TypeAlias = npt.NDArray[np.int64]

Measure: TypeAlias = Callable[[Counts], tuple[Counts, int]]
"""Measures made-up counts once: says what speaks for each canary, above 0 for being in, below 0 for not, and the amount that was charged."""


@dataclass(frozen=True, kw_only=True)
class OneRunCheck:
    """One run lets no more coins be guessed than was charged for, in pure epsilon.

    Each canary is a row in a cell of its own. No guess is made where nothing speaks for either.

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
        measured = least_epsilon(canaries=canaries, guesses=guesses, correct=correct, delta=0.0, confidence=1 - MISS)
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=measured * AMOUNT_OF_ONE <= charged,
            shown=f"{correct:,} of {guesses:,} guesses right",
            currency=Currency.PURE,
            charged=charged / AMOUNT_OF_ONE,
            measured=measured,
        )
