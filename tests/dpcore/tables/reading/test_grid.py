"""A grid places numbers exactly where a search among the bounds would."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpcore.tables.reading.grid import Grid
from dpcore.tables.reading.places import ABOVE, BELOW, NULL, Places


def cut(values: np.ndarray, bounds: np.ndarray) -> Places:
    """Return the places by a binary search."""
    bins = np.searchsorted(bounds, values, side="right") - 1
    return np.select([np.isnan(values), values < bounds[0], values >= bounds[-1]], [NULL, BELOW, ABOVE], default=bins)


LARGEST = np.finfo(np.float64).max.item()
BOUNDS = {
    "even": np.arange(53) * 2.5 + 20,
    "decimal": np.arange(11) / 10,
    "widening": np.array([0, 1, 2, 5, 10, 100, 1_000, 10_000.0]),
    "narrow": np.array([1.0, np.nextafter(1.0, 2), 2.0]),
    "tiny": np.array([0.0, 5e-324]),
    "huge": np.array([-LARGEST, 0.0, LARGEST]),
    "many": np.linspace(-1, 1, 70_001),
}


def around(bounds: np.ndarray) -> np.ndarray:
    """Return each bound and its neighbours, and what no bound is near to."""
    far = [-np.inf, np.inf, np.nan, -0.0, 0.0, LARGEST, -LARGEST, 5e-324]
    with np.errstate(over="ignore"):
        return np.concatenate([bounds, np.nextafter(bounds, -np.inf), np.nextafter(bounds, np.inf), far])


def test_the_common_bounds_need_no_search_and_the_odd_ones_do() -> None:
    assert all(Grid(BOUNDS[name])._scale for name in ("even", "decimal", "widening"))
    assert not any(Grid(BOUNDS[name])._scale for name in ("narrow", "tiny", "huge", "many"))


ANY = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=40, unique=True)


@given(
    bounds=st.sampled_from(list(BOUNDS.values())) | ANY.map(lambda bounds: np.array(sorted(bounds))),
    values=st.lists(st.floats(), max_size=40),
)
def test_any_numbers_between_any_bounds_are_placed_as_by_a_search(bounds: np.ndarray, values: list[float]) -> None:
    numbers = np.concatenate([np.array(values, dtype=np.float64), around(bounds)])
    assert Grid(bounds).place(numbers).tolist() == cut(numbers, bounds).tolist()
    assert Grid(bounds).place(np.empty(0)).tolist() == []
