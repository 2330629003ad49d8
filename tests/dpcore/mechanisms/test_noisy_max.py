"""Report noisy max selects with its exact probabilities, and these keep its price: enumerated, not sampled."""

import itertools
import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import special, stats

from dpcore.errors import UsageError
from dpcore.mechanisms import noisy_max
from dpcore.mechanisms.exponential import ExponentialMechanism, Flavour
from dpcore.mechanisms.noisy_max import MaxNoise, ReportNoisyMax
from dpcore.mechanisms.sampling import entropy
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, exponential_gdp, pure_gdp, spend_amount
from dpcore.privacy.accounting.rounding import float_up
from dpcore.privacy.protection import Neighbours, Protection
from tests.contracts.mechanism import MechanismContract, chi_square_p, recorded_words

SCORES = np.array([5, 6, 1, 2, 3], dtype=np.int64)
"""Scores on which the three noises differ well."""
DRAWS = 10_000


class NoisyMaxContract(MechanismContract):
    kind = ReportNoisyMax
    sensitivity = 7
    currencies = (Currency.PURE, Currency.ZCDP, Currency.GDP)
    less_noise = ("epsilon", math.inf)
    noise: MaxNoise

    def bought(self, amount, currency):
        return ReportNoisyMax.for_amount(
            amount, currency=currency, sensitivity=self.sensitivity, noise=self.noise, monotone=True
        )

    def test_more_budget_never_buys_more_noise(self):
        for currency in self.currencies:
            epsilons = [self.bought(amount, currency).epsilon for amount in (10**7, 10**9, 10**11, 10**13, 10**17)]
            assert epsilons == sorted(epsilons)


class TestLaplaceNoise(NoisyMaxContract):
    noise = MaxNoise.LAPLACE


class TestExponentialNoise(NoisyMaxContract):
    noise = MaxNoise.EXPONENTIAL


class TestGumbelNoise(NoisyMaxContract):
    noise = MaxNoise.GUMBEL


def laplace_probabilities(scores: np.ndarray, rate: float, *, first_of_ties: bool = True) -> np.ndarray:
    """By the outcome of each candidate's noise: those before it must stay below its noisy score, those after it not exceed it."""
    reach = int(45 / rate) + 60
    noise = np.arange(-reach, reach + 1)
    q = math.exp(-rate)

    def mass(k: np.ndarray) -> np.ndarray:
        return (1 - q) / (1 + q) * np.exp(-rate * np.abs(k))

    def at_most(k: np.ndarray) -> np.ndarray:
        below = np.exp(rate * np.minimum(k, 0)) / (1 + q)
        return np.where(k < 0, below, 1 - np.exp(-rate * (np.maximum(k, 0) + 1)) / (1 + q))

    def wins(i: int) -> float:
        chance = mass(noise)
        for j, other in enumerate(scores):
            if j != i:
                strictly = (j < i) == first_of_ties
                chance = chance * at_most(scores[i] + noise - other - strictly)
        return float(chance.sum())

    return np.array([wins(i) for i in range(len(scores))])


def exponential_probabilities(scores: np.ndarray, rate: float) -> np.ndarray:
    yes = np.exp(rate * (scores - scores.max()))
    probabilities = np.zeros(len(scores))
    for order in itertools.permutations(range(len(scores))):
        reached = 1.0
        for candidate in order:
            probabilities[candidate] += reached * yes[candidate]
            reached *= 1 - yes[candidate]
    return probabilities / math.factorial(len(scores))


def gumbel_probabilities(scores: np.ndarray, rate: float) -> np.ndarray:
    weights = np.exp(rate * (scores - scores.max()))
    return weights / weights.sum()


PROBABILITIES = {
    MaxNoise.LAPLACE: laplace_probabilities,
    MaxNoise.EXPONENTIAL: exponential_probabilities,
    MaxNoise.GUMBEL: gumbel_probabilities,
}


def mechanism(noise: MaxNoise, *, epsilon: float = 3.0, sensitivity: int = 3, monotone: bool = False) -> ReportNoisyMax:
    return ReportNoisyMax(epsilon=epsilon, sensitivity=sensitivity, noise=noise, monotone=monotone)


@pytest.mark.parametrize("noise", MaxNoise)
@pytest.mark.parametrize("monotone", [False, True])
def test_selections_have_their_exact_probabilities_and_not_those_of_a_wrong_scale_or_noise(noise, monotone):
    drawn = mechanism(noise, monotone=monotone)
    observed = np.bincount([drawn.draw(SCORES) for _ in range(DRAWS)], minlength=len(SCORES))
    rate = 1.0 if monotone else 0.5

    def agreement(probabilities: np.ndarray) -> float:
        assert probabilities.sum() == pytest.approx(1)
        return chi_square_p(observed, probabilities * DRAWS)

    assert agreement(PROBABILITIES[noise](SCORES, rate)) > 1e-9
    assert agreement(PROBABILITIES[noise](SCORES, rate * 1.3)) < 1e-9
    assert agreement(PROBABILITIES[noise](SCORES, 1.5 - rate)) < 1e-9  # the other of monotone and not
    for other in set(MaxNoise) - {noise}:
        assert agreement(PROBABILITIES[other](SCORES, rate)) < 1e-9


def test_ties_of_laplace_noise_go_to_the_lowest_place_and_not_to_the_highest():
    scores = np.array([0, 0, 0], dtype=np.int64)
    drawn = mechanism(MaxNoise.LAPLACE, epsilon=2.0, sensitivity=1)
    observed = np.bincount([drawn.draw(scores) for _ in range(DRAWS)], minlength=3)
    assert chi_square_p(observed, laplace_probabilities(scores, 1.0) * DRAWS) > 1e-9
    assert chi_square_p(observed, laplace_probabilities(scores, 1.0, first_of_ties=False) * DRAWS) < 1e-9


def worst_loss(noise: MaxNoise, rate: float, steps: tuple[int, ...]) -> float:
    """The largest privacy loss of any selection among three scores, each of which may take any of the steps."""
    worst = 0.0
    for scores in ([0, 0, 0], [0, 1, 2], [2, 0, 1], [5, 0, 0], [1, 1, -1], [0, 4, -4]):
        here = PROBABILITIES[noise](np.array(scores), rate)
        for step in itertools.product(steps, repeat=3):
            there = PROBABILITIES[noise](np.array(scores) + step, rate)
            worst = max(worst, float(np.abs(np.log(here / there)).max()))
    return worst


@pytest.mark.parametrize("noise", MaxNoise)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_no_neighbours_lose_more_than_epsilon_unless_scores_called_monotone_are_not(noise, epsilon):
    assert epsilon * 0.45 < worst_loss(noise, epsilon / 2, (-1, 0, 1)) <= epsilon * (1 + 1e-9)
    assert epsilon * 0.45 < worst_loss(noise, epsilon, (0, 1)) <= epsilon * (1 + 1e-9)
    assert epsilon * 0.45 < worst_loss(noise, epsilon, (-1, 0)) <= epsilon * (1 + 1e-9)
    assert worst_loss(noise, epsilon, (-1, 0, 1)) > epsilon * 1.05


def worst_rho(noise: MaxNoise, rate: float, steps: tuple[int, ...]) -> float:
    """The largest Renyi divergence per order, over scores that are far apart enough to be telling."""
    worst = 0.0
    for gap in range(-5, 6):
        for scores in ([0, gap], [0, gap, gap], [0, 0, gap]):
            here = np.log(PROBABILITIES[noise](np.array(scores), rate))
            for step in itertools.product(steps, repeat=len(scores)):
                there = np.log(PROBABILITIES[noise](np.array(scores) + step, rate))
                for order in (1.001, 2.0, 8.0, 64.0):
                    moment = float(special.logsumexp(order * here + (1 - order) * there))
                    worst = max(worst, moment / (order - 1) / order)
    return worst


def test_an_eighth_of_epsilon_squared_covers_gumbel_noise_monotone_or_not_and_no_other_noise():
    epsilon = 2.0
    for rate, steps in ((epsilon / 2, (-1, 1)), (epsilon, (0, 1))):
        assert worst_rho(MaxNoise.GUMBEL, rate, steps) <= epsilon**2 / 8 * (1 + 1e-9)
        for noise in (MaxNoise.EXPONENTIAL, MaxNoise.LAPLACE):
            assert epsilon**2 / 8 < worst_rho(noise, rate, steps) <= epsilon * math.tanh(epsilon / 2) * (1 + 1e-9)


@pytest.mark.parametrize("monotone", [False, True])
def test_each_noise_has_its_price_in_each_currency(monotone):
    def price(noise: MaxNoise, currency: Currency) -> int:
        return mechanism(noise, epsilon=0.5, monotone=monotone).price(currency)

    assert {price(noise, Currency.PURE) for noise in MaxNoise} == {AMOUNT_OF_ONE // 2}
    assert price(MaxNoise.GUMBEL, Currency.ZCDP) == AMOUNT_OF_ONE // 32
    assert price(MaxNoise.GUMBEL, Currency.GDP) == spend_amount(exponential_gdp(0.5))
    for noise in (MaxNoise.LAPLACE, MaxNoise.EXPONENTIAL):
        assert price(noise, Currency.ZCDP) == pytest.approx(0.5 * math.tanh(0.25) * AMOUNT_OF_ONE, abs=2)
        assert price(noise, Currency.GDP) == spend_amount(pure_gdp(0.5))


@pytest.mark.parametrize(
    ("noise", "flavour"),
    [(MaxNoise.GUMBEL, Flavour.GUMBEL), (MaxNoise.EXPONENTIAL, Flavour.PERMUTE_AND_FLIP)],
)
def test_two_noises_are_the_exponential_mechanism_by_another_name(noise, flavour, monkeypatch):
    other = ExponentialMechanism(epsilon=3.0, sensitivity=3, flavour=flavour)
    for currency in Currency:
        assert mechanism(noise).price(currency) == other.price(currency)
    for seed in range(50):
        monkeypatch.setattr(entropy, "random_words", recorded_words(seed))
        place = mechanism(noise).draw(SCORES)
        monkeypatch.setattr(entropy, "random_words", recorded_words(seed))
        assert other.draw(SCORES) == place


@pytest.mark.parametrize("noise", [MaxNoise.GUMBEL, MaxNoise.EXPONENTIAL])
def test_opendp_selects_with_the_same_probabilities_and_at_another_scale_does_not(noise):
    dp.enable_features("contrib")
    measure = dp.zero_concentrated_divergence() if noise is MaxNoise.GUMBEL else dp.max_divergence()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    ours = np.bincount([mechanism(noise).draw(SCORES) for _ in range(DRAWS)], minlength=len(SCORES))

    def agreement(scale: float) -> float:
        select = dp.m.make_noisy_max(*space, measure, scale=scale)
        theirs = np.bincount([select(SCORES) for _ in range(2000)], minlength=len(SCORES))
        return float(stats.chi2_contingency(np.array([ours, theirs])[:, ours + theirs > 20]).pvalue)

    assert agreement(2.0) > 1e-9
    assert agreement(4.0) < 1e-9


@pytest.mark.parametrize("noise", MaxNoise)
def test_every_bit_of_a_selection_comes_from_the_entropy_stream(noise, monkeypatch):
    monkeypatch.setattr("os.urandom", None)
    scores = np.arange(200, dtype=np.int64)
    drawn = mechanism(noise, epsilon=0.05, sensitivity=1)

    def places(seed: int) -> list[int]:
        monkeypatch.setattr(entropy, "random_words", recorded_words(seed))
        return [drawn.draw(scores) for _ in range(20)]

    assert places(1) == places(1)
    assert places(1) != places(2)


@pytest.mark.parametrize("noise", MaxNoise)
def test_the_extremes_of_64_bits_are_scores_like_any_other(noise):
    drawn = mechanism(noise, epsilon=1.0, sensitivity=1)
    assert drawn.draw(np.array([-(2**63), 2**63 - 1, 0], dtype=np.int64)) == 1
    assert drawn.draw(np.array([-(2**63), -(2**63) + 500], dtype=np.int64)) == 1
    assert drawn.draw(np.array([5], dtype=np.int64)) == 0


def test_counts_are_monotone_where_units_are_added_or_removed_and_not_where_they_are_replaced():
    def of(neighbours: Neighbours) -> ReportNoisyMax:
        protection = Protection(unit="id", rows_per_unit=4, neighbours=neighbours)
        return ReportNoisyMax.of_counts(epsilon=1.0, protection=protection, noise=MaxNoise.GUMBEL)

    assert of(Neighbours.ADD_REMOVE) == mechanism(MaxNoise.GUMBEL, epsilon=1.0, sensitivity=4, monotone=True)
    assert of(Neighbours.REPLACE_ONE) == mechanism(MaxNoise.GUMBEL, epsilon=1.0, sensitivity=4, monotone=False)


@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 0.7, math.pi, 1e-5])
def test_no_less_laplace_noise_is_drawn_than_was_paid_for(epsilon):
    exact = Fraction(14) / Fraction(epsilon)
    assert exact <= float_up(exact) <= float(exact) * (1 + 2**-52)


def refused(**changes: object) -> None:
    parameters = {"epsilon": 1.0, "sensitivity": 1, "noise": MaxNoise.GUMBEL, "monotone": False}
    ReportNoisyMax(**parameters | changes)


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, 1e-13, 1e9, 10**400, math.nan, math.inf, True, "1", None])
def test_an_epsilon_that_means_nothing_is_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        refused(epsilon=epsilon)


@pytest.mark.parametrize("sensitivity", [0, -1, 1.0, True, 2**31, None])
def test_a_sensitivity_that_is_no_positive_whole_number_is_refused(sensitivity):
    with pytest.raises(UsageError, match="sensitivity"):
        refused(sensitivity=sensitivity)


@pytest.mark.parametrize("changes", [{"noise": "normal"}, {"noise": None}, {"monotone": 1}, {"monotone": None}])
def test_neither_noise_nor_direction_is_guessed(changes):
    with pytest.raises(UsageError, match=r"must be one of|pass monotone"):
        refused(**changes)


def test_laplace_noise_wider_than_any_that_is_drawn_is_refused_before_a_draw():
    with pytest.raises(UsageError, match="Gumbel"):
        refused(epsilon=1e-12, sensitivity=1, noise=MaxNoise.LAPLACE)
    refused(epsilon=1e-12, sensitivity=1)
    assert mechanism(MaxNoise.LAPLACE, epsilon=1e3, sensitivity=1).draw(SCORES) == 1
    assert 0 <= mechanism(MaxNoise.LAPLACE, epsilon=2e-12, sensitivity=1, monotone=True).draw(SCORES) < len(SCORES)


@pytest.mark.parametrize(
    "scores", [np.zeros(0, np.int64), np.zeros(3), np.zeros(3, np.int32), np.zeros((2, 2), int), [1]]
)
@pytest.mark.parametrize("noise", MaxNoise)
def test_scores_that_cannot_be_selected_from_are_refused_before_any_draw(noise, scores, monkeypatch):
    monkeypatch.setattr(entropy, "random_words", None)
    with pytest.raises(UsageError, match=r"scores must be|nothing to select"):
        mechanism(noise).draw(scores)


@pytest.mark.parametrize(("sensitivity", "monotone"), [(1, True), (1, False), (3, True), (3, False)])
def test_the_laplace_noise_that_is_drawn_is_as_wide_as_what_is_paid_for(sensitivity, monotone, monkeypatch):
    drawn = []

    def spied(count, *, shape, scale):
        drawn.append((shape, scale))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(noisy_max, "integer_noise", spied)
    mechanism = ReportNoisyMax(epsilon=0.7, sensitivity=sensitivity, noise=MaxNoise.LAPLACE, monotone=monotone)
    mechanism.draw(np.arange(5))
    steps = sensitivity if monotone else 2 * sensitivity
    assert drawn == [(Shape.LAPLACE, float_up(steps / Fraction(0.7)))]
    assert Fraction(drawn[0][1]) >= steps / Fraction(mechanism.price(Currency.PURE), AMOUNT_OF_ONE)
