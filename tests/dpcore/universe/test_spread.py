"""What a spread says is what `decode` draws."""

from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.universe import Attribute, Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside
from dpcore.universe.description import describe, restored
from dpcore.universe.fine_days import FineDate, FineDatetime
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Leaves, Scale
from dpcore.universe.numeric import UnevenInteger
from dpcore.universe.spread import category_values, null_codes
from dpcore.universe.spreading import spread_of

WEEK = Leaves(starts=(0, 24, 30, 48, 72, 96, 120, 144), masses=(9, 1, 8, 3, 0, 5, 0, 2), size=168)
ORDERED: dict[str, Attribute] = {
    "integer": Integer(minimum=-7, maximum=92, width=30, missing=True),
    "uneven": UnevenInteger(minimum=0, maximum=99, cuts=(1, 10), outside=Outside.OTHER),
    "number": Number((-5, 0, 0.5, 100)),
    "calendar": Date(minimum=date(2025, 1, 15), maximum=date(2025, 3, 1), every=Every.MONTH),
    "moments": Datetime(minimum=datetime(2025, 1, 1, 5), maximum=datetime(2025, 1, 3), every=Every.DAY),
    "fine integer": FineInteger(
        minimum=-10, maximum=89, starts=(1, 40), leaves=Leaves((0, 1, 9, 40), (3, 1, 2, 0), size=100)
    ),
    "fine number": FineNumber(
        scale=Scale.of(Fraction(0), Fraction(10), step=Fraction("0.01")),
        starts=(5, 600),
        leaves=Leaves((0, 5, 6, 600, 900), (1, 8, 2, 1, 3), size=1001),
    ),
    "unfound": FineInteger(minimum=0, maximum=99),
    "fine date": FineDate(
        minimum=date(2025, 1, 1),
        maximum=date(2025, 3, 31),
        starts=(40,),
        leaves=Leaves((0, 1, 40), (2, 9, 5), size=90),
        week=Leaves(tuple(range(7)), (9, 1, 1, 1, 1, 0, 0), size=7),
    ),
    "fine datetime": FineDatetime(
        minimum=datetime(2025, 1, 1, 6),
        maximum=datetime(2025, 1, 20, 20),
        step="hour",
        starts=(9,),
        leaves=Leaves((0, 9), (2, 5), size=20),
        week=WEEK,
    ),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_draws_are_distributed_as_the_spread_says(kind: str) -> None:
    attribute = ORDERED[kind]
    spread, rows = spread_of(attribute), 4000
    cells = np.repeat(np.arange(attribute.cells), rows)
    drawn = attribute.decode(cells, np.random.default_rng(1)).to_pylist()
    places = np.array([float(spread.place(value)) for value in drawn])
    cuts = np.unique(np.concatenate([spread.quantile(np.linspace(0, attribute.cells, 40)), spread.bounds]))
    expected = rows * spread.below(cuts)
    found = np.searchsorted(np.sort(places), cuts - (0 if not spread.whole else 1e-6))
    assert np.abs(found - expected).max() < 5 * rows**0.5 * 0.5 + 1
    wrong = rows * spread.below(cuts + (spread.bounds[-1] - spread.bounds[0]) / 5)  # a control: shifted values differ
    assert np.abs(found - wrong).max() > 5 * rows**0.5


@pytest.mark.parametrize("kind", ["integer", "uneven", "number", "fine integer", "fine number"])
def test_moments_are_the_means_of_draws(kind: str) -> None:
    attribute = ORDERED[kind]
    spread, rows = spread_of(attribute), 20_000
    drawn = attribute.decode(np.repeat(np.arange(attribute.cells), rows), np.random.default_rng(2)).to_numpy()
    means = np.diff(spread.moment_below(spread.bounds))
    for cell, mean in enumerate(means):
        values = drawn[cell * rows : (cell + 1) * rows]
        assert abs(values.mean() - mean) < 5 * values.std() / rows**0.5 + 1e-9


@pytest.mark.parametrize("kind", ORDERED)
def test_a_described_column_is_restored(kind: str) -> None:
    assert restored(describe(ORDERED[kind])) == ORDERED[kind]
    assert restored(describe(ORDERED[kind])) != ORDERED["integer" if kind == "number" else "number"]
    described = describe(ORDERED[kind])
    for name in described:
        with pytest.raises(UsageError, match="damaged"):
            restored({part: value for part, value in described.items() if part != name})


def test_released_categories_and_nulls_are_those_that_decode_gives() -> None:
    kinds = [
        Boolean(missing=True),
        Boolean(outside=Outside.OTHER, missing=True),
        Categorical(("a", "other"), outside=Outside.OTHER, missing=True),
        Categorical(("a", "missing"), missing=True),
        Categorical((1, 2), outside=Outside.OTHER, missing=True),
        Categorical((1, "b"), outside=Outside.OTHER),
        Categorical((True, False)),
    ]
    for attribute in kinds:
        drawn = attribute.decode(np.arange(attribute.size), np.random.default_rng(1)).to_pylist()
        assert list(category_values(attribute) or ()) == drawn
        assert [drawn[code] for code in null_codes(attribute)] == [None] * drawn.count(None)
        assert restored(describe(attribute)) == attribute
