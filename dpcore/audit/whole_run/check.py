"""The check of complete releases: canaries, of which no more can be guessed from what is published than the promise allows."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from dpcore.audit.checks import MISS, Finding, scaled
from dpcore.audit.one_run_curves import least_amount
from dpcore.audit.whole_run.guessing import RULES, right_guesses
from dpcore.audit.whole_run.settings import Driver, Setting
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.runs.synthesis import synthesize

MOST_TIMES = 8
"""How many times the promise a lower bound is looked for at most: what shows more is proved wrong anyway."""

MISS_OF_RULE = MISS / len(RULES)


@dataclass(frozen=True, kw_only=True)
class ReleaseCheck:
    """Releases of one setting let no more coins be guessed than they promise.

    Coins of several releases are independent. Under a promise, that *every* one of n releases has at least c right guesses has at most the
    n-th power of the probability that one has. So the fewest right guesses of any release are held against the n-th root of `MISS`.

    Attributes:
        of: What is released.
        fault: What is planted while it is; nothing, for the product as it is installed.
        driver: How a release is made from a spec.
    """

    kind: ClassVar[str] = "whole run"

    of: Setting
    fault: Callable[[], AbstractContextManager[None]] = nullcontext
    driver: Driver = synthesize

    @property
    def setting(self) -> str:
        """What is checked, in words."""
        times = "" if self.of.releases == 1 else f"{self.of.releases} x "
        return f"{times}{self.of.canaries:,} canaries"

    def run(self, *, effort: float) -> Finding:
        """Make the releases, guess from each, and hold the guesses against the promise."""
        canaries = min(scaled(self.of.canaries, effort), self.of.canaries)
        of = replace(self.of, canaries=canaries)
        fewest: dict[str, tuple[int, int]] = {}
        spent = 0.0
        for _ in range(of.releases):
            coins = (entropy.random_words(canaries) >> np.uint64(63)).astype(np.bool_)
            with self.fault(), of.released(coins, driver=self.driver) as outcome:
                for rule, found in right_guesses(Path(outcome.release), setting=of, coins=coins).items():
                    fewest[rule] = min(found, fewest.get(rule, found))
                spent = max(spent, outcome.spent)
        measured, told = 0.0, "no rule guesses better than by chance"
        for rule, (guesses, correct) in fewest.items():
            more = self._bound(of, guesses, correct, beyond=measured)
            if more > measured:
                measured, told = more, f"{correct:,} of {guesses:,} right, or more: {rule}"
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=max(measured, spent) * AMOUNT_OF_ONE <= of.promised,
            shown=told,
            currency=of.currency,
            charged=of.promised / AMOUNT_OF_ONE,
            delta=of.delta if of.currency is Currency.PURE else 0.0,
            measured=measured,
        )

    def _bound(self, of: Setting, guesses: int, correct: int, *, beyond: float) -> float:
        """Return what a rule shows, if it is more than what another one did."""
        return least_amount(
            currency=of.currency,
            canaries=of.canaries,
            guesses=guesses,
            correct=correct,
            miss=MISS_OF_RULE ** (1 / of.releases),
            between=(beyond, MOST_TIMES * of.promised / AMOUNT_OF_ONE),
        )
