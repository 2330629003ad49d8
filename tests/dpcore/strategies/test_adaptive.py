"""The adaptive strategy: what is offered and at which resolution, what it costs, how large the model gets, and that it learns."""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpcore.curator.curator import Offer
from dpcore.errors import SpecError
from dpcore.marginals.measurements import Counts, Measurement, Selection
from dpcore.marginals.resolutions import Groups, Resolutions
from dpcore.marginals.workload import Axes, Workload
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.strategies import Adaptive, Column
from dpcore.strategies.adaptive import TOLERATED
from dpcore.strategies.by_rounds import LEAST_FIRST, MOST_FIRST, MOST_ROUNDS, MOST_ROUNDS_PURE
from dpcore.strategies.worthwhile import ROOM

COLUMNS = (
    Column("a", 4, ordered=False),
    Column("copy", 4, ordered=False),
    Column("x", 3, ordered=False),
    Column("y", 3, ordered=False),
    Column("sum", 3, ordered=False),
    Column("age", 60, ordered=True),
    Column("old", 2, ordered=False),
    Column("coin", 2, ordered=False),
)
AGE = 5
TRIPLES = Workload.all_of(attributes=len(COLUMNS), order=3)
PAIRS = Workload.all_of(attributes=len(COLUMNS), order=2)
ROWS = 4000
NOISE = 8.0 * ROOM  # small beside the planted structure; a triple with the age in full is not worth it

Table = Sequence[np.ndarray]


def planted() -> Table:
    """Make columns of which one nearly copies another, one is nearly the sum of two that are independent, and two go with an age."""
    rng = np.random.default_rng(1)
    mostly = rng.random(ROWS) < 0.9
    a, x, y = rng.integers(0, 4, ROWS), rng.integers(0, 3, ROWS), rng.integers(0, 3, ROWS)
    age = np.clip(rng.normal(12 + 12 * a, 5), 0, 59).astype(np.int64)
    copy = np.where(mostly, a, rng.integers(0, 4, ROWS))
    total = np.where(mostly, (x + y) % 3, rng.integers(0, 3, ROWS))
    old = (age > 30) ^ (rng.random(ROWS) < 0.05)
    return a, copy, x, y, total, age, old.astype(np.int64), rng.integers(0, 2, ROWS)


def shuffled() -> Table:
    """Return the same columns, independent of each other."""
    rng = np.random.default_rng(5)
    return tuple(rng.permutation(column) for column in planted())


class Recording:
    """Stands for a curator: seeded noise, the worst marginal selected, and account kept of every share and offer."""

    def __init__(self, table: Table, columns: Sequence[Column], *, noise: float, seed: int = 2) -> None:
        self.codes, self.sizes = list(table), [column.size for column in columns]
        self.noise = noise
        self.left = Fraction(1)
        self.spent: list[Fraction] = []
        self.offers: list[list[Axes]] = []
        self.weights: list[list[int]] = []
        self.tolerated: list[list[int]] = []
        self.selected: list[Axes] = []
        self._rng = np.random.default_rng(seed)

    def true(self, axes: Axes) -> Counts:
        shape = tuple(self.sizes[axis] for axis in axes)
        counts = np.zeros(shape, dtype=np.int64)
        np.add.at(counts, tuple(self.codes[axis] for axis in axes), 1)
        return counts

    def coarsen(self, column: int, groups: Groups) -> None:
        self.codes.append(groups[self.codes[column]])
        self.sizes.append(int(groups.max()) + 1)

    def expected_noise(self, share: Fraction) -> float:
        assert 0 < share <= 1
        return self.noise

    def measure_marginal(self, step: str, axes: Axes, *, share: Fraction) -> Measurement:
        self._take(share)
        true = self.true(axes)
        values = np.rint(true + self._rng.normal(0, self.noise, true.shape)).astype(np.int64)
        return Measurement(step=step, axes=axes, cell=None, values=values, noise=self.noise)

    def select_marginal(self, step: str, expected: Callable[[], list[Offer]], *, share: Fraction) -> Selection:
        self._take(share)
        offered = expected()
        for offer in offered:
            assert offer.expected.shape == tuple(self.sizes[axis] for axis in offer.axes)
            assert offer.expected.dtype == np.int64
        self.offers.append([offer.axes for offer in offered])
        self.weights.append([offer.weight for offer in offered])
        self.tolerated.append([offer.tolerated for offer in offered])
        errors = [
            offer.weight * (np.abs(self.true(offer.axes) - offer.expected).sum() - offer.tolerated) for offer in offered
        ]
        self.selected.append(offered[int(np.argmax(errors))].axes)
        return Selection(axes=self.selected[-1])

    def _take(self, share: Fraction) -> None:
        assert 0 < share <= 1
        self.spent.append(self.left * share)
        self.left -= self.left * share


Run = tuple[Adaptive, Recording]


def run(
    *,
    noise: float,
    table: Table | None = None,
    columns: Sequence[Column] = COLUMNS,
    workload: Workload = TRIPLES,
    rounds: int | None = None,
    pure: bool = False,
    model_mb: float = 4.0,
) -> Run:
    strategy = Adaptive(columns, workload, rounds=rounds, pure=pure, model_mb=model_mb)
    curator = Recording(planted() if table is None else table, columns, noise=noise)
    strategy.begin(curator)
    number = 0
    while number < strategy.rounds:
        number += 1
        strategy.update(number, strategy.measure(curator, number, strategy.select(curator, number)))
        assert strategy.model.cells <= model_mb * 2**20 / BYTES_PER_CELL
    strategy.conclude()
    assert strategy.model.cells <= model_mb * 2**20 / BYTES_PER_CELL
    return strategy, curator


@pytest.fixture(scope="module")
def learned() -> Run:
    """A run of which most tests ask something."""
    return run(noise=NOISE, rounds=24)


def column_set(resolutions: Resolutions, axes: Axes) -> Axes:
    return tuple(sorted(resolutions.column(axis) for axis in axes))


def lies_within(resolutions: Resolutions, part: Axes, whole: Axes) -> bool:
    """Tell whether each axis of the part is a version, as coarse or coarser, of one of the whole's."""
    finer = {resolutions.column(axis): axis for axis in whole}
    return all(finer.get(resolutions.column(axis), len(resolutions.shape)) <= axis for axis in part)


def error(curator: Recording, marginal: Callable[[Axes], np.ndarray], sets: Sequence[Axes]) -> float:
    return float(np.mean([np.abs(marginal(axes) - curator.true(axes)).sum() / ROWS for axes in sets]))


def independent(curator: Recording) -> Callable[[Axes], np.ndarray]:
    """Return the best that can be said without any interaction: the product of the true one-way marginals."""

    def product(axes: Axes) -> np.ndarray:
        counts = np.array(float(ROWS))
        for axis in axes:
            counts = np.multiply.outer(counts, curator.true((axis,)) / ROWS)
        return counts

    return product


@pytest.mark.parametrize("pure", [False, True])
def test_all_shares_together_are_the_whole_budget(pure: bool) -> None:
    strategy, curator = run(noise=20.0, rounds=5, pure=pure, workload=PAIRS)
    assert curator.left == 0
    assert sum(curator.spent) == 1
    assert len(curator.spent) == strategy.answers == len(COLUMNS) + 2 * 5
    rounds = curator.spent[len(COLUMNS) :]
    assert len(set(rounds[0::2])) == len(set(rounds[1::2])) == 1
    assert rounds[0] / (rounds[0] + rounds[1]) == Adaptive.SELECTING
    first = sum(curator.spent[: len(COLUMNS)])
    assert LEAST_FIRST - 1e-5 <= first <= MOST_FIRST + 1e-5


def test_a_larger_column_gets_more_but_not_in_proportion_and_one_that_is_asked_about_more_gets_more() -> None:
    columns = [Column(name, size, ordered=False) for name, size in (("a", 4), ("b", 8), ("c", 4), ("d", 4))]
    table = [np.arange(ROWS) % column.size for column in columns]
    workload = Workload.of([(0, 1), (0, 2), (1, 2), (2, 3)])
    _, curator = run(noise=5.0, table=table, columns=columns, workload=workload)
    a, b, c, d = curator.spent[:4]
    assert a < b < 2 * a
    assert d < a < c < 3 * d


def test_rounds_follow_from_workload_and_currency() -> None:
    wide = Workload.all_of(attributes=12, order=3)
    columns = [Column(name, 2, ordered=False) for name in "abcdefghijkl"]
    assert Adaptive(columns, wide, rounds=None, pure=False, model_mb=8.0).rounds == MOST_ROUNDS
    assert Adaptive(columns, wide, rounds=None, pure=True, model_mb=8.0).rounds == MOST_ROUNDS_PURE
    assert Adaptive(columns, wide, rounds=7, pure=True, model_mb=8.0).rounds == 7
    assert (
        Adaptive(columns[:4], Workload.all_of(attributes=4, order=3), rounds=None, pure=False, model_mb=8.0).rounds
        == 10
    )


def test_what_is_offered_is_worth_its_noise_and_as_fine_as_that_allows(learned: Run) -> None:
    strategy, curator = learned
    resolutions = strategy.resolutions
    worth = ROOM * strategy.total / (np.sqrt(2 / np.pi) * curator.noise)
    offered = {axes for offers in curator.offers for axes in offers}
    assert all(resolutions.cells(axes) <= 1.05 * worth for axes in offered)  # the noisy total moves a little
    coarser = [axes for axes in offered if max(axes) >= len(COLUMNS)]
    assert coarser
    for axes in coarser:
        full = column_set(resolutions, axes)
        assert resolutions.cells(full) > 0.95 * worth  # there is room for the model: noise alone asks for fewer cells
    assert {len(axes) for axes in curator.offers[0]} == {3}


def test_a_share_of_the_noise_of_its_measurement_is_no_reason_to_select_an_offer(learned: Run) -> None:
    strategy, curator = learned
    for offers, tolerated in zip(curator.offers, curator.tolerated, strict=True):
        cells = np.array([strategy.resolutions.cells(axes) for axes in offers])
        assert tolerated == (TOLERATED * np.sqrt(2 / np.pi) * NOISE * cells).astype(int).tolist()


def test_nothing_is_offered_that_lies_within_another_offer(learned: Run) -> None:
    strategy, curator = learned
    for offers in curator.offers:
        assert len(set(offers)) == len(offers)
        for one, other in combinations(offers, 2):
            assert not lies_within(strategy.resolutions, one, other)
            assert not lies_within(strategy.resolutions, other, one)


def test_what_was_measured_is_offered_again(learned: Run) -> None:
    strategy, curator = learned
    measured: set[Axes] = set()
    again = 0
    for offers, selected in zip(curator.offers, curator.selected, strict=True):
        again += not measured.isdisjoint(column_set(strategy.resolutions, axes) for axes in offers)
        measured.add(column_set(strategy.resolutions, selected))
    assert again > 10


@pytest.mark.parametrize(("table", "rounds"), [(planted()[:5], 20), (planted()[:5], 10), (shuffled()[:5], None)])
def test_with_a_round_for_every_pair_every_pair_is_measured_whatever_the_others_tell(
    table: Table, rounds: int | None
) -> None:
    workload = Workload.all_of(attributes=5, order=2)
    strategy, curator = run(noise=5.0, table=table, columns=COLUMNS[:5], workload=workload, rounds=rounds)
    sets = [column_set(strategy.resolutions, axes) for axes in curator.selected]
    assert set(sets) == set(workload.marginals)


def test_if_measurements_tell_nothing_fewer_rounds_follow_unless_the_spec_wants_them() -> None:
    workload = Workload.all_of(attributes=5, order=3)
    pairs = set(Workload.all_of(attributes=5, order=2).marginals)

    def learn(table: Table, rounds: int | None = None) -> Run:
        return run(noise=5.0, table=table[:5], columns=COLUMNS[:5], workload=workload, rounds=rounds)

    strategy, curator = learn(shuffled())
    wanted, _ = learn(shuffled(), rounds=20)
    assert strategy.rounds < wanted.rounds == 20
    connected = (column_set(strategy.resolutions, axes) for axes in curator.selected)
    assert pairs == {pair for columns in connected for pair in combinations(columns, 2)}


def test_a_small_model_stays_small_and_is_offered_coarser_or_smaller_sets(learned: Run) -> None:
    most = 2000
    strategy, curator = run(noise=NOISE, rounds=24, model_mb=most * BYTES_PER_CELL / 2**20)
    assert strategy.model.cells <= most < learned[0].model.cells  # `run` looks after every round
    offered = [strategy.resolutions.cells(axes) for offers in curator.offers for axes in offers]
    assert max(offered) < most
    assert error(curator, strategy.model.marginal, TRIPLES.marginals) < 0.6 * error(
        curator, independent(curator), TRIPLES.marginals
    )


def test_it_learns_what_one_way_marginals_do_not_tell(learned: Run) -> None:
    strategy, curator = learned
    known = independent(curator)
    assert error(curator, strategy.model.marginal, TRIPLES.marginals) < 0.4 * error(curator, known, TRIPLES.marginals)
    for planted_set in [(0, 1), (2, 3, 4), (0, AGE), (AGE, 6)]:
        assert error(curator, strategy.model.marginal, [planted_set]) < 0.4 * error(curator, known, [planted_set])


def test_less_noise_makes_a_better_model(learned: Run) -> None:
    noisy, curator = run(noise=10 * NOISE, rounds=24)
    better = error(curator, learned[0].model.marginal, TRIPLES.marginals)
    assert better < 0.8 * error(curator, noisy.model.marginal, TRIPLES.marginals)


def test_rows_are_as_close_to_the_table_as_the_model_is(learned: Run) -> None:
    strategy, curator = learned
    rows = strategy.model.rows(ROWS, rng=np.random.default_rng(3))
    assert len(rows) == len(COLUMNS)
    made = Recording(rows, COLUMNS, noise=1.0)
    assert error(curator, made.true, PAIRS.marginals) < 1.5 * error(curator, strategy.model.marginal, PAIRS.marginals)


def test_a_workload_of_single_columns_and_a_single_column_have_no_rounds() -> None:
    strategy, curator = run(noise=5.0, workload=Workload.all_of(attributes=len(COLUMNS), order=1), rounds=9)
    assert (strategy.rounds, strategy.answers, len(curator.spent)) == (0, len(COLUMNS), len(COLUMNS))
    assert 0 <= curator.left < Fraction(1, 10**5)
    one = [Column("age", 60, ordered=True)]
    strategy, curator = run(noise=5.0, table=[planted()[AGE]], columns=one, workload=Workload.of([(0,)]))
    assert (strategy.rounds, strategy.answers, curator.spent) == (0, 1, [1])
    assert error(curator, strategy.model.marginal, [(0,)]) < 0.1


@pytest.mark.parametrize("noise", [1e-6, 5.0])
def test_columns_of_one_value_are_no_obstacle(noise: float) -> None:
    zeros = np.zeros(ROWS, dtype=np.int64)
    columns = [Column(name, 1, ordered=name == "c") for name in "abc"]
    strategy, curator = run(
        noise=noise, table=[zeros] * 3, columns=columns, workload=Workload.all_of(attributes=3, order=2)
    )
    assert curator.left == 0
    assert [codes.tolist() for codes in strategy.model.rows(3, rng=np.random.default_rng(1))] == [[0, 0, 0]] * 3
    mixed = [*columns[:1], *COLUMNS[:2]]
    strategy, curator = run(
        noise=noise, table=[zeros, *planted()[:2]], columns=mixed, workload=Workload.all_of(attributes=3, order=3)
    )
    assert strategy.model.marginal((0, 1)).shape == (1, 4)
    assert error(curator, strategy.model.marginal, [(0, 1, 2)]) < 0.1


@pytest.mark.parametrize(("size", "allowed"), [(600_000, 4.0), (3, 1e-9), (5_000_000, 30.0)])
def test_columns_too_large_for_the_model_are_refused_with_what_to_write(size: int, allowed: float) -> None:
    columns = [Column("large", size, ordered=True), Column("small", 2, ordered=False)]
    workload = Workload.all_of(attributes=2, order=2)
    with pytest.raises(SpecError, match="max_model_mb") as refused:
        Adaptive(columns, workload, rounds=None, pure=False, model_mb=allowed)
    advice = re.search(r"`max_model_mb: ([\d.]+)` in `strategy`", str(refused.value))
    assert advice is not None
    Adaptive(columns, workload, rounds=None, pure=False, model_mb=float(advice[1]))
