"""A mechanism that is changed so that it breaks its guarantee is noticed by its own checks, not only by planted bugs."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcore.audit.cases import CASES
from dpcore.ledger import Ledger
from dpcore.mechanisms.bounded_mean import BoundedMean
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.noise import one_number
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.noisy_histogram import NoisyHistogram
from dpcore.mechanisms.noisy_max import ReportNoisyMax
from dpcore.mechanisms.noisy_value import NoisyValue
from dpcore.mechanisms.sampling import wide
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity
from dpcore.textbook.randomized_response import RandomizedResponse

ENOUGH = 0.5
"""Of the draws: a fault is noticed with fewer than the audit makes."""


def faults(case: str, *, only: str = "") -> list[str]:
    """The checks of a case that fail, or those of them whose setting says something."""
    found = [check.run(effort=ENOUGH) for check in CASES[case]().checks if only in check.setting]
    assert found
    return [finding.setting for finding in found if not finding.sound]


def halved(charge: Callable[..., int]) -> Callable[..., int]:
    return lambda self, currency: charge(self, currency) // 2


def test_half_a_price_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults("noisy-count") == []
    monkeypatch.setattr(NoisyCount, "price", halved(NoisyCount.price))
    assert faults("noisy-count")


def test_a_price_for_one_answer_of_several_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults("randomized-response", only="person") == []
    monkeypatch.setattr(RandomizedResponse, "price", halved(RandomizedResponse.price))
    assert faults("randomized-response", only="person")


def test_a_sum_that_forgets_that_a_value_may_be_replaced_by_none_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults("bounded-sum", only="null") == []
    forgetful = property(lambda self: one_number(self.protection.most * self.grid.width))
    monkeypatch.setattr(BoundedSum, "sensitivity", forgetful)
    assert faults("bounded-sum", only="null")


@pytest.mark.parametrize("only", ["null", "other"])
def test_a_mean_that_is_paid_for_the_cheaper_of_its_movements_is_noticed(
    monkeypatch: pytest.MonkeyPatch, only: str
) -> None:
    assert faults("bounded-mean", only=only) == []

    def cheaper(self: BoundedMean, currency: Currency) -> int:
        return min(
            sum(
                replace(noise, sensitivity=one_number(distance)).price(currency)
                for noise, distance in zip(self.noises, movement, strict=True)
                if distance
            )
            for movement in self.movements
        )

    monkeypatch.setattr(BoundedMean, "price", cheaper)
    assert faults("bounded-mean", only=only)


def test_marginals_whose_l2_is_that_of_one_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults("noisy-histogram", only="four") == []

    def stacked(self: NoisyHistogram) -> Sensitivity:
        one = self.protection.sensitivity
        return Sensitivity(l1=len(self.marginals) * one.l1, l2_squared=one.l2_squared, linf=one.linf)

    monkeypatch.setattr(NoisyHistogram, "sensitivity", property(stacked))
    assert faults("noisy-histogram", only="four")


def test_a_movement_that_is_rounded_down_to_steps_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults("noisy-value") == []
    down = property(lambda self: one_number(math.floor(self.moves_by / self.grid.step)))
    monkeypatch.setattr(NoisyValue, "sensitivity", down)
    assert faults("noisy-value")


@pytest.mark.parametrize("forgotten", ["sensitivity", "monotone"])
def test_a_noisy_maximum_that_forgets_what_its_noise_depends_on_is_noticed(
    monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    assert faults("report-noisy-max", only="replaced") == []
    sound = ReportNoisyMax.__post_init__

    def forgets(self: ReportNoisyMax) -> None:
        sound(self)
        object.__setattr__(self, forgotten, {"sensitivity": 1, "monotone": True}[forgotten])

    monkeypatch.setattr(ReportNoisyMax, "__post_init__", forgets)
    assert faults("report-noisy-max", only="replaced")


@pytest.mark.parametrize("case", ["discrete-laplace", "discrete-gaussian"])
def test_a_wide_sampler_that_keeps_a_zero_with_a_minus_is_noticed(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    assert faults(case, only="wide") == []
    sound = wide._laplace_tries

    def keeps(count: int, digits: Any) -> tuple[Any, Any]:
        drawn, accepted = sound(count, digits)
        return drawn, np.ones_like(accepted)

    monkeypatch.setattr(wide, "_laplace_tries", keeps)
    assert faults(case, only="wide")


def test_a_question_that_starts_for_less_than_its_price_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults("asking-step") == []
    sound = Ledger.charge

    def cheaper(self: Ledger, lease: Any, *, amount: int, **more: Any) -> Any:
        return sound(self, lease, amount=amount // 2, **more)

    monkeypatch.setattr(Ledger, "charge", cheaper)
    assert faults("asking-step")
