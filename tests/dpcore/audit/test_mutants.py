"""A mechanism that is changed so that it breaks its guarantee is noticed by its own checks, not only by planted bugs."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcore.audit.cases import CASES
from dpcore.curator.gate import CountQuery, Gate
from dpcore.ledger import Ledger
from dpcore.mechanisms import (
    BoundedMean,
    BoundedSum,
    NoisyCount,
    NoisyHistogram,
    NoisyValue,
    ReportNoisyMax,
    SparseVector,
)
from dpcore.mechanisms.noise import one_number
from dpcore.mechanisms.sampling import wide
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity
from dpcore.textbook.randomized_response import RandomizedResponse


def half_the_price(kind: Any) -> Callable[[Any, Currency], int]:
    price = kind.price
    return lambda self, currency: price(self, currency) // 2


def cheaper_movement(self: BoundedMean, currency: Currency) -> int:
    return min(
        sum(
            replace(noise, sensitivity=one_number(distance)).price(currency)
            for noise, distance in zip(self.noises, movement, strict=True)
            if distance
        )
        for movement in self.movements
    )


def l2_of_one_marginal(self: NoisyHistogram) -> Sensitivity:
    one = self.protection.sensitivity
    return Sensitivity(l1=len(self.marginals) * one.l1, l2_squared=one.l2_squared, linf=one.linf)


def forgotten(name: str, value: Any) -> Callable[[ReportNoisyMax], None]:
    sound = ReportNoisyMax.__post_init__

    def forgets(self: ReportNoisyMax) -> None:
        sound(self)
        object.__setattr__(self, name, value)

    return forgets


def zeros_with_a_minus_kept(tries: Any = wide._laplace_tries) -> Callable[..., Any]:
    def keeps(count: int, digits: Any) -> tuple[Any, Any]:
        drawn, accepted = tries(count, digits)
        return drawn, np.ones_like(accepted)

    return keeps


def unnoised(self: Gate, query: CountQuery, *, expected: int) -> bool:
    return abs(int(query.on(self._histogram.marginal(query.axes))) - expected) >= self._session._bar


def half_charged(self: Ledger, lease: Any, *, amount: int, charge: Any = Ledger.charge, **more: Any) -> Any:
    return charge(self, lease, amount=amount // 2, **more)


MUTANTS: dict[str, tuple[str, str, float, Any, str, Any]] = {
    "half a price": ("noisy-count", "person", 0.5, NoisyCount, "price", half_the_price(NoisyCount)),
    "the price of one answer of several": (
        *("randomized-response", "person", 0.1),
        *(RandomizedResponse, "price", half_the_price(RandomizedResponse)),
    ),
    "half the price of a gate": ("gate-step", "both", 0.5, SparseVector, "price", half_the_price(SparseVector)),
    "a gate that adds no noise to an error": ("gate-step", "both", 0.4, Gate, "compare", unnoised),
    "a sum that forgets that a value may be replaced by none": (
        *("bounded-sum", "null", 0.5),
        *(BoundedSum, "sensitivity", property(lambda self: one_number(self.protection.most * self.grid.width))),
    ),
    "a mean that is paid for its cheaper movement, null": (
        *("bounded-mean", "null", 0.5),
        *(BoundedMean, "price", cheaper_movement),
    ),
    "a mean that is paid for its cheaper movement, other": (
        *("bounded-mean", "other", 0.5),
        *(BoundedMean, "price", cheaper_movement),
    ),
    "marginals whose L2 is that of one": (
        *("noisy-histogram", "four", 0.5),
        *(NoisyHistogram, "sensitivity", property(l2_of_one_marginal)),
    ),
    "a movement that is rounded down to steps": (
        *("noisy-value", "answer", 0.5, NoisyValue, "sensitivity"),
        property(lambda self: one_number(math.floor(self.moves_by / self.grid.step))),
    ),
    "a noisy maximum that forgets its sensitivity": (
        *("report-noisy-max", "replaced", 0.5),
        *(ReportNoisyMax, "__post_init__", forgotten("sensitivity", 1)),
    ),
    "a noisy maximum that forgets that scores are not monotone": (
        *("report-noisy-max", "replaced", 0.5),
        *(ReportNoisyMax, "__post_init__", forgotten("monotone", True)),
    ),
    "Laplace zeros with a minus": (
        *("discrete-laplace", "wide", 0.5, wide, "_laplace_tries"),
        zeros_with_a_minus_kept(),
    ),
    "Gaussian zeros with a minus": (
        *("discrete-gaussian", "wide", 0.5, wide, "_laplace_tries"),
        zeros_with_a_minus_kept(),
    ),
    "a question that starts for less than its price": ("asking-step", "words", 1.0, Ledger, "charge", half_charged),
}
"""The case and the word in the settings of its checks that notice the change, with how much of their draws; and what is replaced by what."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mechanism_that_breaks_its_guarantee_is_noticed(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    """That the sound mechanism passes is told by tests/power/test_2_mechanisms.py."""
    case, word, effort, owner, name, changed = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, changed)
    checks = [check for check in CASES[case]().checks if word in check.setting]
    assert checks
    assert any(not check.run(effort=effort).sound for check in checks)
