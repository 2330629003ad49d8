"""The check of complete releases: canaries cannot be guessed better from the published files than the promise that they state allows."""

import json
import math
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
from dpcore.privacy.accounting import Currency
from dpcore.runs.steps import synthesize

MOST_TIMES = 8
"""Search for lower bounds up to this multiple of the promise. Anything above the promise proves a fault anyway."""

MISS_OF_RULE = MISS / len(RULES)


@dataclass(frozen=True, kw_only=True)
class ReleaseCheck:
    """Check that the coins cannot be guessed better from the releases of one setting than their promise allows.

    The coins of several releases are independent. Under the promise, the probability that *every* one of n releases has at least c right
    guesses is at most the n-th power of the bound for one release. The fewest right guesses of any release are therefore compared with
    the n-th root of `MISS_OF_RULE`.

    Attributes:
        of: The setting of the releases.
        fault: The fault that is planted meanwhile; none by default.
        driver: Makes a release from a spec.
    """

    kind: ClassVar[str] = "whole run"

    of: Setting
    fault: Callable[[], AbstractContextManager[None]] = nullcontext
    driver: Driver = synthesize

    @property
    def setting(self) -> str:
        """The number of releases and canaries, in words."""
        times = "" if self.of.releases == 1 else f"{self.of.releases} x "
        return f"{times}{self.of.canaries:,} canaries"

    def run(self, *, effort: float) -> Finding:
        """Make the releases, guess from each, and compare the guesses with the promise."""
        canaries = min(scaled(self.of.canaries, effort), self.of.canaries)
        of = replace(self.of, canaries=canaries)
        fewest: dict[str, tuple[int, int]] = {}
        spent, stated = 0.0, math.inf
        for _ in range(of.releases):
            coins = (entropy.random_words(canaries) >> np.uint64(63)).astype(np.bool_)
            with self.fault(), of.released(coins, driver=self.driver) as outcome:
                for rule, found in right_guesses(Path(outcome.release), setting=of, coins=coins).items():
                    fewest[rule] = min(found, fewest.get(rule, found))
                spent, stated = max(spent, outcome.spent), min(stated, _stated(Path(outcome.release), of.currency))
        measured, told = 0.0, "no rule guesses better than chance"
        for rule, (guesses, correct) in fewest.items():
            more = least_amount(
                currency=of.currency,
                canaries=of.canaries,
                guesses=guesses,
                correct=correct,
                miss=MISS_OF_RULE ** (1 / of.releases),
                between=(measured, MOST_TIMES * stated),
            )
            if more > measured:
                measured, told = more, f"{correct:,} of {guesses:,} right, or more: {rule}"
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=max(measured, spent) <= stated,
            shown=told,
            currency=of.currency,
            charged=stated,
            delta=of.delta if of.currency is Currency.PURE else 0.0,
            measured=measured,
        )


def _stated(release: Path, currency: Currency) -> float:
    """Return the amount that a release states, in the account's currency."""
    privacy = json.loads((release / "manifest.json").read_text(encoding="utf-8"))["privacy"]
    amounts = {
        Currency.PURE: privacy["epsilon"],
        Currency.ZCDP: privacy["rho"],
        Currency.GDP: (privacy["mu"] or 0) ** 2,
    }
    return float(amounts[currency])
