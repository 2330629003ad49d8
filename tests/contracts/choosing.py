"""What every query that selects or compares must keep, beyond what every mechanism must."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from dpcore.errors import UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection
from tests.contracts.mechanism import MechanismContract
from tests.contracts.query import ROW, SWAPPED_PERSON, WEIGHTED


class ChoosingContract(MechanismContract):
    """Prices, descriptions and calibration; the selection itself is tested where it is made."""

    asked: ClassVar[dict[str, Any]]
    """What the query is, but for its protection."""

    currencies = tuple(Currency)
    less_noise = ("epsilon", 1e9)

    @pytest.fixture(
        params=(ROW, SWAPPED_PERSON, WEIGHTED), ids=lambda one: f"{one.unit}-{one.neighbours}-{one.most}", autouse=True
    )
    def protected(self, request):
        self.protection = request.param

    @pytest.fixture(params=[10**10])
    def amount(self, request):
        return request.param

    def bought(self, amount: int, currency: Currency) -> Any:
        return self.kind.for_amount(amount, currency=currency, protection=self.protection, **self.asked)

    def test_more_budget_never_buys_more_noise(self):
        bought = [self.bought(amount, Currency.ZCDP).epsilon for amount in (10**10, 10**11, 10**13)]
        assert bought == sorted(bought)

    def test_a_promise_of_epsilon_buys_what_its_amount_does(self):
        pure = self.kind.for_epsilon(0.5, delta=0, protection=self.protection, **self.asked)
        assert pure == self.bought(AMOUNT_OF_ONE // 2, Currency.PURE)

    def test_a_protection_that_says_nothing_is_refused(self):
        for bad in (None, "row"):
            with pytest.raises(UsageError, match="must be a Protection"):
                replace(self.bought(10**11, Currency.PURE), protection=bad)
        heavy = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, row_weight=2)
        with pytest.raises(UsageError, match="need a weight column"):
            replace(self.bought(10**11, Currency.PURE), protection=heavy)
