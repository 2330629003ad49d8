"""Distances of sparse and dense marginals agree, weights count, and the cells of nulls are merged."""

import numpy as np
import pytest

from dpcore.comparison import rows as module
from dpcore.comparison.errors import WorstCell
from dpcore.comparison.rows import CodedRows, Comparable, distance
from dpcore.universe import Categorical, Integer, Outside, Universe


def some(number: int, *, seed: int, weighted: bool) -> CodedRows:
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, number) if weighted else None
    return CodedRows([rng.integers(0, 5, number), rng.integers(0, 3, number)], weights=weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_distance_is_the_same_however_it_is_counted(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = some(200, seed=1, weighted=weighted), some(150, seed=2, weighted=False)
    dense = distance(one, other, (0, 1), (5, 3))
    weights = np.ones(200) if one.weights is None else one.weights
    by_hand = 0.0
    for cell in np.ndindex(5, 3):
        inside = [(table.codes[0] == cell[0]) & (table.codes[1] == cell[1]) for table in (one, other)]
        by_hand += abs(weights[inside[0]].sum() / weights.sum() - inside[1].mean())
    monkeypatch.setattr(module, "DENSE_CELLS", 1)
    assert distance(one, other, (0, 1), (5, 3)) == pytest.approx(dense) == pytest.approx(by_hand)


def test_rows_are_not_shown() -> None:
    assert repr(some(5, seed=1, weighted=False)) == "<CodedRows: private, not shown>"


def test_the_cells_of_nulls_are_one() -> None:
    universe = Universe(
        {
            "age": Integer(minimum=0, maximum=1, outside=Outside.OTHER, missing=True),
            "city": Categorical(("a", "b"), outside=Outside.OTHER, missing=True),
        }
    )
    cells = Comparable(universe)
    assert universe.shape == (4, 4)
    assert cells.shape == (3, 4)  # an undeclared city has a text of its own
    assert cells.labels(0) == ("0", "1", "null")
    assert cells.labels(1) == ("a", "b", "other", "missing")
    counts = np.arange(16).reshape(4, 4)
    merged = cells.merged(counts, (0, 1))
    assert merged.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [20, 22, 24, 26]]
    assert cells.merged(counts.T, (1, 0)).tolist() == merged.T.tolist()
    codes = [np.array([0, 2, 3]), np.array([0, 2, 3])]
    assert [code.tolist() for code in cells.rows([(codes, None)]).codes] == [[0, 2, 2], [0, 2, 3]]


def test_the_cause_of_an_error_is_the_step_in_its_direction() -> None:
    cell = WorstCell(("city",), ("a",), true=100, released=60, steps=(-5.0, 40.0, -70.0, -5.0))
    assert cell.cause == "noise"
    assert WorstCell(("city",), ("a",), true=100, released=130, steps=(-50.0, 70.0, 5.0, 5.0)).cause == (
        "marginals that were not measured"
    )
