"""The exponential mechanism selects with its exact probabilities, in both flavours, and keeps the contract."""

import itertools
import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from dpcore.errors import UsageError
from dpcore.mechanisms import ExponentialMechanism, Flavour
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, exponential_gdp, pure_gdp, spend_amount
from tests.contracts.mechanism import AT_LEAST, MechanismContract, chi_square_p, recorded_words

SCORES = np.array([10, 3, 12, -4, 9], dtype=np.int64)
EPSILON, SENSITIVITY = 1.5, 3


class TestExponentialMechanism(MechanismContract):
    kind = ExponentialMechanism
    sensitivity = 7
    currencies = (Currency.PURE, Currency.ZCDP, Currency.GDP)
    less_noise = ("epsilon", math.inf)

    def test_more_budget_never_buys_more_noise(self):
        for currency in self.currencies:
            epsilons = [self.bought(amount, currency).epsilon for amount in (10**7, 10**9, 10**11, 10**13, 10**17)]
            assert epsilons == sorted(epsilons)


def selections(flavour: Flavour, scores: np.ndarray, *, epsilon: float, count: int) -> np.ndarray:
    mechanism = ExponentialMechanism(epsilon=epsilon, sensitivity=SENSITIVITY, flavour=flavour)
    return np.array([mechanism.draw(scores) for _ in range(count)])


def gumbel_probabilities(epsilon: float) -> np.ndarray:
    weights = np.exp(epsilon * SCORES / (2 * SENSITIVITY))
    return weights / weights.sum()


def permute_and_flip_probabilities(epsilon: float) -> np.ndarray:
    """In a random order, take the first candidate whose coin, of probability e^(epsilon (score - best) / 2), says yes."""
    yes = np.exp(epsilon * (SCORES - SCORES.max()) / (2 * SENSITIVITY))
    probabilities = np.zeros(len(SCORES))
    for order in itertools.permutations(range(len(SCORES))):
        reached = 1.0
        for candidate in order:
            probabilities[candidate] += reached * yes[candidate]
            reached *= 1 - yes[candidate]
    return probabilities / math.factorial(len(SCORES))


@pytest.mark.parametrize(
    ("flavour", "draws", "probabilities", "other"),
    [
        (Flavour.GUMBEL, 20_000, gumbel_probabilities, permute_and_flip_probabilities),
        (Flavour.PERMUTE_AND_FLIP, 10_000, permute_and_flip_probabilities, gumbel_probabilities),
    ],
)
def test_selections_have_their_exact_probabilities_and_not_those_of_another_epsilon_or_flavour(
    flavour, draws, probabilities, other
):
    observed = np.bincount(selections(flavour, SCORES, epsilon=EPSILON, count=draws), minlength=len(SCORES))
    assert chi_square_p(observed, probabilities(EPSILON) * draws) > 1e-9
    assert chi_square_p(observed, probabilities(EPSILON * 1.3) * draws) < 1e-9
    assert chi_square_p(observed, other(EPSILON) * draws) < 1e-9


@pytest.mark.parametrize(
    ("flavour", "currency", "start"),
    [
        (Flavour.PERMUTE_AND_FLIP, Currency.PURE, 0),
        (Flavour.GUMBEL, Currency.ZCDP, -SENSITIVITY),
        (Flavour.PERMUTE_AND_FLIP, Currency.GDP, -SENSITIVITY),
        (Flavour.GUMBEL, Currency.GDP, -SENSITIVITY),
    ],
)
@pytest.mark.parametrize("factor", [1, 2])
def test_no_selection_shows_more_than_was_charged_unless_the_sensitivity_is_half_of_the_truth(
    flavour, currency, start, factor
):
    """The first of two scores starts even or ahead; a step moves both as far as they may, in opposite directions."""
    charged = (
        ExponentialMechanism(epsilon=1.0, sensitivity=SENSITIVITY, flavour=flavour).price(currency) / AMOUNT_OF_ONE
    )
    behind = [factor * start, factor * (start + 2 * SENSITIVITY)]
    here, there = (
        selections(flavour, np.array([0, gap], dtype=np.int64), epsilon=1.0, count=3000) == 0 for gap in behind
    )
    shown = AT_LEAST[currency](here, there)
    if factor == 1:
        assert 0.1 * charged < shown <= charged
    else:
        assert shown > charged


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1 / 3, 0.7, 1.0, math.pi, 100.0])
@pytest.mark.parametrize("sensitivity", [1, 7, 2**31 - 1])
def test_opendp_agrees_that_the_charge_suffices(flavour, epsilon, sensitivity):
    """Its own price of such noise, at a scale that is larger by what its rounding up may take."""
    dp.enable_features("contrib")
    gumbel = flavour is Flavour.GUMBEL
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


@pytest.mark.parametrize("flavour", Flavour)
def test_every_bit_of_a_selection_comes_from_the_entropy_stream(flavour, monkeypatch):
    monkeypatch.setattr("os.urandom", None)

    def drawn(seed: int) -> list[int]:
        monkeypatch.setattr(entropy, "random_words", recorded_words(seed))
        return selections(flavour, np.arange(100), epsilon=0.1, count=20).tolist()

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_each_flavour_has_its_price_in_each_currency():
    def price(flavour: Flavour, currency: Currency) -> float:
        return ExponentialMechanism(epsilon=0.5, sensitivity=1, flavour=flavour).price(currency) / AMOUNT_OF_ONE

    assert price(Flavour.GUMBEL, Currency.ZCDP) == 0.03125
    assert price(Flavour.GUMBEL, Currency.PURE) == 0.5
    assert price(Flavour.PERMUTE_AND_FLIP, Currency.PURE) == 0.5
    assert price(Flavour.PERMUTE_AND_FLIP, Currency.ZCDP) == pytest.approx(0.5 * math.tanh(0.25), abs=2e-12)
    assert price(Flavour.GUMBEL, Currency.GDP) == spend_amount(pure_gdp(0.25)) / AMOUNT_OF_ONE
    assert price(Flavour.PERMUTE_AND_FLIP, Currency.GDP) == spend_amount(pure_gdp(0.5)) / AMOUNT_OF_ONE


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0, 30.0])
def test_no_test_of_the_mechanism_beats_its_mu_and_one_reaches_it(epsilon):
    """Random scores, each moved by at most the sensitivity; the best tests take outcomes in order of likelihood ratio."""
    generator = np.random.default_rng(7)

    def shown(scores: np.ndarray, moved: np.ndarray) -> float:
        here, there = (np.exp(epsilon / 2 * (s - s.max())) for s in (scores, moved))
        here, there = here / here.sum(), there / there.sum()
        order = np.argsort(here / there)[::-1]
        power, alarms = (np.cumsum(p[order])[:-1] for p in (here, there))
        misses, rest = (np.cumsum(p[order][::-1])[::-1][1:] for p in (here, there))  # 1 - power, without cancellation
        clear = (alarms > 0) & (misses > 0)
        quantiles = [
            np.where(p < 0.5, stats.norm.ppf(p), stats.norm.isf(q)) for p, q in ((power, misses), (alarms, rest))
        ]
        return float((quantiles[0] - quantiles[1])[clear].max(initial=0.0) ** 2)

    price = exponential_gdp(epsilon)
    for _ in range(2000):
        size = generator.integers(2, 7)
        scores = generator.uniform(0, 6 / epsilon + 2, size)
        step = generator.choice([-1.0, 1.0, generator.uniform(-1, 1)], size)
        assert shown(scores, scores + step) <= price * (1 + 1e-9)
    opposite = np.array([0.5, -0.5])
    assert shown(opposite, -opposite) == pytest.approx(price, rel=1e-9)
    assert shown(2 * opposite, -2 * opposite) > price


def test_an_amount_buys_the_flavour_that_suits_its_currency():
    flavours = {
        Currency.PURE: Flavour.PERMUTE_AND_FLIP,
        Currency.ZCDP: Flavour.GUMBEL,
        Currency.GDP: Flavour.GUMBEL,
    }
    for currency, flavour in flavours.items():
        assert ExponentialMechanism.for_amount(AMOUNT_OF_ONE, currency=currency, sensitivity=1).flavour is flavour


@pytest.mark.parametrize("flavour", Flavour)
def test_the_extremes_of_64_bits_are_scores_like_any_other(flavour):
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=1, flavour=flavour)
    assert mechanism.draw(np.array([-(2**63), 2**63 - 1, 0], dtype=np.int64)) == 1
    assert mechanism.draw(np.array([5], dtype=np.int64)) == 0


def test_a_view_that_cannot_be_written_is_drawn_from():
    scores = np.zeros((1000, 2), dtype=np.int64)
    scores[:, 1] = 10**9
    scores[7, 0] = 10**9
    scores.flags.writeable = False
    assert ExponentialMechanism(epsilon=1.0, sensitivity=1, flavour=Flavour.GUMBEL).draw(scores[:, 0]) == 7


@pytest.mark.parametrize(
    "scores",
    [
        np.array([], dtype=np.int64),
        np.array([1.5, 2.0]),
        np.array([2**63], dtype=np.uint64),
        np.array([2**70], dtype=object),
        np.array([1, 2], dtype=np.int32),
        np.zeros((2, 2), dtype=np.int64),
        np.int64(3),
        [1, 2],
        None,
    ],
)
def test_scores_that_cannot_be_selected_from_are_refused_before_any_draw(scores, monkeypatch):
    monkeypatch.setattr(entropy, "random_words", None)
    with pytest.raises(UsageError, match=r"scores must be|nothing to select"):
        ExponentialMechanism(epsilon=1.0, sensitivity=1, flavour=Flavour.GUMBEL).draw(scores)


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, 1e-13, 1e9, 10**400, math.nan, math.inf, True, "1", None])
def test_an_epsilon_that_means_nothing_is_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        ExponentialMechanism(epsilon=epsilon, sensitivity=1, flavour=Flavour.GUMBEL)


@pytest.mark.parametrize("sensitivity", [0, -1, 1.0, True, 2**31, None])
def test_a_sensitivity_that_is_no_positive_whole_number_is_refused(sensitivity):
    with pytest.raises(UsageError, match="sensitivity"):
        ExponentialMechanism(epsilon=1.0, sensitivity=sensitivity, flavour=Flavour.GUMBEL)
    with pytest.raises(UsageError, match="sensitivity"):
        ExponentialMechanism.for_amount(AMOUNT_OF_ONE, currency=Currency.ZCDP, sensitivity=sensitivity)


@pytest.mark.parametrize("flavour", ["laplace", "", None])
def test_a_flavour_is_never_guessed(flavour):
    with pytest.raises(UsageError, match="must be one of: gumbel, permute-and-flip"):
        ExponentialMechanism(epsilon=1.0, sensitivity=1, flavour=flavour)
