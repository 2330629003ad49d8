"""Private multiplicative weights: its threshold, its update rule, its shares of the budget."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcore.errors import SpecError
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.marginals.workload import Workload
from dpcore.strategies import Pmw

SHAPE = (2, 3)
WORKLOAD = Workload.all_of(attributes=2, order=2)


class Exact:
    """Stands for a curator without noise that keeps account of the shares asked for."""

    def __init__(self, counts: np.ndarray) -> None:
        self.counts = counts
        self.left = Fraction(1)
        self.shares: list[Fraction] = []

    def _take(self, share: Fraction) -> None:
        self.shares.append(self.left * share)
        self.left -= self.left * share

    def measure_cell(self, step: str, axes: tuple[int, ...], cell: int | None, *, share: Fraction) -> Measurement:
        self._take(share)
        marginal = self.counts.sum(axis=tuple(axis for axis in range(self.counts.ndim) if axis not in axes))
        values = np.atleast_1d(marginal.ravel()[cell] if cell is not None else marginal)
        return Measurement(step=step, axes=axes, cell=cell, values=values, noise=0.0)

    def select_cell(self, step: str, expected: Any, *, share: Fraction) -> Selection:
        self._take(share)
        (offer,) = expected()
        return Selection(axes=offer.axes, cell=int(np.abs(self.counts - offer.expected).argmax()))


def run(counts: np.ndarray, *, rounds: int, alpha: float) -> tuple[Pmw, Exact, int]:
    strategy, curator = Pmw(counts.shape, WORKLOAD, rounds=rounds, alpha=alpha), Exact(counts)
    strategy.begin(curator)  # type: ignore[arg-type]
    for number in range(1, rounds + 1):
        if strategy.finished:
            return strategy, curator, number - 1
        chosen = strategy.select(curator, number)  # type: ignore[arg-type]
        strategy.update(number, strategy.measure(curator, number, chosen))  # type: ignore[arg-type]
    return strategy, curator, rounds


def test_one_update_multiplies_the_query_by_one_plus_or_minus_the_rate() -> None:
    counts = np.array([[100, 0, 0], [0, 0, 0]])
    strategy, _, _ = run(counts, rounds=4, alpha=0.01)
    first = Pmw(SHAPE, WORKLOAD, rounds=4, alpha=0.01)
    first.begin(Exact(counts))  # type: ignore[arg-type]
    first.update(1, Measurement(step="m", axes=(0, 1), cell=0, values=np.array([100]), noise=0.0))
    rate = math.sqrt(math.log(6) / 4)
    weights = np.ones(6)
    weights[0] += rate
    assert np.allclose(first.model.marginal((0, 1)).ravel(), 100 * weights / weights.sum())
    assert strategy.model.marginal((0, 1))[0, 0] > first.model.marginal((0, 1))[0, 0]
    first.update(2, Measurement(step="m", axes=(0, 1), cell=1, values=np.array([-500]), noise=0.0))
    weights[1] *= 1 - rate
    assert np.allclose(first.model.marginal((0, 1)).ravel(), 100 * weights / weights.sum())


def test_it_ends_once_the_error_is_within_two_alpha() -> None:
    uniform = np.full(SHAPE, 50)
    strategy, curator, rounds = run(uniform, rounds=20, alpha=0.01)
    assert (rounds, strategy.finished) == (1, True)
    assert curator.left > Fraction(9, 10)


@pytest.mark.parametrize(("error", "ends"), [(6, True), (-6, True), (7, False), (-7, False)])
def test_the_threshold_is_two_alpha_of_the_rows(error: int, ends: bool) -> None:
    strategy = Pmw(SHAPE, WORKLOAD, rounds=20, alpha=0.01)
    strategy.begin(Exact(np.full(SHAPE, 50)))  # type: ignore[arg-type]
    strategy.update(1, Measurement(step="m", axes=(0, 1), cell=2, values=np.array([50 + error]), noise=0.0))
    assert strategy.finished is ends


def test_every_answer_gets_an_equal_share_and_together_they_take_all() -> None:
    _, curator, rounds = run(np.array([[100, 0, 0], [0, 0, 0]]), rounds=8, alpha=1e-9)
    assert rounds == 8
    assert set(curator.shares) == {Fraction(1, 17)}
    assert curator.left == 0


def test_it_learns_a_table() -> None:
    counts = np.array([[600, 10, 40], [20, 300, 30]])
    strategy, _, _ = run(counts, rounds=400, alpha=0.005)
    assert np.abs(strategy.model.marginal((0, 1)) - counts).max() <= 2 * 0.005 * counts.sum() + 1
    assert strategy.finished


def test_too_few_rounds_for_the_rule_are_refused_with_a_number_to_write() -> None:
    with pytest.raises(SpecError, match="rounds: "):
        Pmw((10, 10, 10), WORKLOAD, rounds=6, alpha=0.01)
