"""Noise that is calibrated to (epsilon, delta) has the sigma that was proved, for the sensitivity of a protection."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.noise import RoundedGaussian, one_number
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.textbook.gaussian import (
    analytic_gaussian,
    analytic_gaussian_sigma,
    classic_gaussian,
    classic_gaussian_sigma,
)

PAIRS = [(classic_gaussian, classic_gaussian_sigma), (analytic_gaussian, analytic_gaussian_sigma)]


@pytest.mark.parametrize(("calibrated", "sigma"), PAIRS)
def test_the_sigma_is_that_of_the_l2_sensitivity(calibrated: Callable[..., Any], sigma: Callable[..., float]) -> None:
    person = Protection(unit="person", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE).sensitivity
    noise = calibrated(epsilon=0.5, delta=1e-6, sensitivity=person)
    assert noise == RoundedGaussian(scale=sigma(0.5, delta=1e-6, l2_squared=18), sensitivity=person)
    assert noise.scale == pytest.approx(
        calibrated(epsilon=0.5, delta=1e-6, sensitivity=one_number(1)).scale * math.sqrt(18)
    )


@pytest.mark.parametrize("calibrated", [classic_gaussian, analytic_gaussian])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"sensitivity": Sensitivity(0, 0, 0)}, "sensitivity"),
        ({"epsilon": 1e-7}, "at most 19,999"),
    ],
)
def test_a_promise_that_means_nothing_is_refused(calibrated: Callable[..., Any], change: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        calibrated(**{"epsilon": 0.5, "delta": 1e-6, "sensitivity": one_number(1), **change})
