"""Disjoint blocks: the dearest of them, or the two dearest where a unit can move from one to another."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.privacy.accounting import (
    Currency,
    Pair,
    pair_gdp,
    pair_zcdp,
    parallel_approximate,
    parallel_composition,
    pure_gdp,
    pure_zcdp,
)
from dpcore.privacy.protection import Neighbours

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
amounts = st.lists(st.fractions(min_value=Fraction(1, 100), max_value=10), min_size=1, max_size=6)
ODDS = Fraction(2)


def joint(*sides: dict[int, Fraction]) -> dict[tuple[int, ...], Fraction]:
    """All answers of independent mechanisms."""
    answers = {}
    for names in product(*sides):
        probability = Fraction(1)
        for side, name in zip(sides, names, strict=True):
            probability *= side[name]
        answers[names] = probability
    return answers


def block(present: int) -> dict[int, Fraction]:
    """Randomised response about whether a unit is in a block."""
    true = ODDS / (1 + ODDS)
    return {present: true, 1 - present: 1 - true}


@given(amounts)
def test_one_block_pays_under_add_remove_and_two_under_replace_one(each):
    ordered = sorted(each, reverse=True)
    assert parallel_composition(each, neighbours=ADD) == ordered[0]
    assert parallel_composition(each, neighbours=REPLACE) == sum(ordered[:2])


@pytest.mark.parametrize("currency", Currency)
def test_a_replaced_unit_can_lose_more_than_the_dearest_block_in_every_currency(currency):
    """It leaves the first block for the second: with the maximum alone, what is lost would exceed what is charged."""
    epsilon = 0.6931471805599454
    price, measured = {
        Currency.PURE: (epsilon, lambda pair: pair.max_divergence()),
        Currency.ZCDP: (pure_zcdp(epsilon), pair_zcdp),
        Currency.GDP: (pure_gdp(epsilon), pair_gdp),
    }[currency]
    moved = Pair.of(joint(block(1), block(0), block(0)), joint(block(0), block(1), block(0)))
    gone = Pair.of(joint(block(1), block(0), block(0)), joint(block(0), block(0), block(0)))
    assert measured(gone) <= float(parallel_composition([price] * 3, neighbours=ADD)) * (1 + 1e-5)
    assert measured(moved) <= float(parallel_composition([price] * 3, neighbours=REPLACE)) * (1 + 1e-5)
    assert measured(moved) > 1.2 * float(parallel_composition([price] * 3, neighbours=ADD))


def test_a_pair_covers_the_dearest_epsilon_and_the_dearest_delta():
    parts = [(Fraction(1), Fraction(0)), (Fraction(1, 2), Fraction(1, 100)), (Fraction(1, 4), Fraction(1, 50))]
    assert parallel_approximate(parts, neighbours=ADD) == (1, Fraction(1, 50))
    assert parallel_approximate(parts, neighbours=REPLACE) == (Fraction(3, 2), Fraction(3, 100))
    assert parallel_approximate([(1, 1), (1, 1)], neighbours=REPLACE) == (2, 1)


def test_no_block_a_bad_amount_and_an_unknown_relation_are_refused():
    with pytest.raises(UsageError, match="no block"):
        parallel_composition([], neighbours=ADD)
    with pytest.raises(UsageError, match="above 0"):
        parallel_composition([1, 0], neighbours=ADD)
    with pytest.raises(UsageError, match="Neighbours"):
        parallel_composition([1], neighbours="add-remove")
    with pytest.raises(UsageError, match="delta"):
        parallel_approximate([(1, -1)], neighbours=ADD)
