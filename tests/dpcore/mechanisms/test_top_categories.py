"""Top categories: the right order with much budget, the right probabilities with little, one price for all."""

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import TopCategories, from_description
from dpcore.mechanisms.noisy_max import MaxNoise
from dpcore.mechanisms.query import Exact
from dpcore.privacy.accounting import Currency
from dpcore.universe import Categorical, Integer
from tests.contracts.choosing import ChoosingContract
from tests.contracts.mechanism import chi_square_p
from tests.contracts.query import PERSON, ROW, SWAPPED_ROW

CITY = Categorical(("north", "south", "west", "east"), missing=True)


class TestTopCategories(ChoosingContract):
    kind = TopCategories
    asked: ClassVar[dict[str, Any]] = {"attribute": CITY, "k": 3}


def made(k, protection=ROW, *, epsilon=20.0, delta=0.0, attribute=CITY):
    return TopCategories.for_epsilon(epsilon, delta=delta, attribute=attribute, k=k, protection=protection)


def test_the_most_frequent_come_first_and_nulls_are_left_out():
    values = ["south"] * 400 + ["east"] * 300 + ["north"] * 200 + [None] * 900 + ["nowhere"] * 900
    assert made(3).draw(values) == ("south", "east", "north")
    assert made(1, epsilon=20.0, delta=1e-9).draw(values) == ("south",)
    assert set(made(4).draw(values)) == {"north", "south", "west", "east"}


def test_bins_of_a_number_can_be_compared_too():
    age = Integer(minimum=0, maximum=99, width=50)
    assert made(1, attribute=age).draw(np.array([60] * 300 + [10] * 10)) == (age.labels[1],)


def test_rows_of_a_person_are_bounded():
    values, ids = ["west"] * 5000 + ["east"] * 400, ["one"] * 5000 + [f"p{n}" for n in range(400)]
    assert made(1, PERSON).draw(values, ids=ids) == ("east",)


def test_gumbel_noise_selects_pairs_with_the_probabilities_of_peeling():
    counts, draws = np.array([3, 2, 0], dtype=np.int64), 4000
    three = Categorical(("a", "b", "c"))
    for protection, rate in ((ROW, 1.0), (SWAPPED_ROW, 0.5)):
        top = TopCategories(k=2, protection=protection, epsilon=1.0, noise=MaxNoise.GUMBEL, attribute=three)
        found = Counter(top.answer(Exact(counts, protection=top.protection)) for _ in range(draws))
        weights = dict(zip("abc", np.exp(rate * counts), strict=True))
        exact = {
            (one, two): weights[one] / sum(weights.values()) * weights[two] / (sum(weights.values()) - weights[one])
            for one in "abc"
            for two in "abc"
            if one != two
        }
        observed = np.array([found[pair] for pair in exact])
        assert chi_square_p(observed, np.array(list(exact.values())) * draws) > 1e-9


def test_k_selections_cost_k_times_one():
    one, three = (TopCategories(k=k, protection=ROW, epsilon=0.3, noise="gumbel", attribute=CITY) for k in (1, 3))
    for currency in Currency:
        assert three.price(currency) == 3 * one.price(currency)


@pytest.mark.parametrize("k", [0, -1, 1.0, True, None, 5])
def test_a_k_that_means_nothing_is_refused(k):
    with pytest.raises(UsageError, match="k must be"):
        made(k)


def test_what_is_no_column_is_refused_and_a_description_alone_cannot_draw():
    with pytest.raises(UsageError, match="declared column"):
        made(1, attribute="city")
    rebuilt = from_description(made(2).describe())
    with pytest.raises(UsageError, match="has a price only"):
        rebuilt.draw(["north"])
