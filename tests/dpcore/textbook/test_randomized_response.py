"""Randomized response has the odds it states, exactly; its prices cover them, and its estimates are right on average."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import coins, entropy
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, pure_gdp, pure_zcdp
from dpcore.privacy.accounting.rounding import as_real, real
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.textbook.randomized_response import RandomizedResponse
from tests.contracts.mechanism import recorded_words

CURRENCIES = (Currency.PURE, Currency.ZCDP, Currency.GDP)
ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.REPLACE_ONE)
PERSON = Protection(unit="person", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE)
CASES = list(itertools.product([1e-9, 1.0, 12.0], [2, 10, 1000]))


def response(epsilon: float = 1.0, answers: int = 2, protection: Protection = ROW) -> RandomizedResponse:
    return RandomizedResponse(epsilon=epsilon, answers=answers, protection=protection)


def price(mechanism: RandomizedResponse, currency: Currency) -> float:
    return mechanism.price(currency) / AMOUNT_OF_ONE


def odds(mechanism: RandomizedResponse) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of each answer if 0 is true and if 1 is, the likeliest there first."""
    true, other = map(float, mechanism.probabilities)
    here = np.full(mechanism.answers, other)
    there = here.copy()
    here[0] = there[1] = true
    return here, there


@pytest.mark.parametrize(("epsilon", "answers"), CASES)
def test_the_odds_are_at_most_e_to_the_epsilon_exactly_and_hardly_less(epsilon, answers):
    mechanism = response(epsilon, answers)
    true, other = mechanism.probabilities
    assert true + (answers - 1) * other == 1
    assert Fraction(coins.threshold(Fraction(mechanism.truth)), 2**128) == mechanism.truth
    promised = real.exp(as_real(epsilon))
    assert promised - 1 >= as_real(true / other) - 1 >= (promised - 1) * (1 - real.mpf(2) ** -30)
    better = Fraction(math.nextafter(mechanism.truth, 1.0))
    assert as_real(1 + better * answers / (1 - better)) > promised


def test_two_coins_tell_the_truth_three_times_in_four_exactly_for_ln_3():
    mechanism = RandomizedResponse.coins(protection=ROW)
    assert mechanism.truth == 0.5
    assert mechanism.probabilities == (Fraction(3, 4), Fraction(1, 4))
    assert real.ln(3) * AMOUNT_OF_ONE <= mechanism.price(Currency.PURE) < real.ln(3) * AMOUNT_OF_ONE + 1
    assert RandomizedResponse.coins(protection=PERSON).price(Currency.PURE) <= 3 * mechanism.price(Currency.PURE)


def test_two_recorded_coins_decide_as_in_the_survey(monkeypatch):
    """A first word below one half tells the truth; the second says what is answered otherwise."""
    tails, heads = 0, (1 << 63) + 1
    words = iter([np.array([tails, tails, heads, heads], dtype=np.uint64), np.array([0, 1, 0, 1], dtype=np.uint64)])
    monkeypatch.setattr(entropy, "random_words", lambda count: next(words))
    assert RandomizedResponse.coins(protection=ROW).draw(np.array([1, 0, 1, 0])).tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("answers", [2, 3, 1000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0])
def test_no_test_of_an_answer_beats_its_mu_and_one_reaches_it(epsilon, answers):
    here, there = odds(response(epsilon, answers))
    order = np.argsort(there / here)
    power, alarms = (np.cumsum(p[order])[:-1] for p in (here, there))
    mu_squared = ((stats.norm.ppf(power) - stats.norm.ppf(alarms)) ** 2).max()
    assert price(response(epsilon, answers), Currency.GDP) == pytest.approx(mu_squared, rel=1e-6, abs=1e-11)
    assert price(response(epsilon, answers), Currency.GDP) <= pure_gdp(epsilon) + 1e-12


@pytest.mark.parametrize("answers", [2, 10, 1000])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_its_rho_covers_the_renyi_divergence_of_every_order_which_that_of_order_one_does_not(epsilon, answers):
    here, there = odds(response(epsilon, answers))
    divergence = float((here * np.log(here / there)).sum())
    orders = 1 + np.logspace(-6, 2, 400)
    renyi = [np.log((there * (here / there) ** order).sum()) / (order - 1) / order for order in orders]
    rho = price(response(epsilon, answers), Currency.ZCDP)
    assert max(renyi) <= rho * (1 + 1e-9) <= pure_zcdp(epsilon) * (1 + 2e-9)
    if answers == 2:
        assert rho == pytest.approx(divergence, rel=1e-9)
    if answers == 1000:
        assert max(renyi) > 1.5 * divergence


def test_a_person_with_three_answers_pays_three_times():
    for currency, answers in itertools.product(CURRENCIES, [2, 5]):
        alone, thrice = (response(0.7, answers, protection).price(currency) for protection in (ROW, PERSON))
        assert 3 * alone - 3 <= thrice <= 3 * alone


def test_estimates_are_right_on_average_exactly():
    """Estimates are linear, so those of the expected counts are the expected estimates."""
    mechanism = RandomizedResponse.coins(protection=ROW)
    true = np.array([800, 4000])
    expected = (true * 3 + true[::-1]) // 4
    assert mechanism.estimate(expected).tolist() == true.tolist()
    assert np.abs(expected - true).max() == 800
    several = response(2.0, 4)
    odds_of_truth, other = several.probabilities
    rows = [500, 300, 150, 50]
    expected = [(odds_of_truth - other) * count + other * sum(rows) for count in rows]
    assert several.estimate(np.rint(10**9 * np.array(expected, dtype=float)).astype(np.int64)) == pytest.approx(
        10**9 * np.array(rows), rel=1e-8
    )


def test_the_randomness_comes_from_the_entropy_stream_and_never_depends_on_the_answers(monkeypatch):
    mechanism = response(1.0, 5)

    def draw(seed: int, code: int) -> tuple[np.ndarray, list[int]]:
        words, counts = recorded_words(seed), []
        monkeypatch.setattr(entropy, "random_words", lambda count: (counts.append(count), words(count))[1])
        return mechanism.draw(np.full((20, 30), code)), counts

    first, words = draw(1, 2)
    other, as_many = draw(1, 4)
    assert words == as_many
    assert np.array_equal(first, draw(1, 2)[0])
    assert not np.array_equal(first, draw(2, 2)[0])
    assert set(np.unique(other[first != other])) == {4}


def test_answers_keep_their_shape_and_the_true_ones_are_left_as_they_were():
    codes = np.zeros((3, 0, 2), dtype=np.int64)
    assert response().draw(codes).shape == codes.shape
    codes = np.zeros(100, dtype=np.int64)
    codes.flags.writeable = False
    drawn = response().draw(codes)
    assert drawn.dtype == np.int64
    assert drawn.any()


@pytest.mark.parametrize(
    "codes",
    [np.array([0, 5]), np.array([-1]), np.array([2**63 - 1, 0]), np.zeros(3), [0], np.zeros(2, dtype=bool), None],
)
def test_answers_that_are_not_coded_are_refused_by_a_constant_sentence_before_any_draw(codes, monkeypatch):
    monkeypatch.setattr(entropy, "random_words", lambda count: pytest.fail("drew"))
    with pytest.raises(UsageError, match="by the declared universe") as refusal:
        response(1.0, 5).draw(codes)
    assert not any(digits in str(refusal.value) for digits in ("5", "-1", "9223"))


@pytest.mark.parametrize("counts", [np.array([1, 2, 3]), np.array([1.0, 2.0]), np.array([1, -1]), [1, 2], None])
def test_counts_that_no_survey_has_are_refused(counts):
    with pytest.raises(UsageError, match="counts must be 2 whole numbers"):
        response().estimate(counts)


def test_add_remove_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match="declare neighbours: replace-one if the number of answers is public"):
        response(protection=Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE))
    weighted = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.REPLACE_ONE, weight="w", row_weight=5)
    for make in (lambda: response(protection=weighted), lambda: RandomizedResponse.coins(protection=weighted)):
        with pytest.raises(UsageError, match="declare no weight"):
            make()
    with pytest.raises(UsageError, match="must be a Protection"):
        response(protection=None)


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, 1e-13, 31.0, math.nan, math.inf, True, "1", None])
def test_an_epsilon_that_means_nothing_is_refused(epsilon):
    with pytest.raises(UsageError, match="needs an epsilon from"):
        response(epsilon)


@pytest.mark.parametrize("answers", [1, 0, -2, 2.0, True, 2**31, None])
def test_a_number_of_answers_that_leaves_no_choice_is_refused(answers):
    with pytest.raises(UsageError, match="a whole number from 2"):
        response(1.0, answers)
    with pytest.raises(UsageError, match="a whole number from 2"):
        RandomizedResponse.for_amount(AMOUNT_OF_ONE, currency=Currency.PURE, answers=answers, protection=ROW)
