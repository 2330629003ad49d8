"""Noise on counts: its prices are the ones that were proved, its width is as stated, and it never depends on the counts."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpcore.audit.cases.noise import GAUSSIAN, LAPLACE, ROUNDED, Family, rounded_weights
from dpcore.errors import UsageError
from dpcore.mechanisms.noise import (
    KIND_OF_NOISE,
    LARGEST_SIGMA,
    LEAST_NOISE,
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    bought_noise,
    one_number,
)
from dpcore.mechanisms.sampling import entropy
from dpcore.mechanisms.sampling.inversion import has_table
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, pure_gdp, spend_amount
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.textbook.theorems import laplace_zcdp
from tests.contracts.mechanism import recorded_words

ONE, FAR = one_number(1), one_number(50)
FAMILIES = [LAPLACE, GAUSSIAN, ROUNDED]
K = np.arange(-2000, 2001)


def price(kind: Any, scale: float, sensitivity: Sensitivity, currency: Currency) -> int:
    return int(kind(scale=scale, sensitivity=sensitivity).price(currency))


def test_prices_are_exact_in_the_binary_value_of_the_scale_and_rounded_up() -> None:
    wide, tenth = Sensitivity(4, 8, 2), Fraction(0.1)
    for kind, currency, exact in (
        (DiscreteLaplace, Currency.PURE, 4 / tenth),
        (DiscreteGaussian, Currency.ZCDP, 4 / tenth**2),
        (RoundedGaussian, Currency.ZCDP, 4 / tenth**2),
        (RoundedGaussian, Currency.GDP, 8 / tenth**2),
    ):
        assert price(kind, 0.1, wide, currency) == math.ceil(exact * AMOUNT_OF_ONE)
    for l1 in (1, 10**9):
        assert price(DiscreteLaplace, 7.0 * l1, Sensitivity(l1, l1 * l1, l1), Currency.GDP) == spend_amount(
            pure_gdp(Fraction(1, 7))
        )


@pytest.mark.parametrize("scale", [0.5, 2.0, 20.0])
def test_the_zcdp_price_of_laplace_noise_covers_the_exact_divergence_which_the_continuous_formula_does_not(
    scale: float,
) -> None:
    p = np.exp(-np.abs(K) / scale)
    divergence = float((p / p.sum() * (np.abs(K - 1) - np.abs(K))).sum() / scale)
    paid = price(DiscreteLaplace, scale, ONE, Currency.ZCDP)
    assert paid == pytest.approx(divergence * AMOUNT_OF_ONE, rel=1e-9)
    assert paid > spend_amount(laplace_zcdp(1 / scale))
    added, replaced = (
        price(DiscreteLaplace, scale, Protection("row", 1, neighbours).sensitivity, Currency.ZCDP)
        for neighbours in Neighbours
    )
    assert abs(replaced - 2 * added) <= 1


@pytest.mark.parametrize(
    ("kind", "currency", "said"),
    [
        (DiscreteGaussian, Currency.PURE, "Laplace"),
        (RoundedGaussian, Currency.PURE, "Laplace"),
        (DiscreteGaussian, Currency.GDP, "RoundedGaussian"),
    ],
)
def test_noise_without_a_price_in_a_currency_is_refused(kind: Any, currency: Currency, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        price(kind, 3.0, ONE, currency)
    with pytest.raises(UsageError, match=said):
        kind.for_amount(AMOUNT_OF_ONE, currency=currency, sensitivity=ONE)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.kind.name)
@pytest.mark.parametrize("scale", [0.02, 0.3, 0.5, 1.0, math.nextafter(2.0, 0.0), 2.0, 7.7])
def test_the_standard_deviation_is_that_of_the_masses(family: Family, scale: float) -> None:
    k = K[1600:2401]
    weights = family.weights(k, scale)
    exact = math.sqrt((k**2 * weights).sum() / weights.sum())
    assert family.at(scale).standard_deviation == pytest.approx(exact, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("sigma", "moved"), [(0.3, 1), (0.5, 1), (0.5, 2), (1.0, 1), (1.0, 3), (3.0, 1), (3.0, 11)])
def test_no_test_of_rounded_gaussian_noise_beats_its_mu_and_one_of_the_discrete_gaussian_does(
    sigma: float, moved: int
) -> None:
    """The likelihood ratio is monotone in both, so the best tests are cuts: the mu that each cut shows is compared."""
    k = np.arange(-40, 41)

    def shown(weights: np.ndarray) -> float:
        upper = np.cumsum(weights[::-1])[::-1] / weights.sum()
        here, there = upper[moved:], upper[:-moved]
        clear = (here > 1e-10) & (there < 1 - 1e-10)
        return float((stats.norm.ppf(there[clear]) - stats.norm.ppf(here[clear])).max())

    assert shown(rounded_weights(k, sigma)) == pytest.approx(moved / sigma, rel=1e-4)
    if moved == 1 and sigma <= 1:
        assert shown(GAUSSIAN.weights(k, sigma)) > 1.01 * moved / sigma


@pytest.mark.parametrize("currency", [Currency.GDP, Currency.ZCDP])
def test_an_amount_that_needs_wider_rounded_noise_is_refused_with_what_would_do(currency: Currency) -> None:
    assert has_table(Shape.ROUNDED_GAUSSIAN, LARGEST_SIGMA)
    with pytest.raises(UsageError, match="at most 19,999"):
        RoundedGaussian(scale=math.nextafter(LARGEST_SIGMA, math.inf), sensitivity=ONE)
    sensitivity = one_number(1000)
    least = price(RoundedGaussian, LARGEST_SIGMA, sensitivity, currency)
    with pytest.raises(UsageError, match=f"at least {least} for this step"):
        RoundedGaussian.for_amount(least - 1, currency=currency, sensitivity=sensitivity)
    assert RoundedGaussian.for_amount(least, currency=currency, sensitivity=sensitivity).scale <= LARGEST_SIGMA


@pytest.mark.parametrize("currency", list(Currency))
def test_no_other_noise_that_the_currency_can_pay_is_narrower(currency: Currency) -> None:
    amount = AMOUNT_OF_ONE // 10
    bought = bought_noise(amount, currency=currency, sensitivity=FAR, otherwise="")
    assert bought == LEAST_NOISE[currency].for_amount(amount, currency=currency, sensitivity=FAR)
    laplace = DiscreteLaplace.for_amount(amount, currency=currency, sensitivity=FAR)
    assert bought.standard_deviation <= laplace.standard_deviation
    for none in (0, 1):
        with pytest.raises(UsageError, match=r"for this step.*, or open a window"):
            bought_noise(none, currency=Currency.GDP, sensitivity=FAR, otherwise="open a window")


@pytest.mark.parametrize("shape", list(Shape))
def test_noise_comes_from_the_entropy_stream_and_never_depends_on_the_counts(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = KIND_OF_NOISE[shape]
    assert kind.name == shape
    counts = np.arange(3000, dtype=np.int64).reshape(30, -1)
    counts.flags.writeable = False

    def noise(seed: int, counts: np.ndarray) -> np.ndarray:
        monkeypatch.setattr(entropy, "random_words", recorded_words(seed))
        return kind(scale=12.5, sensitivity=ONE).draw(counts) - counts

    first = noise(1, counts)
    assert (first.shape, first.dtype) == (counts.shape, np.int64)
    assert np.array_equal(noise(1, counts * 1000 - 7), first)
    assert not np.array_equal(noise(2, counts), first)
    ends = np.array([2**63 - 1, -(2**63)] * 200, dtype=np.int64)
    assert np.abs(noise(3, ends)).max() < 5000  # it wraps around, and raises nothing
    assert noise(1, counts[:0]).shape == (0, 100)
