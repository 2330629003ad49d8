"""Where there is little to learn from, or nothing: the adaptive strategy ends with finite numbers, within its size, and having paid once."""

from collections.abc import Sequence

import numpy as np
import pytest

from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Workload
from dpcore.models import FactoredModel
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.strategies import Adaptive, Column
from tests.dpcore.strategies.test_adaptive import COLUMNS, ROWS, TRIPLES, Recording, Table, planted

pytestmark = pytest.mark.usefixtures("rough_models")

FOUR = (
    Column("a", 5, ordered=False),
    Column("b", 60, ordered=True),
    Column("c", 7, ordered=True),
    Column("d", 5, ordered=False),
)


def finished(
    table: Table,
    columns: Sequence[Column],
    *,
    noise: float,
    workload: Workload | None = None,
    rounds: int | None = None,
    model_mb: float = 4.0,
) -> Adaptive:
    """Run as the drivers do, and check what holds for every run."""
    workload = workload or Workload.all_of(attributes=len(columns), order=3)
    strategy = Adaptive(columns, workload, rounds=rounds, pure=False, model_mb=model_mb)
    curator = Recording(table, columns, noise=noise)
    strategy.begin(curator)
    number = 0
    while number < strategy.rounds:
        number += 1
        if strategy.finished:
            break
        strategy.update(number, strategy.measure(curator, number, strategy.select(curator, number)))
        assert strategy.model.cells <= model_mb * 2**20 / BYTES_PER_CELL
    strategy.conclude()
    assert strategy.model.cells <= model_mb * 2**20 / BYTES_PER_CELL
    for axes in workload.marginals:
        marginal = strategy.model.marginal(axes)
        assert np.isfinite(marginal).all()
        assert (marginal >= 0).all()
        assert marginal.sum() == pytest.approx(strategy.total)
    for codes, column in zip(strategy.model.rows(50, rng=np.random.default_rng(1)), columns, strict=True):
        assert ((codes >= 0) & (codes < column.size)).all()
    return strategy


@pytest.mark.parametrize("noise", [2.0 * ROWS, 1e12])
def test_noise_that_swamps_every_pair_leaves_the_columns(noise: float) -> None:
    finished(planted(), COLUMNS, noise=noise, workload=TRIPLES, rounds=5)


@pytest.mark.parametrize(("rows", "noise"), [(0, 1e-6), (0, 5.0), (1, 0.5), (2, 500.0)])
def test_hardly_any_row_is_enough(rows: int, noise: float) -> None:
    finished([np.zeros(rows, dtype=np.int64)] * 4, FOUR, noise=noise, rounds=6)


@pytest.mark.parametrize(("rows", "noise"), [(500, 1.0), (500, 3.0), (50_000, 100.0)])
def test_all_rows_in_one_cell_make_a_finite_model(rows: int, noise: float) -> None:
    finished([np.full(rows, 3)] * 4, FOUR, noise=noise)


@pytest.mark.parametrize("low", [-700.0, -720.0, -1e5])
def test_neighbours_that_contradict_each_other_make_a_finite_model(low: float) -> None:
    model = FactoredModel(Resolutions((2, 2, 3)), total=100.0)
    sure, impossible = np.array([[0.0], [-2 * low]]), np.array([[0.0, low]])
    model.assign({(0, 1): impossible + np.zeros((2, 2)), (1, 2): sure + np.array([[0.0, 0.0, -50.0]])})
    for axes in [(0, 1), (1, 2), (0, 2)]:
        assert model.marginal(axes).sum() == pytest.approx(100.0)
    assert model.marginal((1,)) == pytest.approx([0.0, 100.0])


def test_a_model_that_has_nothing_to_learn_stays_within_its_size() -> None:
    rng = np.random.default_rng(0)
    columns = [Column(f"c{number}", 8, ordered=False) for number in range(10)]
    table = [rng.integers(0, 8, 5000) for _ in columns]
    pairs = Workload.all_of(attributes=10, order=2)
    finished(table, columns, noise=40.0, workload=pairs, rounds=45, model_mb=2621 * BYTES_PER_CELL / 2**20)


def test_a_model_that_the_columns_nearly_fill_is_no_obstacle() -> None:
    cells = sum(column.size for column in COLUMNS) + 1
    finished(planted(), COLUMNS, noise=5.0, rounds=4, model_mb=cells * BYTES_PER_CELL / 2**20)
