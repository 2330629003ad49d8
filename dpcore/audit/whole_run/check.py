"""The check of complete releases: canaries cannot be guessed better from the published files than the promise allows."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import ClassVar

import numpy as np

from dpcore.audit.checks import MISS, Finding, scaled
from dpcore.audit.one_run import least_amount
from dpcore.audit.whole_run.guessing import RULES, read_published, right_guesses
from dpcore.audit.whole_run.settings import Setting
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency

MISS_OF_RULE = MISS / len(RULES)


@dataclass(frozen=True, kw_only=True)
class ReleaseCheck:
    """Check that the coins cannot be guessed better from the releases of one setting than their promise allows.

    The coins of several releases are independent. In pure epsilon, all of them together are the coins of one mechanism with the same
    promise: each coin changes one release. The other promises allow all guesses of a release to be right with a small probability. There, the
    probability that *every* one of n releases has at least c right guesses is at most the n-th power of the bound for one release. So the
    fewest right guesses of any release are compared with the n-th root of `MISS_OF_RULE`.

    Attributes:
        of: The setting of the releases.
        fault: The fault that is planted meanwhile; none by default.
    """

    kind: ClassVar[str] = "whole run"

    of: Setting
    fault: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def setting(self) -> str:
        """The number of releases and canaries, in words."""
        times = "" if self.of.releases == 1 else f"{self.of.releases} x "
        return f"{times}{self.of.canaries:,} canaries"

    def run(self, *, effort: float) -> Finding:
        """Publish, guess from what was published, and compare the guesses with the promise."""
        of = replace(self.of, canaries=min(scaled(self.of.canaries, effort), self.of.canaries))
        guessed: dict[str, list[tuple[int, int]]] = {rule: [] for rule in RULES}
        promised = spent = 0
        for _ in range(of.releases):
            coins = (entropy.random_words(of.canaries) >> np.uint64(63)).astype(np.bool_)
            with self.fault(), of.published(coins) as folder:
                published = read_published(folder, of)
                for rule, guesses in right_guesses(published, setting=of, coins=coins).items():
                    guessed[rule].append(guesses)
            promised, spent = max(promised, published.promised), max(spent, published.spent)
        measured, shown = 0.0, "no rule guesses better than chance"
        most = 8 * of.promised / AMOUNT_OF_ONE  # anything above the promise proves a fault
        for rule, by_release in guessed.items():
            more, counted = self._bound(of, by_release, between=(measured, most))
            if more > measured:
                measured, shown = more, f"{counted}: {rule}"
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=measured * AMOUNT_OF_ONE <= promised and spent <= of.promised,
            shown=shown,
            currency=of.currency,
            charged=promised / AMOUNT_OF_ONE,
            delta=of.delta if of.currency is Currency.PURE else 0.0,
            measured=measured,
        )

    def _bound(self, of: Setting, guessed: list[tuple[int, int]], *, between: tuple[float, float]) -> tuple[float, str]:
        """Return the lower bound that a rule shows, and its right guesses in words."""
        together = of.currency is Currency.PURE
        guesses, correct = map(sum, zip(*guessed, strict=True)) if together else min(guessed, key=itemgetter(1))
        bound = least_amount(
            currency=of.currency,
            canaries=of.canaries * (of.releases if together else 1),
            guesses=guesses,
            correct=correct,
            miss=MISS_OF_RULE if together else MISS_OF_RULE ** (1 / of.releases),
            between=between,
        )
        return bound, f"{correct:,} of {guesses:,} right{'' if together else ', or more'}"
