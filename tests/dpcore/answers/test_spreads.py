"""Trees lose long tails in their noise, and intervals include that."""

import numpy as np
import pytest

from dpcore.answers import spreads
from dpcore.answers.cells import Column
from dpcore.answers.leaf_tree import TreeNoise
from dpcore.answers.spreads import with_hidden
from dpcore.universe.fine_numbers import FineInteger
from dpcore.universe.leaves import Leaves
from dpcore.universe.spreading import spread_of

NODE = 625  # the width of a node of the first level
NOISE = TreeNoise(deviation=40.0, levels=4)


def column() -> FineInteger:
    """A column whose tree has found 4,000 rows below 1,250, and nothing in all 14 nodes above."""
    leaves = Leaves(starts=tuple(range(0, 16 * NODE, NODE)), masses=(3_000_000, 1_000_000, *[0] * 14), size=16 * NODE)
    return FineInteger(minimum=0, maximum=16 * NODE - 1).cut_at((NODE,), leaves=leaves)


def mean(spread: spreads.Spread) -> float:
    """Return the mean of the 4,000 rows, of which each cell keeps its own."""
    found = Column.of(column(), []).spread_by(spread)
    return float(np.average(found.means, weights=[3000.0, 1000.0]))


def test_a_tail_that_a_tree_has_lost_is_within_reach_and_without_hidden_rows_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = spread_of(column())
    lost = 20 * np.sqrt(14)  # a standard deviation of the sum of the empty nodes, each of which was counted four times
    truth = mean(usual) + lost / 4000 * (
        2 * NODE + NODE - 1.5 * NODE
    )  # rows of the second node that lie in the third to fifth
    assert mean(usual) < truth < mean(with_hidden(usual, column(), NOISE))
    monkeypatch.setattr(spreads, "HIDDEN", 0.0)
    assert mean(with_hidden(usual, column(), NOISE)) == pytest.approx(mean(usual))


def test_hidden_rows_are_limited_and_move_to_no_other_cell() -> None:
    found = with_hidden(spread_of(column()), column(), TreeNoise(deviation=1e6, levels=4))
    assert found.below(np.array([NODE])).tolist() == [1.0]
    assert found.below(np.array([2 * NODE]))[0] < 2.0
    assert 0.0 < mean(found) < 16 * NODE


def test_nothing_is_hidden_without_noise() -> None:
    usual = spread_of(column())
    assert mean(with_hidden(usual, column(), TreeNoise(deviation=0.0, levels=4))) == pytest.approx(mean(usual))


def test_the_deviation_within_a_cell_is_that_of_its_values() -> None:
    leaves = Leaves(starts=(0, 10, 12), masses=(6_000, 3_000, 1_000), size=20)
    attribute = FineInteger(minimum=0, maximum=19).cut_at((10,), leaves=leaves)
    second = np.concatenate([np.repeat([10, 11], 12), np.repeat(np.arange(12, 20), 1)])  # 3 to 1, evenly within leaves
    found = Column.of(attribute, [])
    assert found.means[1] == pytest.approx(second.mean())
    assert found.deviations.tolist() == pytest.approx([np.arange(10).std(), second.std()])
