"""What every mechanism that answers a query on a table must keep, beyond what every mechanism must."""

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection
from tests.contracts.mechanism import AT_LEAST, MechanismContract

ROW, SWAPPED_ROW = (Protection(unit="row", rows_per_unit=1, neighbours=n) for n in Neighbours)
PERSON, SWAPPED_PERSON = (Protection(unit="person", rows_per_unit=2, neighbours=n) for n in Neighbours)
WEIGHTED = Protection(unit="person", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE, weight="times", row_weight=3)
PROTECTIONS = (ROW, SWAPPED_ROW, PERSON, SWAPPED_PERSON, WEIGHTED)


def shown_privacy_loss(noise: Any, here: int, there: int, *, currency: Currency, draws: int = 200_000) -> float:
    """A lower bound of what noise on two exact answers costs: the event is chosen on one half and counted on the other."""
    answers = [noise.draw(np.full(draws, exact, dtype=np.int64)) for exact in (here, there)]
    (first, first_there), (second, second_there) = (
        [some[: draws // 2] for some in answers],
        [some[draws // 2 :] for some in answers],
    )
    sign = 1 if here > there else -1
    at_least = AT_LEAST[currency]
    cuts = np.quantile(sign * first, np.linspace(0.02, 0.98, 25))
    cut = max(cuts, key=lambda cut: at_least(sign * first >= cut, sign * first_there >= cut))
    return at_least(sign * second >= cut, sign * second_there >= cut)


class AskedContract(MechanismContract):
    """Of every question, whatever its noise: what a promise buys, and whom it protects."""

    asked: ClassVar[dict[str, Any]]
    """What the query is, but for its protection."""

    currencies = tuple(Currency)

    @pytest.fixture(
        params=(ROW, SWAPPED_PERSON, WEIGHTED), ids=lambda one: f"{one.unit}-{one.neighbours}-{one.most}", autouse=True
    )
    def protected(self, request):
        self.protection = request.param

    def bought(self, amount: int, currency: Currency) -> Any:
        return self.kind.for_amount(amount, currency=currency, protection=self.protection, **self.asked)

    def promised(self, epsilon: float, **promise: Any) -> Any:
        return self.kind.for_epsilon(epsilon, protection=self.protection, **promise, **self.asked)

    def test_a_promise_of_epsilon_buys_what_its_amount_does(self):
        assert self.promised(0.5, delta=0) == self.bought(AMOUNT_OF_ONE // 2, Currency.PURE)
        for currency in (Currency.ZCDP, Currency.GDP):
            _, amount = budget_of(0.5, delta=1e-9, currency=currency)
            assert self.promised(0.5, delta=1e-9, currency=currency) == self.bought(amount, currency)
        assert self.promised(0.5, delta=1e-9) == self.promised(0.5, delta=1e-9, currency=Currency.ZCDP)
        for epsilon, delta in ((0, 0), (math.nan, 0), (math.inf, 1e-9), (1.0, 1), (1.0, -1.0), (1.0, math.nan)):
            with pytest.raises(UsageError):
                self.promised(epsilon, delta=delta)

    def test_a_protection_that_says_nothing_is_refused(self):
        for bad in (None, "row"):
            with pytest.raises(UsageError, match="must be a Protection"):
                replace(self.bought(10**11, Currency.PURE), protection=bad)
        heavy = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, row_weight=2)
        with pytest.raises(UsageError, match="need a weight column"):
            replace(self.bought(10**11, Currency.PURE), protection=heavy)


class QueryContract(AskedContract):
    """Prices, descriptions and calibration; the noise itself is tested where it is made."""

    less_noise = ("scale", 0.0)
    scales: ClassVar[tuple[str, ...]] = ("scale",)

    @pytest.fixture(params=[10**10, 3 * 10**12])
    def amount(self, request):
        return request.param

    def test_more_budget_never_buys_more_noise(self):
        name, _ = self.less_noise
        for currency in self.currencies:
            noises = [getattr(self.bought(amount, currency), name) for amount in (10**10, 10**11, 10**13, 10**15)]
            assert noises == sorted(noises, reverse=True)

    def test_the_noise_is_the_best_of_its_currency(self):
        assert self.promised(0.5, delta=0).noise is Shape.LAPLACE
        assert self.promised(0.5, delta=1e-9).noise is Shape.GAUSSIAN

    @pytest.mark.parametrize("scale", [0, 0.0, -1.0, 1e-9, 1e13, math.nan, math.inf, True, "1", None])
    def test_a_scale_that_means_nothing_is_refused(self, scale):
        bought = self.bought(10**11, Currency.PURE)
        for name in self.scales:
            with pytest.raises(UsageError, match="noise scale"):
                replace(bought, **{name: scale})
