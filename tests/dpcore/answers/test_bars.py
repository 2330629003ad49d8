"""Bars of equal width: they cover the range once, each value in one bar, and a far end with few rows is one bar."""

from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dpcore.answers.bars import LESS, MORE, Bar, equal_bars
from dpcore.answers.query import All, Compare
from dpcore.universe.fine_days import FineDate, FineDatetime
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Fine, Scale

AGES = FineInteger(minimum=17, maximum=90, starts=tuple(range(1, 54)))
INCOMES = FineInteger(minimum=0, maximum=9_999_999, starts=(10_000, 20_000, 40_000, 100_000, 200_000))
COSTS = FineNumber(scale=Scale.of(Fraction(0), Fraction(20_000), step=Fraction("0.5")), starts=(1, 25_000))
THIRDS = FineNumber(scale=Scale.of(Fraction(0), Fraction(100), step=Fraction(1, 3)), starts=(1, 2))
DAYS = FineDate(minimum=date(1990, 1, 1), maximum=date(2025, 12, 31), starts=(12_000, 12_500, 13_000))
LAST_DAYS = FineDate(minimum=date(9999, 1, 1), maximum=date(9999, 12, 31), starts=(1, 2))
MOMENTS = FineDatetime(minimum=datetime(2025, 1, 1, 6), maximum=datetime(2025, 3, 31, 20), starts=(1, 50), step="hour")


def bars_of(attribute: Fine, *rows: float) -> list[Bar]:
    return equal_bars(0, attribute, np.array(rows or [1.0] * attribute.cells))


def starts(bars: list[Bar]) -> list[Any]:
    """The first value of each bar, after a check that the bars are neighbours and cover everything."""
    limits = []
    for bar in bars:
        assert isinstance(bar.condition, All)
        limits.append(
            [
                (condition.operator, condition.value)
                for condition in bar.condition.parts
                if isinstance(condition, Compare)
            ]
        )
    for before, after in pairwise(limits):
        assert before[-1] == ("<", after[0][1])
    assert all(conditions[0][0] == ">=" for conditions in limits)
    assert len(limits[-1]) == 1  # no upper end
    return [conditions[0][1] for conditions in limits]


@pytest.mark.parametrize("attribute", [AGES, INCOMES, COSTS, THIRDS, DAYS, LAST_DAYS, MOMENTS])
def test_bars_cover_the_range_once_in_equal_steps(attribute: Fine) -> None:
    bars = bars_of(attribute)
    first = starts(bars)
    assert 2 <= len(bars) <= 20
    inner = first[bars[0].first == LESS :]
    assert len({after - before for before, after in pairwise(inner)}) == 1


@pytest.mark.parametrize("low", ["0.1", "1.1", "0.3", "-1"])
def test_every_value_of_a_decimal_column_is_in_one_bar(low: str) -> None:
    """0.1 as a double lies above 0.1: a bar from there on would not have the first value."""
    scale = Scale.of(Fraction(low), Fraction(50), step=Fraction("0.1"))
    bars = bars_of(FineNumber(scale=scale, starts=(1, 2)))
    first = starts(bars)
    assert first[0] == Fraction(low)
    assert all((value - Fraction(low)) % Fraction("0.1") == 0 for value in first)


def test_labels_name_values_that_the_column_has() -> None:
    assert [bar.label for bar in bars_of(AGES)][:2] == ["17 to 21", "22 to 26"]
    assert bars_of(AGES)[-1].label == "87 to 90"
    assert [bars_of(COSTS)[at].label for at in (0, -1)] == ["0 to 1000", "19,000 to 20,000"]
    hundred = FineInteger(minimum=0, maximum=100, starts=(1, 2))
    assert [bars_of(hundred)[at].label for at in (0, -1)] == ["0 to 4", "95 to 100"]  # 100 has no bar of its own
    twenty = FineInteger(minimum=0, maximum=20, starts=(1, 2))
    assert [bars_of(twenty)[at].label for at in (0, -1)] == ["0 to 1", "20"]
    assert [bars_of(DAYS)[at].last for at in (0, -1)] == ["1991-10-20", "2025-12-31"]
    assert bars_of(MOMENTS)[0].label == "2025-01-01 to 2025-01-05"


def test_a_far_end_with_few_rows_is_one_bar() -> None:
    skewed = bars_of(INCOMES, 3000, 4000, 2000, 900, 80, 1)  # almost all below 200,000 of ten million
    assert (skewed[0].first, skewed[-1].last) == ("0", MORE)
    assert starts(skewed)[1] == 10_000
    assert skewed[-1].label == "140,000 to 9,999,999"
    assert len(skewed) == 15
    whole = bars_of(INCOMES, 3000, 4000, 2000, 900, 80, 900)
    assert (len(whole), whole[-1].last) == (20, "9,999,999")  # too many rows to be drawn in one bar
    late = bars_of(DAYS, 1, 900, 900, 900)
    assert (late[0].first, late[-1].last) == (LESS, "2025-12-31")
    assert starts(late)[1] - date(1990, 1, 1) > timedelta(days=9000)


def test_a_column_without_rows_and_one_with_a_single_value_have_bars() -> None:
    assert len(bars_of(AGES, *[0.0] * AGES.cells)) == 15
    column = FineInteger(minimum=0, maximum=99_999, starts=(1,))
    assert [bar.label for bar in bars_of(column, 500.0, 0.0)] == ["0", "1 to 99,999"]
