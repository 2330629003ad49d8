"""A grid places numbers exactly where a search among the bounds would."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.universe.grid import Grid
from dpcore.universe.places import cut

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


@pytest.mark.parametrize("name", BOUNDS)
def test_the_neighbours_of_every_bound_are_on_the_right_side(name: str) -> None:
    values = around(BOUNDS[name])
    assert Grid(BOUNDS[name]).place(values).tolist() == cut(values, BOUNDS[name]).tolist()


def test_the_common_bounds_need_no_search_and_the_odd_ones_do() -> None:
    assert all(Grid(BOUNDS[name])._scale for name in ("even", "decimal", "widening"))
    assert not any(Grid(BOUNDS[name])._scale for name in ("narrow", "tiny", "huge", "many"))


@given(
    bounds=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=40, unique=True),
    values=st.lists(st.floats(), max_size=40),
)
def test_any_numbers_between_any_bounds_are_placed_as_by_a_search(bounds: list[float], values: list[float]) -> None:
    edges = np.array(sorted(bounds))
    found = np.concatenate([np.array(values, dtype=np.float64), around(edges)])
    assert Grid(edges).place(found).tolist() == cut(found, edges).tolist()


def test_nothing_is_placed_nowhere() -> None:
    assert Grid(BOUNDS["even"]).place(np.empty(0)).tolist() == []
