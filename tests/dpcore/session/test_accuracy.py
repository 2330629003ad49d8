"""The wanted accuracy, and the noise that reaches it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.mechanisms.noise import LEAST_NOISE
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.session.accuracy import LEAST, Within, cheapest, needed_noise

PROTECTIONS = [
    Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE),
    Protection(unit="person", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE),
]


@pytest.mark.parametrize("within", ["", "many", "-5", 0, -1, float("nan"), float("inf"), "0%", True, None, "5 rows"])
def test_an_accuracy_that_means_nothing_is_refused(within: object) -> None:
    with pytest.raises(UsageError, match="say how accurate"):
        Within.of(within)  # type: ignore[arg-type]


def test_a_share_is_of_each_number() -> None:
    assert Within.of("2.5%").half_widths(np.array([1000.0, 40.0])).tolist() == [25.0, 1.0]
    assert Within.of("30").half_widths(np.array([1000.0, 40.0])).tolist() == [30.0, 30.0]


@given(known=st.floats(1.0, 1e6), share=st.floats(0.01, 0.99), cells=st.integers(1, 50), normal=st.floats(0.5, 4.0))
def test_the_needed_noise_reaches_the_wanted_width_and_not_less(
    known: float, share: float, cells: int, normal: float
) -> None:
    wanted = known * share
    noise = needed_noise(np.array([known]), np.array([wanted]), np.array([float(cells)]), normal=normal)
    variance = 1 / ((normal / known) ** 2 + 1 / (cells * noise**2))
    assert normal * variance**0.5 == pytest.approx(wanted)


def test_the_most_demanding_group_decides() -> None:
    halves, wanted = np.array([100.0, 100.0, 10.0]), np.array([50.0, 60.0, 50.0])
    noise = needed_noise(halves, wanted, np.ones(3), normal=1.96)
    assert noise == needed_noise(halves[:1], wanted[:1], np.ones(1), normal=1.96)


@pytest.mark.parametrize("currency", list(Currency))
@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("noise", [0.51, 1.0, 7.3, 250.0])
def test_the_cheapest_noise_is_as_small_as_wanted_and_hardly_smaller(
    currency: Currency, protection: Protection, noise: float
) -> None:
    found = cheapest(noise, currency=currency, sensitivity=protection.sensitivity)
    assert found is not None
    assert found.sensitivity == protection.sensitivity
    assert found.standard_deviation <= noise
    price = found.price(currency)
    for cheaper, enough in ((price - price // 10**6 - 1, False), (price + price // 10**6 + 1, True)):
        bought = LEAST_NOISE[currency].for_amount(cheaper, currency=currency, sensitivity=protection.sensitivity)
        assert (bought.standard_deviation <= noise) == enough


def test_almost_exact_counts_are_not_sold() -> None:
    assert cheapest(LEAST / 2, currency=Currency.ZCDP, sensitivity=PROTECTIONS[0].sensitivity) is None


@pytest.mark.parametrize("currency", list(Currency))
def test_more_noise_than_can_be_drawn_costs_the_least_price(currency: Currency) -> None:
    assert cheapest(1e30, currency=currency, sensitivity=PROTECTIONS[0].sensitivity) is not None
