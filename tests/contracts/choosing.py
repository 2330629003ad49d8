"""What every query that selects or compares must keep, beyond what every mechanism must."""

import pytest

from dpcore.privacy.accounting import Currency
from tests.contracts.query import AskedContract


class ChoosingContract(AskedContract):
    """Prices, descriptions and calibration; the selection itself is tested where it is made."""

    less_noise = ("epsilon", 1e9)

    @pytest.fixture(params=[10**10])
    def amount(self, request):
        return request.param

    def test_more_budget_never_buys_more_noise(self):
        bought = [self.bought(amount, Currency.ZCDP).epsilon for amount in (10**10, 10**11, 10**13)]
        assert bought == sorted(bought)
