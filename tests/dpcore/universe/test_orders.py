"""Orders of columns: possible cells, values drawn in order, and exactly the distribution given the order."""

from collections.abc import Iterator
from datetime import date, datetime
from itertools import pairwise

import numpy as np
import pytest

from dpcore.errors import SpecError
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Attribute, Boolean, Date, Datetime, Every, Integer, Number, Universe
from dpcore.universe.constraints import Violations
from dpcore.universe.fine_days import FineDate, FineDatetime
from dpcore.universe.fine_numbers import FineInteger
from dpcore.universe.leaves import Leaves
from dpcore.universe.orders import Order, implied


def order(low: str, high: str) -> Order:
    return Order(low=low, high=high, violations=Violations.DROP)


def universe(*columns: Attribute) -> Universe:
    names = "abcdef"[: len(columns)]
    chain = [order(low, high) for low, high in pairwise(names)]
    return Universe(dict(zip(names, columns, strict=True)), (*chain, *implied(chain)))


def test_a_pair_of_cells_is_possible_if_some_of_its_values_are_in_order() -> None:
    tens = Integer(minimum=0, maximum=29, width=10)
    assert universe(tens, tens).possible[0, 1].tolist() == [[True] * 3, [False, True, True], [False, False, True]]
    reals = Number((0.0, 10.0, 20.0), missing=True)
    assert universe(tens, reals).possible[0, 1].tolist() == [[True] * 3, [False, True, True], [False, False, True]]
    assert universe(reals, tens).possible[0, 1][-1].all()  # a null is in every order


def all_rows(made: Universe) -> list[np.ndarray]:
    """Return every possible combination of cells, each many times."""
    cells = np.ones(made.shape, dtype=bool)
    for axes, table in made.possible.items():
        cells &= table.reshape([size if axis in axes else 1 for axis, size in enumerate(made.shape)])
    return [np.repeat(each, 50) for each in np.nonzero(cells)]


def kinds() -> Iterator[Universe]:
    days = {"minimum": date(2025, 1, 1), "maximum": date(2025, 3, 31)}
    times = {"minimum": datetime(2025, 1, 1, 6), "maximum": datetime(2025, 1, 20, 18)}
    leaves = Leaves(starts=(0, 1, 40, 41), masses=(900, 10, 500, 30), size=100)
    yield universe(*(Integer(minimum=low, maximum=29 + low, width=7, missing=True) for low in (0, 3, 5)))
    yield universe(Number((0, 1.5, 7, 9)), Number((-1, 4, 10)), Number((-5, 0.5, 8, 20), missing=True))
    yield universe(Number((0, 1.5, 7, 9)), Integer(minimum=0, maximum=9, width=3))
    yield universe(
        FineInteger(minimum=0, maximum=99, starts=(1, 40, 41), leaves=leaves),
        FineInteger(minimum=0, maximum=99, starts=(30,)),
    )
    yield universe(FineDate(**days, starts=(7, 60)), FineDate(**days, starts=(1, 30, 59), missing=True))
    yield universe(
        FineDatetime(**times, step="minute", starts=(3, 4)), FineDatetime(**times, step="hour", starts=(1, 12))
    )
    yield universe(Date(**days, every=Every.MONTH), Date(**{**days, "maximum": date(2025, 5, 31)}, every=Every.MONTH))


@pytest.mark.parametrize(
    "made", list(kinds()), ids=lambda made: "-".join(type(each).__name__ for each in made.attributes.values())
)
def test_every_value_drawn_from_possible_cells_is_in_order_and_in_its_cell(made: Universe) -> None:
    codes = all_rows(made)
    rows = made.decode(codes, np.random.default_rng(3))
    frame = rows.to_pandas(date_as_object=False)
    for each in made.constraints:
        assert isinstance(each, Order)
        assert not (frame[each.low] > frame[each.high]).any()
    again, kept = encode_rows(made, rows)
    assert kept.all()
    assert all(np.array_equal(one, other) for one, other in zip(again, codes, strict=True))


def test_values_have_exactly_the_distribution_given_their_order() -> None:
    made = universe(Integer(minimum=0, maximum=3, width=4), Integer(minimum=0, maximum=3, width=4))
    rows = 40_000
    frame = made.decode([np.zeros(rows, dtype=np.int64)] * 2, np.random.default_rng(1)).to_pandas()
    counts = np.zeros((4, 4))
    np.add.at(counts, (frame.a.to_numpy(), frame.b.to_numpy()), 1)
    assert not np.tril(counts, -1).any()
    inside = counts[np.triu_indices(4)]
    # ten pairs are equally likely; a binomial count is within six standard deviations
    assert np.abs(inside - rows / 10).max() < 6 * np.sqrt(rows * 0.09)


def whole_range(*masses: int) -> FineInteger:
    """Return a column of one cell, whose tree has found these parts of the rows in ranges of ten values."""
    leaves = Leaves(starts=tuple(range(0, 10 * len(masses), 10)), masses=masses, size=10 * len(masses))
    return FineInteger(minimum=0, maximum=10 * len(masses) - 1).cut_at((), leaves=leaves)


def test_what_a_tree_has_measured_within_cells_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    low, middle, high = (3, 3, 2, 1, 1, 0), (2, 2, 2, 2, 1, 1), (0, 2, 2, 2, 2, 2)
    made, rows = universe(*(whole_range(*each) for each in (low, middle, high))), 20_000

    def errors() -> list[float]:
        frame = made.decode([np.zeros(rows, dtype=np.int64)] * 3, np.random.default_rng(1)).to_pandas()
        assert ((frame.a <= frame.b) & (frame.b <= frame.c)).all()
        found = [np.bincount(frame[name] // 10, minlength=6) / rows for name in "abc"]
        return [
            float(np.abs(each - np.array(wanted) / 10).sum())
            for each, wanted in zip(found, (low, middle, high), strict=True)
        ]

    assert max(errors()) < 0.06
    monkeypatch.setattr("dpcore.universe.orders._exchanged", lambda values, *_: np.arange(len(values)))
    assert min(errors()) > 0.2  # the control: all columns are drawn again until they are in order


def test_nulls_stay_where_they_are_and_values_in_their_cells() -> None:
    columns = [FineInteger(minimum=0, maximum=59, missing=True).cut_at((20,)) for _ in range(2)]
    made, rng = universe(*columns), np.random.default_rng(4)
    codes = [rng.choice([0, 1, 2], 3000), rng.choice([1, 2], 3000)]
    frame = made.decode(codes, np.random.default_rng(1)).to_pandas()
    assert (frame.isna().to_numpy() == np.stack(codes, axis=1) // 2).all()
    assert not (frame.a > frame.b).any()
    assert (frame.b.dropna() >= 20).all()
    assert (frame.a[codes[0] == 0] < 20).all()


def test_cells_that_hardly_overlap_are_drawn_one_after_the_other() -> None:
    narrow = universe(
        Integer(minimum=999_990, maximum=1_999_989, width=1_000_000),
        Integer(minimum=0, maximum=999_999, width=1_000_000),
    )
    frame = narrow.decode([np.zeros(200, dtype=np.int64)] * 2, np.random.default_rng(1)).to_pandas()
    assert (frame.a <= frame.b).all()
    assert frame.a.between(999_990, 999_999).all()
    assert frame.a.nunique() > 3


def test_orders_imply_others_and_no_circle_is_an_order() -> None:
    assert {(each.low, each.high) for each in implied([order("a", "b"), order("b", "c"), order("c", "d")])} == {
        ("a", "c"),
        ("b", "d"),
        ("a", "d"),
    }
    with pytest.raises(SpecError, match=r"the orders of `[abc]` form a circle; remove one of them"):
        implied([order("a", "b"), order("b", "c"), order("c", "a")])
    mixed = Order(low="b", high="c", violations=Violations.REPAIR)
    assert implied([order("a", "b"), mixed])[0].violations is Violations.DROP


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            (Number((0, 9)), Integer(minimum=0, maximum=9), Number((0, 0.5, 9))),
            "`a` and `b` are in an order of three columns or more, which need the same type and step",
        ),
        ((Boolean(), Integer(minimum=0, maximum=3)), "`a` and `b` have no common order"),
        (
            (
                Date(minimum=date(2025, 1, 1), maximum=date(2025, 9, 1), every=Every.DAY),
                Datetime(minimum=datetime(2025, 1, 1), maximum=datetime(2025, 9, 1), every=Every.DAY),
            ),
            "`a` and `b` have no common order",
        ),
        (
            (
                FineDate(minimum=date(2025, 1, 1), maximum=date(2025, 9, 1)),
                Date(minimum=date(2025, 1, 1), maximum=date(2025, 9, 1), every=Every.MONTH),
            ),
            "`a` and `b` need the same bins; give both the same `every` and `min`",
        ),
    ],
)
def test_columns_without_a_common_order_are_refused(columns: tuple[Attribute, ...], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        _ = universe(*columns).possible
