"""Selections by noisy scores: the rate and the sampler that each is drawn with, and prices that cover the exact probabilities."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import special, stats

from dpcore.errors import UsageError
from dpcore.mechanisms import ExponentialMechanism, Flavour, ReportNoisyMax
from dpcore.mechanisms import exponential as module
from dpcore.mechanisms.sampling import selection
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, exponential_gdp, pure_gdp, spend_amount
from dpcore.privacy.accounting.rounding import float_up
from dpcore.privacy.protection import Neighbours, Protection
from tests.campaign import often

GUMBEL, FLIP, LAPLACE = Flavour
EPSILON, SENSITIVITY = 0.7, 3
SCORES = np.array([10, 3, 12, -4, 9], dtype=np.int64)
BEHIND = [2, 9, 0, 16, 3]


def maximum(flavour: Flavour, *, monotone: bool = False, epsilon: float = EPSILON) -> ReportNoisyMax:
    return ReportNoisyMax(epsilon=epsilon, sensitivity=SENSITIVITY, flavour=flavour, monotone=monotone)


def exponential(flavour: Flavour, epsilon: float = EPSILON) -> ExponentialMechanism:
    return ExponentialMechanism(epsilon=epsilon, sensitivity=SENSITIVITY, flavour=flavour)


# How they are drawn


@pytest.mark.parametrize(("flavour", "sampler"), [(GUMBEL, "softmax"), (FLIP, "permute_and_flip")])
def test_a_selection_is_that_of_its_sampler_at_the_rate_that_is_paid_for(
    monkeypatch: pytest.MonkeyPatch, flavour: Flavour, sampler: str
) -> None:
    drawn: list[tuple[list[int], Fraction]] = []
    monkeypatch.setattr(selection, sampler, lambda behind, *, rate: drawn.append((behind.tolist(), rate)) or 4)
    for mechanism, steps in (
        (exponential(flavour), 2),
        (maximum(flavour), 2),
        (maximum(flavour, monotone=True), 1),
    ):
        assert mechanism.draw(SCORES) == 4
        assert drawn.pop() == (BEHIND, Fraction(EPSILON) / (steps * SENSITIVITY))


@pytest.mark.parametrize(("monotone", "steps"), [(True, 1), (False, 2)])
def test_laplace_noise_is_as_wide_as_what_is_paid_for_is_added_and_its_ties_go_to_the_first(
    monkeypatch: pytest.MonkeyPatch, monotone: bool, steps: int
) -> None:
    drawn, noise = [], np.array([-1, 7, -3, 14, -1], dtype=np.int64)

    def spied(count: int, *, shape: Shape, scale: float) -> np.ndarray:
        drawn.append((count, shape, scale))
        return noise.copy()

    monkeypatch.setattr(module, "integer_noise", spied)
    mechanism = maximum(LAPLACE, monotone=monotone)
    assert mechanism.draw(SCORES) == 1  # scores with noise of 9, 10, 9, 10, 8
    assert drawn == [(5, Shape.LAPLACE, float_up(steps * SENSITIVITY / Fraction(EPSILON)))]
    assert Fraction(drawn[0][2]) * Fraction(mechanism.price(Currency.PURE), AMOUNT_OF_ONE) >= steps * SENSITIVITY
    noise[:] = 0
    ends = np.array([-(2**63), 2**63 - 1, 0, 2**63 - 1, 1])
    assert mechanism.draw(ends) == 1  # nothing wraps around, and the first of equals is selected


def test_a_view_that_cannot_be_written_is_drawn_from() -> None:
    scores = np.zeros((1000, 2), dtype=np.int64)
    scores[7, 0] = 10**9
    scores.flags.writeable = False
    for flavour in Flavour:
        assert maximum(flavour).draw(scores[:, 0]) == 7


def test_counts_are_monotone_where_units_are_added_or_removed_and_not_where_they_are_replaced() -> None:
    for neighbours, monotone in ((Neighbours.ADD_REMOVE, True), (Neighbours.REPLACE_ONE, False)):
        protection = Protection(unit="id", rows_per_unit=SENSITIVITY, neighbours=neighbours)
        counted = ReportNoisyMax.of_counts(epsilon=EPSILON, protection=protection, flavour=GUMBEL)
        assert counted == maximum(GUMBEL, monotone=monotone)
        distances = ReportNoisyMax.of_counts(epsilon=EPSILON, protection=protection, flavour=GUMBEL, monotone=False)
        assert not distances.monotone


def test_an_amount_buys_the_flavour_that_suits_its_currency() -> None:
    for currency, flavour in ((Currency.PURE, FLIP), (Currency.ZCDP, GUMBEL), (Currency.GDP, GUMBEL)):
        assert ExponentialMechanism.for_amount(AMOUNT_OF_ONE, currency=currency, sensitivity=1).flavour is flavour


def test_laplace_noise_wider_than_any_that_is_drawn_is_refused_before_a_draw() -> None:
    with pytest.raises(UsageError, match="Gumbel"):
        maximum(LAPLACE, epsilon=1e-12)
    with pytest.raises(UsageError, match="only ReportNoisyMax"):
        exponential(LAPLACE)
    assert maximum(GUMBEL, epsilon=1e-12).draw(SCORES) in range(5)
    assert maximum(LAPLACE, epsilon=1e3).draw(SCORES) == 2


# What they cost


@pytest.mark.parametrize("mechanism", [exponential, maximum, lambda flavour, **e: maximum(flavour, monotone=True, **e)])
def test_each_flavour_has_its_price_in_each_currency(mechanism: Callable[..., ExponentialMechanism]) -> None:
    flavours = Flavour if mechanism is not exponential else (GUMBEL, FLIP)
    for flavour in flavours:
        price = mechanism(flavour, epsilon=0.5).price
        assert price(Currency.PURE) == AMOUNT_OF_ONE // 2
        if flavour is GUMBEL:
            assert price(Currency.ZCDP) == AMOUNT_OF_ONE // 32
            assert price(Currency.GDP) == spend_amount(exponential_gdp(0.5)) == spend_amount(pure_gdp(0.25))
        else:
            assert price(Currency.ZCDP) == pytest.approx(0.5 * math.tanh(0.25) * AMOUNT_OF_ONE, abs=2)
            assert price(Currency.GDP) == spend_amount(pure_gdp(0.5))


def laplace_odds(scores: np.ndarray, rate: float) -> np.ndarray:
    """By the outcome of each candidate's noise: those before it must stay below its noisy score, those after it not exceed it."""
    reach, q = int(45 / rate) + 60, math.exp(-rate)
    noise = np.arange(-reach, reach + 1)

    def at_most(k: np.ndarray) -> np.ndarray:
        below = np.exp(rate * np.minimum(k, 0)) / (1 + q)
        return np.where(k < 0, below, 1 - np.exp(-rate * (np.maximum(k, 0) + 1)) / (1 + q))

    def wins(i: int) -> float:
        others = [at_most(scores[i] + noise - score - (j < i)) for j, score in enumerate(scores) if j != i]
        return float(((1 - q) / (1 + q) * np.exp(-rate * np.abs(noise)) * np.prod(others, axis=0)).sum())

    return np.array([wins(i) for i in range(len(scores))])


def flip_odds(scores: np.ndarray, rate: float) -> np.ndarray:
    """In a random order, the first candidate whose coin says yes is selected."""
    yes = np.exp(rate * (scores - scores.max()))
    odds = np.zeros(len(scores))
    for order in itertools.permutations(range(len(scores))):
        odds[list(order)] += yes[list(order)] * np.cumprod([1.0, *(1 - yes[list(order)])[:-1]])
    return odds / math.factorial(len(scores))


def gumbel_odds(scores: np.ndarray, rate: float) -> np.ndarray:
    weights = np.exp(rate * (scores - scores.max()))
    return weights / weights.sum()


ODDS = {LAPLACE: laplace_odds, FLIP: flip_odds, GUMBEL: gumbel_odds}


def worst(flavour: Flavour, rate: float, steps: tuple[int, ...]) -> tuple[float, float]:
    """The largest privacy loss, and Renyi divergence per order, of selections among scores that may each take any of the steps."""
    losses, divergences = [], []
    for scores in ([0, 0, 0], [0, 1, 2], [2, 0, 1], [5, 0, 0], [1, 1, -1], [0, 4, -4], [0, -1], [0, 1], [0, 3]):
        here = np.log(ODDS[flavour](np.array(scores), rate))
        for step in itertools.product(steps, repeat=len(scores)):
            there = np.log(ODDS[flavour](np.array(scores) + step, rate))
            losses.append(np.abs(here - there).max())
            for order in (1.001, 2.0, 8.0, 64.0):
                moment = float(special.logsumexp(order * here + (1 - order) * there))
                divergences.append(moment / (order - 1) / order)
    return max(losses), max(divergences)


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_no_neighbours_lose_more_than_the_price_unless_scores_called_monotone_are_not(
    flavour: Flavour, epsilon: float
) -> None:
    for monotone, steps in ((False, (-1, 0, 1)), (True, (0, 1)), (True, (-1, 0))):
        mechanism = ReportNoisyMax(epsilon=epsilon, sensitivity=1, flavour=flavour, monotone=monotone)
        loss, divergence = worst(flavour, float(mechanism._rate), steps)
        assert epsilon * 0.45 < loss <= epsilon * (1 + 1e-9)
        rho = mechanism.price(Currency.ZCDP) / AMOUNT_OF_ONE
        assert 0.2 * rho < divergence <= rho * (1 + 1e-9)
        assert flavour is GUMBEL or epsilon < 1 or divergence > epsilon**2 / 8  # what only Gumbel noise costs
    assert worst(flavour, epsilon, (-1, 0, 1))[0] > epsilon * 1.05


@pytest.mark.campaign
@pytest.mark.parametrize("epsilon", [0.05, 6.0])
def test_no_test_of_the_exponential_mechanism_beats_its_mu_and_one_reaches_it(epsilon: float) -> None:
    """Random scores, each moved by at most the sensitivity; the best tests take outcomes in order of likelihood ratio."""
    generator = np.random.default_rng(7)

    def shown(scores: np.ndarray, moved: np.ndarray) -> float:
        here, there = (gumbel_odds(side, epsilon / 2) for side in (scores, moved))
        order = np.argsort(here / there)[::-1]
        power, alarms = (np.cumsum(p[order])[:-1] for p in (here, there))
        misses, rest = (np.cumsum(p[order][::-1])[::-1][1:] for p in (here, there))  # 1 - power, without cancellation
        clear = (alarms > 0) & (misses > 0)
        quantiles = [
            np.where(p < 0.5, stats.norm.ppf(p), stats.norm.isf(q)) for p, q in ((power, misses), (alarms, rest))
        ]
        return float((quantiles[0] - quantiles[1])[clear].max(initial=0.0) ** 2)

    price = exponential_gdp(epsilon)
    for _ in range(often(100, campaign=2000)):
        size = generator.integers(2, 7)
        scores = generator.uniform(0, 6 / epsilon + 2, size)
        step = generator.choice([-1.0, 1.0, generator.uniform(-1, 1)], size)
        assert shown(scores, scores + step) <= price * (1 + 1e-9)
    opposite = np.array([0.5, -0.5])
    assert shown(opposite, -opposite) == pytest.approx(price, rel=1e-9)
    assert shown(2 * opposite, -2 * opposite) > price


@pytest.mark.parametrize("flavour", [GUMBEL, FLIP])
def test_opendp_agrees_that_the_charge_suffices(flavour: Flavour) -> None:
    """Its own price of such noise, at a scale that is larger by what its rounding up may take."""
    dp.enable_features("contrib")
    gumbel = flavour is GUMBEL
    for epsilon, sensitivity in ((1e-9, 7), (1 / 3, 1), (100.0, 2**31 - 1)):
        loss = dp.m.make_noisy_max(
            dp.vector_domain(dp.atom_domain(T="i64")),
            dp.linf_distance(T="i64"),
            dp.zero_concentrated_divergence() if gumbel else dp.max_divergence(),
            scale=2.0 * sensitivity / epsilon * (1 + 1e-15),
        ).map(sensitivity)
        mechanism = ExponentialMechanism(epsilon=epsilon, sensitivity=sensitivity, flavour=flavour)
        assert Fraction(loss) * AMOUNT_OF_ONE <= mechanism.price(Currency.ZCDP if gumbel else Currency.PURE)
        exact = Fraction(epsilon) ** 2 / 8 if gumbel else Fraction(epsilon)
        assert exact * (1 - Fraction(1, 10**14)) <= Fraction(loss) <= exact
