"""Guarantees that callers state: each price is what a theorem gives, and never below what other accountants say."""

import json
from fractions import Fraction
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from dpcore.errors import UsageError
from dpcore.mechanisms import DECLARED, KINDS, from_description
from dpcore.mechanisms.declared import Declared, DpSgd, Gaussian, Laplace, StatedEpsilon, StatedMu, StatedRho
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, epsilon_of, pure_gdp, pure_zcdp
from dpcore.privacy.protection import Neighbours

ONE = AMOUNT_OF_ONE
PURE, ZCDP, GDP = Currency.PURE, Currency.ZCDP, Currency.GDP
TRAINING: dict[str, Any] = {"noise_multiplier": 2, "steps": 8, "sampling_rate": 0.1}
STATED: dict[str, tuple[Declared, dict[Currency, Fraction | float]]] = {
    "epsilon": (StatedEpsilon(epsilon=0.1), {PURE: Fraction(1, 10), ZCDP: pure_zcdp(0.1), GDP: pure_gdp(0.1)}),
    "epsilon and delta": (StatedEpsilon(epsilon=0.1, delta=1e-6), {}),
    "rho": (StatedRho(rho="1/3"), {ZCDP: Fraction(1, 3)}),
    "mu": (StatedMu(mu=0.5), {ZCDP: Fraction(1, 8), GDP: Fraction(1, 4)}),
    "Laplace": (Laplace(scale=20, sensitivity=2), {PURE: Fraction(1, 10), ZCDP: pure_zcdp(0.1), GDP: pure_gdp(0.1)}),
    "Gaussian": (Gaussian(scale=6, sensitivity=3, continuous=True), {ZCDP: Fraction(1, 8), GDP: Fraction(1, 4)}),
    "discrete Gaussian": (Gaussian(scale=6, sensitivity=3, continuous=False), {ZCDP: Fraction(1, 8)}),
    "DP-SGD": (DpSgd(neighbours=Neighbours.ADD_REMOVE, **TRAINING), {ZCDP: Fraction(1), GDP: Fraction(2)}),
    "DP-SGD, replaced": (DpSgd(neighbours=Neighbours.REPLACE_ONE, **TRAINING), {ZCDP: Fraction(4), GDP: Fraction(8)}),
}


@pytest.fixture(params=STATED)
def stated(request: pytest.FixtureRequest) -> tuple[Declared, dict[Currency, Fraction | float]]:
    return STATED[request.param]


def test_every_guarantee_is_listed_here() -> None:
    assert {type(mechanism) for mechanism, _ in STATED.values()} == set(DECLARED) == set(Declared.__subclasses__())
    assert not {kind.name for kind in DECLARED} & {kind.name for kind in KINDS}


def test_the_price_is_exact_or_rounded_up_and_missing_where_no_theorem_gives_one(
    stated: tuple[Declared, dict[Currency, Fraction | float]],
) -> None:
    mechanism, prices = stated
    for currency in Currency:
        if currency in prices:
            assert 0 <= mechanism.price(currency) - Fraction(prices[currency]) * ONE < 1
        else:
            with pytest.raises(UsageError, match=f"implies no {currency.symbol.partition('^')[0]}"):
                mechanism.price(currency)


def test_a_ledger_row_reads_back_as_it_was(stated: tuple[Declared, dict[Currency, Fraction | float]]) -> None:
    mechanism, prices = stated
    described = json.loads(json.dumps(mechanism.describe()))
    again = from_description(described)
    assert again == mechanism
    assert [again.price(currency) for currency in prices] == [mechanism.price(currency) for currency in prices]
    for key in described:
        with pytest.raises(UsageError):
            from_description(described | {key: "nothing of this kind"})


def test_a_float_counts_as_its_decimal() -> None:
    assert 10 * StatedEpsilon(epsilon=0.1).price(PURE) == ONE
    assert StatedEpsilon(epsilon="1/3").price(PURE) == ONE // 3 + 1


@pytest.mark.parametrize("number", [0, -1, True, float("nan"), float("inf"), "1/0", "x", None, [], 1e-13, 1e13])
def test_what_is_no_positive_number_is_refused(number: Any) -> None:
    for stating in (lambda: StatedEpsilon(epsilon=number), lambda: Laplace(scale=1, sensitivity=number)):
        with pytest.raises(UsageError):
            stating()


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"steps": 1.0}, {"sampling_rate": 1.5}, {"neighbours": "swap"}, {"noise_multiplier": 0}]
)
def test_what_is_no_training_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        DpSgd(**{"neighbours": Neighbours.ADD_REMOVE} | TRAINING | wrong)
    with pytest.raises(UsageError, match="True or False"):
        Gaussian(scale=1, sensitivity=1, continuous=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("currency", [ZCDP, GDP])
@pytest.mark.parametrize(("noise", "rate", "steps"), [(4.0, 0.01, 100), (3.0, 0.5, 3), (20.0, 1.0, 10)])
def test_training_never_costs_less_than_dp_accounting_says(
    currency: Currency, noise: float, rate: float, steps: int
) -> None:
    """At any delta. It costs the same in GDP if every step takes all examples, so a price that is a tenth lower would be seen."""
    training = DpSgd(noise_multiplier=noise, steps=steps, sampling_rate=rate, neighbours=Neighbours.ADD_REMOVE)
    event = SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps)
    theirs = PLDAccountant().compose(event)
    for delta in (1e-4, 1e-9):
        ours = epsilon_of(training.price(currency), currency=currency, delta=delta)
        assert ours >= theirs.get_epsilon(delta) * (1 - 1e-3)
        if rate == 1.0 and currency is GDP:
            assert epsilon_of(training.price(currency) * 9 // 10, currency=currency, delta=delta) < theirs.get_epsilon(
                delta
            ) * (1 - 1e-3)


@pytest.mark.parametrize("currency", [ZCDP, GDP])
def test_laplace_noise_never_costs_less_than_dp_accounting_says(currency: Currency) -> None:
    theirs = PLDAccountant().compose(SelfComposedDpEvent(LaplaceDpEvent(4.0), 10))
    ours = epsilon_of(10 * Laplace(scale=8, sensitivity=2).price(currency), currency=currency, delta=1e-6)
    assert ours >= theirs.get_epsilon(1e-6) * (1 - 1e-3)
