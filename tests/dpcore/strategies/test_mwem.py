"""MWEM on whole marginals: what is offered, what it costs, and that it learns."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpcore.marginals.measurements import Measurement, Selection
from dpcore.marginals.workload import Workload
from dpcore.strategies import Column, Mwem
from dpcore.strategies.mwem import ORDERING

SHAPE = (3, 4, 2, 5)
COLUMNS = [Column(name, size, ordered=False) for name, size in zip("abcd", SHAPE, strict=True)]
TRIPLES = Workload.all_of(attributes=4, order=3)


def counts() -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.rint(rng.gamma(0.3, size=SHAPE) * 400).astype(np.int64)


class Recording:
    """Stands for a curator: seeded noise, the worst marginal selected, and account kept of every share and offer."""

    def __init__(self, table: np.ndarray, *, noise: float) -> None:
        self.table, self.noise = table, noise
        self.left = Fraction(1)
        self.spent: list[Fraction] = []
        self.offers: list[list[tuple[int, ...]]] = []
        self.weights: list[list[int]] = []
        self.selected: list[tuple[int, ...]] = []
        self._rng = np.random.default_rng(2)

    def _take(self, share: Fraction) -> None:
        self.spent.append(self.left * share)
        self.left -= self.left * share

    def _true(self, axes: tuple[int, ...]) -> np.ndarray:
        return self.table.sum(axis=tuple(axis for axis in range(self.table.ndim) if axis not in axes))

    def expected_noise(self, share: Fraction) -> float:
        assert 0 < share < 1
        return self.noise

    def measure_marginal(self, step: str, axes: tuple[int, ...], *, share: Fraction) -> Measurement:
        self._take(share)
        true = self._true(axes)
        values = np.rint(true + self._rng.normal(0, self.noise, true.shape)).astype(np.int64)
        return Measurement(step=step, axes=axes, cell=None, values=values, noise=self.noise)

    def select_marginal(self, step: str, expected, *, share: Fraction) -> Selection:
        self._take(share)
        offered = expected()
        self.offers.append([offer.axes for offer in offered])
        self.weights.append([offer.weight for offer in offered])
        errors = [offer.weight * np.abs(self._true(offer.axes) - offer.expected).sum() for offer in offered]
        self.selected.append(offered[int(np.argmax(errors))].axes)
        return Selection(axes=self.selected[-1])


def run(
    *, noise: float, rounds: int | None = None, pure: bool = False, workload: Workload = TRIPLES
) -> tuple[Mwem, Recording]:
    strategy, curator = Mwem(COLUMNS, workload, rounds=rounds, pure=pure), Recording(counts(), noise=noise)
    strategy.begin(curator)
    for number in range(1, strategy.rounds + 1):
        chosen = strategy.select(curator, number)
        strategy.update(number, strategy.measure(curator, number, chosen))
    strategy.conclude()
    return strategy, curator


@pytest.mark.parametrize("pure", [False, True])
def test_all_shares_together_are_the_whole_budget(pure: bool) -> None:
    _, curator = run(noise=2.0, rounds=7, pure=pure)
    assert curator.left == 0
    rounds = curator.spent[len(SHAPE) :]
    assert len(set(rounds[0::2])) == len(set(rounds[1::2])) == 1
    assert rounds[0] / (rounds[0] + rounds[1]) == Fraction(1, 20)
    assert Fraction(1, 20) <= sum(curator.spent[: len(SHAPE)]) <= Fraction(1, 2)


def test_a_larger_column_gets_more_but_not_in_proportion() -> None:
    _, curator = run(noise=2.0)
    three, four, two, five = curator.spent[: len(SHAPE)]
    assert two < three < four < five < two * Fraction(5, 2)


TRIPLES_AND_PAIRS = {axes for order in (2, 3) for axes in combinations(range(4), order)}


def test_triples_of_few_columns_are_offered_with_their_pairs_and_none_twice_before_all() -> None:
    _, curator = run(noise=1.0, rounds=12)
    assert set(curator.offers[0]) == TRIPLES_AND_PAIRS
    assert [len(offer) for offer in curator.offers] == [*range(10, 0, -1), 10, 9]


def test_noise_that_swamps_triples_leaves_pairs_and_more_noise_the_columns_alone() -> None:
    first = run(noise=1.0)[1].spent[: len(SHAPE)]
    alone = math.sqrt(first[0] / (1 - sum(first)))  # the noise of all the rest, for a column's noise of 1

    def worth(cells: int, rounds: int) -> float:
        return counts().sum() / (math.sqrt(2 / math.pi) * cells * alone * math.sqrt(rounds))

    _, curator = run(noise=0.99 * worth(20, 6))
    assert set(curator.offers[0]) == {axes for axes in TRIPLES_AND_PAIRS if len(axes) == 2}
    strategy, curator = run(noise=10 * worth(6, 1))
    assert strategy.rounds == 0
    assert curator.offers == []
    assert curator.left == 0  # the columns were measured again, for all that is left
    assert len(strategy.measurements) == 2 * len(SHAPE)


def test_rounds_that_a_spec_asks_for_are_made_even_if_noise_swamps_them() -> None:
    _, curator = run(noise=1e6, rounds=2)
    assert curator.offers == [[(0, 2)], [(0, 2)]]


def test_selections_that_decide_about_nothing_but_the_order_are_cheap() -> None:
    strategy, curator = run(noise=1.0)
    rounds = curator.spent[-2 * strategy.rounds :]
    assert {chosen / (chosen + bought) for chosen, bought in zip(rounds[0::2], rounds[1::2], strict=True)} == {ORDERING}


def test_weights_come_with_the_offers_and_a_heavier_part_of_a_larger_marginal_is_offered_itself() -> None:
    workload = Workload.of([(0, 1, 2), (1, 3), (0, 1)], weights=[1, 5, 9])
    _, curator = run(noise=1.0, rounds=5, workload=workload)
    offered = dict(zip(curator.offers[0], curator.weights[0], strict=True))
    assert offered == {(0, 1): 9, (1, 3): 5, (0, 1, 2): 1, (0, 2): 1, (1, 2): 1}


def test_pairs_with_the_target_come_first_but_only_up_to_half_of_the_rounds() -> None:
    target = Workload.all_of(attributes=4, order=3, target=2)
    pairs = [(0, 2), (1, 2), (2, 3)]
    _, curator = run(noise=1.0, rounds=8, workload=target)
    assert [set(offer) for offer in curator.offers[:3]] == [
        set(pairs) - set(curator.selected[:number]) for number in range(3)
    ]
    assert 3 in {len(axes) for axes in curator.offers[3]}
    _, curator = run(noise=1.0, rounds=4, workload=target)
    assert [max(map(len, offer)) for offer in curator.offers] == [2, 2, 3, 3]
    _, curator = run(noise=1.0, rounds=1, workload=target)
    assert max(map(len, curator.offers[0])) == 3


def test_pairs_with_the_target_that_noise_swamps_hold_nobody_up() -> None:
    workload = Workload.of([(1, 3), (0, 2)], target=1)
    _, fine = run(noise=1.0, rounds=4, workload=workload)
    alone = math.sqrt(fine.spent[0] / (1 - sum(fine.spent[: len(SHAPE)])))
    # with four rounds up to nine cells are worth it
    noise = counts().sum() / (math.sqrt(2 / math.pi) * 9 * alone * math.sqrt(4))
    _, curator = run(noise=noise, rounds=4, workload=workload)
    assert fine.offers[0] == [(1, 3)]
    assert curator.offers == [[(0, 2)]] * 4


def test_rounds_follow_from_workload_and_currency() -> None:
    wide = Workload.all_of(attributes=12, order=3)
    columns = [Column(name, 2, ordered=False) for name in "abcdefghijkl"]
    assert Mwem(COLUMNS, TRIPLES, rounds=None, pure=False).rounds == 10
    assert Mwem(columns, wide, rounds=None, pure=False).rounds == 60
    assert Mwem(columns, wide, rounds=None, pure=True).rounds == 20
    assert Mwem(columns, wide, rounds=7, pure=True).rounds == 7


def test_the_model_comes_close_to_the_table_and_closer_with_less_noise() -> None:
    def error(noise: float) -> float:
        strategy, _ = run(noise=noise)
        table, errors = counts(), []
        for axes in TRIPLES.marginals:
            true = table.sum(axis=tuple(axis for axis in range(4) if axis not in axes))
            errors.append(np.abs(strategy.model.marginal(axes) - true).sum() / table.sum())
        return float(np.mean(errors))

    assert error(1.0) < 0.03 < error(30.0) < 0.5


def test_a_workload_of_single_columns_and_a_single_column_work() -> None:
    strategy, curator = run(noise=2.0, workload=Workload.all_of(attributes=4, order=1))
    assert curator.offers == []
    assert curator.left == 0
    assert np.isfinite(strategy.model.weights).all()
    alone = Mwem(COLUMNS[:1], Workload.all_of(attributes=1, order=3), rounds=None, pure=False)
    assert (alone.rounds, alone.smallest_share) == (0, 1)
