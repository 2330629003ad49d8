"""Weights, a target and ranges in the adaptive strategy: what is offered first, what is measured besides, and what that is good for."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes, Workload
from dpcore.models import smoothing
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.strategies import Adaptive, Column
from tests.dpcore.strategies.test_adaptive import AGE, COLUMNS, ROWS, Recording, Table, column_set, planted, run

FIVE = COLUMNS[:5]


class Priced(Recording):
    """Stands for a curator whose noise follows from the share, as with zCDP; `noise` is what the whole budget would buy."""

    def __init__(self, table: Table, columns: Sequence[Column], *, noise: float, seed: int = 2) -> None:
        super().__init__(table, columns, noise=noise, seed=seed)
        self.whole = noise
        self.steps: list[str] = []

    def expected_noise(self, share: Fraction) -> float:
        return self.whole / float(self.left * share) ** 0.5

    def measure_marginal(self, step: str, axes: Axes, *, share: Fraction) -> Measurement:
        self.steps.append(step)
        self.noise = self.expected_noise(share)
        return super().measure_marginal(step, axes, share=share)


def finished(curator: Recording, strategy: Adaptive) -> None:
    strategy.begin(curator)
    number = 0
    while number < strategy.rounds:
        number += 1
        strategy.update(number, strategy.measure(curator, number, strategy.select(curator, number)))
    strategy.conclude()


def test_weights_come_with_the_offers_and_a_heavier_part_of_a_larger_marginal_is_offered_itself() -> None:
    marginals = [(0, 1, 2), (3, 4), (0, 1)]
    for weights, first in (
        ([1, 5, 9], {(0, 1): 9, (3, 4): 5, (0, 1, 2): 1}),
        ([4, 4, 4], {(3, 4): 4, (0, 1, 2): 4}),
    ):
        workload = Workload.of(marginals, weights=weights)
        _, curator = run(noise=2.0, table=planted()[:5], columns=FIVE, workload=workload, rounds=2)
        assert dict(zip(curator.offers[0], curator.weights[0], strict=True)) == first


def test_what_weighs_more_is_measured_first_and_gets_more_of_the_first_budget() -> None:
    copies = planted()[0]
    columns = [Column(name, 4, ordered=False) for name in "abcd"]
    marginals = [(0, 1), (2, 3)]  # alike, but for the weight
    for weights, selected in (([1, 50], (2, 3)), ([50, 1], (0, 1))):
        workload = Workload.of(marginals, weights=weights)
        _, curator = run(noise=2.0, table=[copies] * 4, columns=columns, workload=workload, rounds=2)
        assert curator.selected[0] == selected
        shares = dict(enumerate(curator.spent[:4]))
        assert min(shares[axis] for axis in selected) > max(
            share for axis, share in shares.items() if axis not in selected
        )


def test_pairs_with_the_target_come_first_each_once_the_worst_one_first() -> None:
    workload = Workload.all_of(attributes=5, order=3, target=4)
    strategy, curator = run(noise=2.0, table=planted()[:5], columns=FIVE, workload=workload, rounds=9)
    pairs = {(0, 4), (1, 4), (2, 4), (3, 4)}
    sets = [column_set(strategy.resolutions, axes) for axes in curator.selected]
    for number in range(4):
        offered = {column_set(strategy.resolutions, axes) for axes in curator.offers[number]}
        assert offered == pairs - set(sets[:number])
    assert set(sets[:4]) == pairs
    assert all(len(axes) == 3 for axes in curator.offers[4])


@pytest.mark.parametrize(("rounds", "first"), [(1, 0), (2, 1), (3, 1), (6, 3)])
def test_no_more_than_half_of_the_rounds_are_for_the_target(rounds: int, first: int) -> None:
    workload = Workload.all_of(attributes=5, order=3, target=4)
    _, curator = run(noise=2.0, table=planted()[:5], columns=FIVE, workload=workload, rounds=rounds)
    triples = [any(len(axes) == 3 for axes in offers) for offers in curator.offers]
    assert triples == [False] * first + [True] * (rounds - first)


def test_pairs_with_the_target_that_are_not_worth_their_noise_or_their_room_hold_nobody_up() -> None:
    listed = Workload.of([(AGE, 0), (AGE, 1), (6, 7)], target=AGE)
    _, curator = run(noise=ROWS / 6, workload=listed, rounds=4)  # up to seven cells are worth it
    assert curator.offers == [[(6, 7)]] * 4
    _, curator = run(noise=2.0, workload=listed, rounds=4)
    assert curator.offers[0] == [(0, AGE), (1, AGE)]
    cells = 190  # in the first round there is room for hardly more than the columns
    _, curator = run(noise=2.0, workload=listed, rounds=4, model_mb=cells * BYTES_PER_CELL / 2**20)
    assert curator.offers[0] == [(6, 7)]


def ranged(size: int, rows: int) -> tuple[list[Column], Table]:
    """Make a column of two humps, and three that go with it or not."""
    rng = np.random.default_rng(1)
    hump = np.where(rng.random(rows) < 0.7, rng.normal(0.35, 0.12, rows), rng.normal(0.75, 0.05, rows)).clip(0, 0.9999)
    columns = [Column("x", size, ordered=True), *(Column(name, 3, ordered=False) for name in "bcd")]
    follows = (3 * hump + rng.normal(0, 0.5, rows)).clip(0, 2)
    return columns, [np.array(each, dtype=np.int64) for each in (size * hump, follows, *rng.integers(0, 3, (2, rows)))]


def test_levels_of_a_range_are_measured_besides_their_column_for_as_much_and_exactly_all_is_spent() -> None:
    columns, table = ranged(600, 5000)
    workload = Workload.all_of(attributes=4, order=2, ranges=[0])
    strategy = Adaptive(columns, workload, rounds=3, pure=False, model_mb=8.0)
    planned, curator = strategy.answers, Priced(table, columns, noise=5.0)
    finished(curator, strategy)
    levels = curator.steps[4:-3]
    cells = [600, *(int(step.removeprefix("one-way/01-x-")) for step in levels)]
    assert curator.steps[:4] == ["one-way/01-x", "one-way/02-b", "one-way/03-c", "one-way/04-d"]
    assert len(levels) >= 2
    assert all(4 * coarser <= finer for finer, coarser in pairwise(cells))
    for measured, size in zip(strategy.measurements[4:-3], cells[1:], strict=True):
        assert measured.values.size == size
        assert strategy.resolutions.column(*measured.axes) == 0
    spent = curator.spent
    assert (curator.left, sum(spent)) == (0, 1)
    assert sum(spent[4 : 4 + len(levels)]) == spent[0]
    assert len(set(spent[4 : 4 + len(levels)])) == 1
    assert len(spent) == strategy.answers <= planned
    assert strategy.rounds == 3


def test_a_range_that_can_have_no_levels_changes_nothing() -> None:
    columns, table = ranged(7, 5000)
    shares = []
    for ranges in ((), (0,)):
        strategy = Adaptive(
            columns, Workload.all_of(attributes=4, order=2, ranges=ranges), rounds=2, pure=True, model_mb=8.0
        )
        curator = Priced(table, columns, noise=5.0)
        finished(curator, strategy)
        assert len(curator.spent) == strategy.answers == 4 + 2 * 2
        assert (curator.left, sum(curator.spent)) == (0, 1)
        shares.append(curator.spent)
    assert shares[0] == shares[1]


def test_the_number_of_rounds_takes_into_account_what_levels_cost() -> None:
    columns, table = ranged(1000, 3000)
    rounds = []
    for ranges in ((), (0,)):
        workload = Workload.all_of(attributes=4, order=2, ranges=ranges)
        strategy = Adaptive(columns, workload, rounds=None, pure=False, model_mb=8.0)
        strategy.begin(Priced(table, columns, noise=300.0))
        rounds.append(strategy.rounds)
    assert 1 <= rounds[1] <= rounds[0] <= 6


@pytest.mark.parametrize(("size", "unsmoothed", "smooth", "rounds"), [(100, 1.4, 1.1, 3), (1000, 4.0, 1.7, 0)])
def test_long_ranges_are_more_exact_than_without(
    size: int, unsmoothed: float, smooth: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels help by themselves, and still help once counts are smoothed, which makes long ranges more exact without them."""
    columns, table = ranged(size, 5000)
    marginals = [(0,), (1, 2), (1, 3), (2, 3)] if rounds else [(0,)]

    def squared_error(ranges: tuple[int, ...], seed: int) -> float:
        """Return the mean squared error of all counts up to a value."""
        strategy = Adaptive(
            columns, Workload.of(marginals, ranges=ranges), rounds=rounds or None, pure=False, model_mb=8.0
        )
        curator = Priced(table, columns, noise=6.0, seed=seed)
        finished(curator, strategy)
        up_to = np.cumsum(strategy.model.marginal((0,))) - np.cumsum(curator.true((0,)))
        return float(np.mean(up_to**2))

    def with_and_without() -> list[float]:
        return [sum(squared_error(ranges, seed) for seed in range(4)) for ranges in ((0,), ())]

    smooth_with, smooth_without = with_and_without()
    monkeypatch.setattr(smoothing, "STANDS_OUT", 0.0)  # every difference is kept
    rough_with, rough_without = with_and_without()
    assert rough_without > unsmoothed**2 * rough_with
    assert smooth_without > smooth**2 * smooth_with
    assert smooth_without < rough_without
    assert smooth_with < 1.05 * rough_with


def test_no_round_is_spent_on_a_column_of_one_cell() -> None:
    columns = [Column("one", 1, ordered=True), *COLUMNS]
    workload = Workload.all_of(attributes=len(columns), order=2, target=0, ranges=[0])
    with_one, without = (
        Adaptive(it, work, rounds=None, pure=False, model_mb=8.0)
        for it, work in (
            (columns, Workload.all_of(attributes=len(columns), order=2)),
            (COLUMNS, Workload.all_of(attributes=len(COLUMNS), order=2)),
        )
    )
    assert with_one.rounds == without.rounds
    assert (
        Adaptive(columns, workload, rounds=None, pure=False, model_mb=8.0).rounds == 0
    )  # nothing is left to relate to
