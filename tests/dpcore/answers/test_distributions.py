"""The bars of a column: their labels name values that exist, and unequal intervals are told apart from equal ones."""

from datetime import date
from fractions import Fraction

import pytest

from dpcore.answers.distributions import cells_words, is_unequal, range_label
from dpcore.universe import Attribute, Categorical, Date, Every, Integer, Number
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Scale

AGES = FineInteger(minimum=17, maximum=90, starts=tuple(range(1, 54)))
GAINS = FineInteger(minimum=0, maximum=99_999, starts=(1, 15_025))
COSTS = FineNumber(scale=Scale.of(Fraction(0), Fraction(20_000), step=Fraction("0.5")), starts=(1, 25_000))
QUARTERS = Date(minimum=date(2025, 1, 1), maximum=date(2025, 12, 31), every=Every.QUARTER)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (Integer(minimum=0, maximum=99, width=20), ("0 to 19", "80 to 99")),
        (Integer(minimum=1990, maximum=1992), ("1990", "1992")),
        (AGES, ("17", "70 to 90")),
        (GAINS, ("0", "15,025 to 99,999")),
        (COSTS, ("0", "12,500 to 20,000")),
        (Number((0.0, 0.5, 20_000.0)), ("0 to 0.5", "0.5 to 20,000")),
        (QUARTERS, ("2025-Q1", "2025-Q4")),
    ],
)
def test_the_first_and_the_last_cell_are_named_by_values_that_they_have(
    attribute: Attribute, expected: tuple[str, str]
) -> None:
    labels = attribute.labels
    assert tuple(range_label(attribute, label, label) for label in (labels[0], labels[-1])) == expected


@pytest.mark.parametrize(
    ("attribute", "words", "unequal"),
    [
        (Integer(minimum=0, maximum=99, width=20), "5 intervals", False),
        (Integer(minimum=0, maximum=90, width=20), "5 intervals", False),  # only the last one is narrower
        (AGES, "54 intervals", True),
        (GAINS, "3 intervals", True),
        (QUARTERS, "4 periods", False),
        (Categorical(("a", "b")), "2 values", False),
    ],
)
def test_what_is_counted_has_a_name_and_unequal_intervals_are_noticed(
    attribute: Attribute, words: str, unequal: bool
) -> None:
    assert (cells_words(attribute), is_unequal(attribute)) == (words, unequal)
