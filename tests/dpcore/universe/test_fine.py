"""Columns at full resolution: values on the declared step, cells that are intervals, leaves within cells."""

from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpcore.errors import SpecError, UsageError
from dpcore.tables.reading.encoding import encode
from dpcore.universe.fine_days import FineDate, FineDatetime
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import MOST_CELLS, Leaves, Scale

RNG = np.random.default_rng(1)
CENTS = Scale.of(Fraction(0), Fraction(10_000), step=Fraction("0.01"))


def test_every_multiple_of_a_decimal_step_is_read_and_released_as_written() -> None:
    column = FineNumber(scale=CENTS)
    places = RNG.integers(0, CENTS.size, 2000)
    values = CENTS.values(places)
    assert all(len(repr(value).split(".")[1]) <= 2 for value in values.tolist())
    cells = np.searchsorted(column.cell_bounds, places, side="right") - 1
    assert np.array_equal(encode(column, pa.array(values)), cells)
    texts = pa.array([f"{value:.2f}" for value in values])
    assert np.array_equal(encode(column, texts), cells)


def test_a_drawn_value_lies_in_its_cell_and_follows_the_leaves() -> None:
    leaves = Leaves(starts=(0, 10, 11, 50), masses=(10, 80, 10, 0), size=100)
    column = FineInteger(minimum=1000, maximum=1099, starts=(50,), leaves=leaves)
    drawn = column.decode(np.zeros(10_000, dtype=np.int64), RNG).to_numpy()
    assert drawn.min() >= 1000
    assert drawn.max() < 1050
    assert np.mean(drawn == 1010) == pytest.approx(0.8, abs=0.02)
    unknown = column.decode(np.ones(1000, dtype=np.int64), RNG).to_numpy()  # no mass: uniform
    assert (unknown.min(), unknown.max()) == (1050, 1099)


def test_before_anything_is_found_there_are_as_many_cells_as_may_be_found() -> None:
    assert FineInteger(minimum=0, maximum=999_999).cells == MOST_CELLS
    assert FineDate(minimum=date(2025, 1, 1), maximum=date(2025, 1, 10)).cells == 10


def test_labels_say_what_a_cell_contains() -> None:
    days = FineDate(minimum=date(2025, 1, 1), maximum=date(2025, 1, 31), starts=(1, 2))
    assert days.labels == ("2025-01-01", "2025-01-02", "2025-01-03 to 2025-01-31")
    assert FineNumber(scale=CENTS, starts=(1, 50)).labels == ("0", "[0.01, 0.5)", "[0.5, 10000]")


def test_a_datetime_never_leaves_its_bounds() -> None:
    column = FineDatetime(minimum=datetime(2025, 1, 1, 8), maximum=datetime(2025, 1, 2, 9, 59, 59), step="hour")
    drawn = column.decode(np.repeat([0, 1], 300), RNG).to_pylist()
    assert all(each.minute == each.second == 0 for each in drawn)
    assert min(drawn) >= column.minimum
    assert max(drawn) <= column.maximum


def test_what_cannot_be_exact_or_whole_is_rejected() -> None:
    with pytest.raises(SpecError, match="does not divide"):
        Scale.of(Fraction(0), Fraction(1), step=Fraction("0.3"))
    with pytest.raises(SpecError, match="too many steps"):
        Scale.of(Fraction(0), Fraction(10**18), step=Fraction(1))
    for low, high, step in (("0", "1e-310", "1e-315"), ("0", "1e-10", "1e-23"), ("1e-30", "3e-30", "1e-30")):
        with pytest.raises(SpecError, match="at most 22 decimal places"):
            Scale.of(Fraction(low), Fraction(high), step=Fraction(step))
    with pytest.raises(SpecError, match="no whole step"):
        FineDatetime(minimum=datetime(2025, 1, 1, 8, 30), maximum=datetime(2025, 1, 1, 8, 40), step="hour")
    with pytest.raises(SpecError, match="no width"):
        FineInteger(minimum=0, maximum=99, width=5)
    with pytest.raises(UsageError, match="leaves must start"):
        Leaves(starts=(1,), masses=(1,), size=3)


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [
        ("0", "1", "0.001"),
        ("0", "1e-15", "1e-22"),
        ("-2", "2.25", "1e-15"),
        ("0", "2251799813685248", "1"),
        ("0", "3e-4", "3e-17"),
        ("0.0009765625", "1.0009765625", "0.0009765625"),
    ],
)
def test_values_are_the_doubles_nearest_to_their_multiples_and_no_two_are_read_alike(
    low: str, high: str, step: str
) -> None:
    scale = Scale.of(Fraction(low), Fraction(high), step=Fraction(step))
    places = RNG.integers(0, scale.size, 1000)
    wanted = [float(Fraction(low) + int(place) * Fraction(step)) for place in places]
    assert scale.values(places).tolist() == wanted
    inner = np.unique(places[places > 0])
    edges = np.array(scale.edges(inner.tolist())[1:-1])
    assert np.all((scale.values(inner - 1) < edges) & (edges <= scale.values(inner)))
    assert np.array_equal(scale.lower_edges(inner), edges)
