"""Sums of columns: possible cells, values that add up exactly, and a distribution that knows how frequent totals are."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import SpecError
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Attribute, Boolean, Integer, Number, Universe
from dpcore.universe.constraints import Violations
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Leaves, Scale
from dpcore.universe.orders import Order
from dpcore.universe.sums import Sum


def universe(*columns: Attribute) -> Universe:
    """Return a universe whose last column is the sum of the others."""
    names = "abcd"[: len(columns)]
    made = Sum(total=names[-1], terms=tuple(names[:-1]), violations=Violations.DROP)
    return Universe(dict(zip(names, columns, strict=True)), (made,))


def decimals(low: str, high: str, *, step: str = "0.01", starts: tuple[int, ...] = (10,)) -> FineNumber:
    return FineNumber(scale=Scale.of(Fraction(low), Fraction(high), step=Fraction(step)), starts=starts)


def test_cells_are_possible_if_some_of_their_values_add_up() -> None:
    fives, tens = Integer(minimum=0, maximum=9, width=5), Integer(minimum=0, maximum=19, width=10)
    assert universe(fives, fives, tens).possible[0, 1, 2].tolist() == [
        [[True, False], [True, True]],
        [[True, True], [False, True]],
    ]
    lowest_is_highest = Integer(minimum=0, maximum=5, width=6), Integer(minimum=0, maximum=18, width=9)
    assert universe(Integer(minimum=0, maximum=4, width=5), *lowest_is_highest).possible[0, 1, 2].tolist() == [
        [[True, True, False]]
    ]


def all_rows(made: Universe) -> list[np.ndarray]:
    """Return every possible combination of cells, each many times."""
    ((axes, possible),) = made.possible.items()
    assert axes == tuple(range(len(made.shape)))
    return [np.repeat(each, 50) for each in np.nonzero(possible)]


def kinds() -> Iterator[Universe]:
    leaves = Leaves(starts=(0, 1, 40, 41), masses=(900, 10, 500, 30), size=100)
    yield universe(*(Integer(minimum=low, maximum=29 + 2 * low, width=7, missing=True) for low in (-3, 3, 5)))
    yield universe(
        FineInteger(minimum=0, maximum=99, starts=(1, 40, 41), leaves=leaves),
        Integer(minimum=0, maximum=99, width=20),
        FineInteger(minimum=10, maximum=150, starts=(30, 31)),
    )
    yield universe(decimals("0.05", "3.05"), decimals("-1", "2", starts=(1, 2, 150)), decimals("0", "4.5"))
    yield universe(*(Integer(minimum=0, maximum=9, width=4) for _ in range(3)), Integer(minimum=5, maximum=30, width=9))
    yield universe(
        Integer(minimum=0, maximum=10**6, width=10**5),
        Integer(minimum=0, maximum=3),
        Integer(minimum=0, maximum=10**6, width=7 * 10**4),
    )


@pytest.mark.parametrize("made", list(kinds()), ids=range(5))
def test_every_row_drawn_from_possible_cells_adds_up_exactly_and_stays_in_its_cells(made: Universe) -> None:
    codes = all_rows(made)
    rows = made.decode(codes, np.random.default_rng(3))
    frame = rows.to_pandas()
    *terms, total = made.names
    hundredths = (frame * 100).round()
    known = frame.notna().all(axis=1)
    assert known.sum() > 100
    assert (hundredths[terms].sum(axis=1)[known] == hundredths[total][known]).all()
    again, kept = encode_rows(made, rows)
    assert kept.all()
    assert all(np.array_equal(one, other) for one, other in zip(again, codes, strict=True))


def test_values_have_the_distribution_given_their_sum_and_how_frequent_totals_are() -> None:
    digits = Integer(minimum=0, maximum=1, width=2)
    leaves = Leaves(starts=(0, 1, 2), masses=(600, 300, 100), size=3)
    made = universe(digits, digits, FineInteger(minimum=0, maximum=2, starts=(), leaves=leaves))
    rows = 40_000
    drawn = made.decode([np.zeros(rows, dtype=np.int64)] * 3, np.random.default_rng(5)).to_pandas()
    # weights: (0, 0) 0.6; (0, 1) and (1, 0) 0.3 each; (1, 1) 0.1
    wanted = np.array([0.6, 0.3, 0.3, 0.1]) / 1.3
    found = np.bincount(2 * drawn.a + drawn.b, minlength=4) / rows
    assert np.abs(found - wanted).max() < 0.02


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ((Boolean(), Integer(minimum=0, maximum=3), Integer(minimum=0, maximum=9)), "`a` has no whole steps to add up"),
        (
            (Number((0, 1, 2)), Integer(minimum=0, maximum=3), Integer(minimum=0, maximum=9)),
            "or a number with a `step`",
        ),
        ((Integer(minimum=0, maximum=3), decimals("0", "3"), decimals("0", "9")), "have different steps"),
        (
            (decimals("0.05", "1.05", step="0.1"), decimals("0", "1", step="0.1"), decimals("0", "2", step="0.1")),
            "never add up",
        ),
        (
            (Integer(minimum=0, maximum=3), Integer(minimum=0, maximum=3), Integer(minimum=7, maximum=9)),
            "no values of `a` and `b` add up",
        ),
    ],
)
def test_a_sum_that_cannot_hold_is_refused_by_name(columns: tuple[Attribute, ...], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        _ = universe(*columns).possible


def test_a_column_is_in_one_sum_and_in_no_order() -> None:
    digits = Integer(minimum=0, maximum=9)
    made = universe(digits, digits, digits)
    order = Order(low="a", high="c", violations=Violations.DROP)
    other = Sum(total="b", terms=("a", "d"), violations=Violations.DROP)
    for more in (order, other):
        with pytest.raises(SpecError, match="`a` is in a sum, so it cannot be in another sum or in an order"):
            _ = Universe({**made.attributes, "d": digits}, (*made.constraints, more)).possible
