"""Top categories: the right order with much budget, the right probabilities with little, one price for all."""

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import TopCategories, from_description
from dpcore.mechanisms.exponential import Flavour, ReportNoisyMax
from dpcore.mechanisms.query import Exact
from dpcore.privacy.accounting import Currency
from dpcore.universe import Categorical, Integer
from tests.contracts.mechanism_catalogue import PERSON, ROW, SWAPPED_ROW

CITY = Categorical(("north", "south", "west", "east"), missing=True)


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


def test_each_selection_is_of_those_that_are_left_at_the_rate_that_is_paid_for(monkeypatch):
    offered = []

    def first_of_equals(selection, scores):
        offered.append((selection, scores.tolist()))
        return int(scores.argmax())

    monkeypatch.setattr(ReportNoisyMax, "draw", first_of_equals)
    for protection, monotone in ((ROW, True), (SWAPPED_ROW, False)):
        top = TopCategories(k=3, protection=protection, epsilon=0.3, flavour="gumbel", attribute=CITY)
        counts = np.array([3, 5, 0, 4], dtype=np.int64)
        assert top.answer(Exact(counts, protection=protection)) == ("south", "east", "north")
        assert [scores for _, scores in offered] == [[3, 5, 0, 4], [3, 0, 4], [3, 0]]
        one = ReportNoisyMax(epsilon=0.3, sensitivity=1, flavour=Flavour.GUMBEL, monotone=monotone)
        assert {selection for selection, _ in offered} == {one}
        assert [top.price(currency) for currency in Currency] == [3 * one.price(currency) for currency in Currency]
        offered.clear()


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
