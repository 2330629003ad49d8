"""Bounds of an event's probability are exact, and what they show is never more than is true, in each currency."""

import math

import numpy as np
import pytest
from scipy import stats

from dpcore.audit import Tally, at_least, most_telling, probability_bounds
from dpcore.audit.bounds import loss
from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency

TALLIES = [(0, 10), (10, 10), (3, 10), (1, 5), (50, 1000), (7, 20_000), (19_993, 20_000), (250_000, 500_000)]


@pytest.mark.parametrize("miss", [0.05, 1e-4, 1e-9])
@pytest.mark.parametrize(("hits", "trials"), TALLIES)
def test_the_bounds_are_those_of_clopper_and_pearson(hits, trials, miss):
    low, high = probability_bounds(Tally(hits, trials), miss=miss)
    assert low == pytest.approx(stats.beta.ppf(miss, hits, trials - hits + 1) if hits else 0.0, rel=1e-9, abs=1e-300)
    assert 1 - high == pytest.approx(stats.beta.ppf(miss, trials - hits, hits + 1) if hits < trials else 0.0, rel=1e-9)


@pytest.mark.parametrize("probability", [0.001, 0.3, 0.77])
def test_a_bound_misses_no_more_often_than_it_says(probability):
    trials, miss = 200, 0.02
    bounds = [probability_bounds(Tally(hits, trials), miss=miss) for hits in range(trials + 1)]
    chances = stats.binom.pmf(np.arange(trials + 1), trials, probability)
    assert sum(chance for chance, (low, _) in zip(chances, bounds, strict=True) if low > probability) <= miss
    assert sum(chance for chance, (_, high) in zip(chances, bounds, strict=True) if high < probability) <= miss


def test_what_two_probabilities_show_is_what_the_definitions_say():
    p, q = 0.6, 0.2
    assert loss(p, q, currency=Currency.PURE) == pytest.approx(math.log(3))
    assert loss(p, q, currency=Currency.PURE, delta=0.2) == pytest.approx(math.log(2))
    assert loss(p, q, currency=Currency.ZCDP) == pytest.approx(stats.entropy([p, 1 - p], [q, 1 - q]))
    assert loss(p, q, currency=Currency.GDP) == pytest.approx((stats.norm.ppf(p) - stats.norm.ppf(q)) ** 2)
    assert [loss(q, p, currency=currency) for currency in Currency] == [0.0, 0.0, 0.0]
    assert loss(1.0, 0.5, currency=Currency.ZCDP) == pytest.approx(math.log(2))
    assert [loss(0.5, 0.0, currency=currency) for currency in Currency] == [math.inf] * 3
    assert loss(1.0, 0.5, currency=Currency.GDP) == math.inf


@pytest.mark.parametrize("currency", list(Currency))
def test_what_is_shown_rises_with_one_count_and_falls_with_the_other(currency):
    def shown(here, there):
        return at_least(Tally(here, 1000), Tally(there, 1000), currency=currency, miss=1e-6)

    assert shown(700, 200) > shown(600, 200) > shown(600, 250) > 0
    assert shown(200, 700) == 0
    assert shown(700, 200) < loss(0.7, 0.2, currency=currency)


def test_the_event_is_chosen_without_looking_at_what_bounds_it():
    """Outputs that say nothing, and a first half that happens to lie: what is shown comes from the second half only."""
    rng = np.random.default_rng(4)
    here, there = rng.integers(0, 500, (2, 4000))
    assert most_telling(here, there, currency=Currency.PURE, miss=0.01).amount == 0
    lying = here.copy()
    lying[:2000] = 1000
    shown = most_telling(lying, there, currency=Currency.PURE, miss=0.01)
    assert (shown.amount, shown.here.hits) == (0.0, 0)


def test_randomised_response_is_found_out_up_to_a_little_in_either_direction():
    rng = np.random.default_rng(5)
    here, there = (rng.random(200_000) < p for p in (0.25, 0.75))
    for one, other in ((here, there), (there, here)):
        shown = most_telling(one.astype(np.int64), other.astype(np.int64), currency=Currency.PURE, miss=1e-8)
        assert 0.95 * math.log(3) < shown.amount <= math.log(3)


def test_a_claim_with_a_delta_is_held_against_less():
    here, there = Tally(600, 1000), Tally(0, 1000)
    amounts = [at_least(here, there, currency=Currency.PURE, miss=1e-6, delta=delta) for delta in (0.0, 0.2, 0.7)]
    assert amounts == sorted(amounts, reverse=True)
    assert amounts[-1] == 0
    with pytest.raises(UsageError, match="delta"):
        at_least(here, there, currency=Currency.ZCDP, miss=1e-6, delta=0.1)


def test_figures_that_no_count_has_are_refused():
    for hits, trials in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(UsageError, match="count again"):
            Tally(hits, trials)
    with pytest.raises(UsageError, match="above 0 and below"):
        probability_bounds(Tally(1, 2), miss=0.0)
    with pytest.raises(UsageError, match="draw again"):
        most_telling(np.zeros(3, dtype=np.int64), np.zeros(2, dtype=np.int64), currency=Currency.PURE, miss=0.1)
