"""The one-run audit as a check: fair coins decide which canaries are in the table, and guesses come from one noisy histogram."""

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
"""Measures made-up counts once. Returns the evidence for each canary (above 0: in the table, below 0: not) and the amount charged."""


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
