"""Where there is little to learn from, or nothing: the adaptive strategy ends with finite numbers, within its size, and having paid once."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpcore import synthesize
from dpcore.ledger import Ledger, Operation
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Workload
from dpcore.models import FactoredModel
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.steward.verify import verify_ledger
from dpcore.strategies import Adaptive, Column
from tests.conftest import Workspace
from tests.dpcore.runs.test_synthesis import check_the_books, check_the_release, transcript_of
from tests.dpcore.runs.test_synthesis_adaptive import COLUMNS as NAMED
from tests.dpcore.runs.test_synthesis_adaptive import check_a_replay, manifest_of, open_account, people, prepare
from tests.dpcore.strategies.test_adaptive import COLUMNS, ROWS, TRIPLES, Recording, Table, planted

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
    seed: int = 2,
) -> Adaptive:
    """Run as the drivers do, and check what holds for every run."""
    workload = workload or Workload.all_of(attributes=len(columns), order=3)
    strategy = Adaptive(columns, workload, rounds=rounds, pure=False, model_mb=model_mb)
    curator = Recording(table, columns, noise=noise, seed=seed)
    strategy.begin(curator)
    for number in range(1, strategy.rounds + 1):
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


@pytest.mark.parametrize("noise", [2.0 * ROWS, 1e6, 1e12])
def test_noise_that_swamps_every_pair_leaves_the_columns(noise: float) -> None:
    finished(planted(), COLUMNS, noise=noise, workload=TRIPLES, rounds=5)


@pytest.mark.parametrize("noise", [1e-6, 0.5, 5.0, 500.0])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_hardly_any_row_is_enough(rows: int, noise: float) -> None:
    finished([np.zeros(rows, dtype=np.int64)] * 4, FOUR, noise=noise, rounds=6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("rows", "noise"), [(500, 1.0), (500, 3.0), (5000, 100.0), (50_000, 100.0)])
def test_all_rows_in_one_cell_make_a_finite_model(rows: int, noise: float, seed: int) -> None:
    finished([np.full(rows, 3)] * 4, FOUR, noise=noise, seed=seed)


@pytest.mark.parametrize("low", [-700.0, -712.0, -720.0, -760.0, -1e5])
def test_neighbours_that_contradict_each_other_make_a_finite_model(low: float) -> None:
    model = FactoredModel(Resolutions((2, 2, 3)), total=100.0)
    sure, impossible = np.array([[0.0], [-2 * low]]), np.array([[0.0, low]])
    model.assign({(0, 1): impossible + np.zeros((2, 2)), (1, 2): sure + np.array([[0.0, 0.0, -50.0]])})
    for axes in [(0, 1), (1, 2), (0, 2)]:
        assert model.marginal(axes).sum() == pytest.approx(100.0)
    assert model.marginal((1,)) == pytest.approx([0.0, 100.0])


@pytest.mark.parametrize(("noise", "cells"), [(20.0, 6553), (40.0, 2621)])
def test_a_model_that_has_nothing_to_learn_stays_within_its_size(noise: float, cells: int) -> None:
    rng = np.random.default_rng(0)
    columns = [Column(f"c{number}", 8, ordered=False) for number in range(10)]
    table = [rng.integers(0, 8, 5000) for _ in columns]
    pairs = Workload.all_of(attributes=10, order=2)
    finished(table, columns, noise=noise, workload=pairs, rounds=45, model_mb=cells * BYTES_PER_CELL / 2**20)


def test_a_model_that_the_columns_nearly_fill_is_no_obstacle() -> None:
    cells = sum(column.size for column in COLUMNS) + 1
    finished(planted(), COLUMNS, noise=5.0, rounds=4, model_mb=cells * BYTES_PER_CELL / 2**20)


def all_pairs(workspace: Workspace) -> None:
    text = workspace.spec.read_text(encoding="utf-8")
    workspace.spec.write_text(text[: text.index("workload:")] + "workload: {marginals: 2}\n", encoding="utf-8")


def check_a_run(workspace: Workspace) -> None:
    open_account()
    outcome = synthesize(workspace.spec)
    check_the_books(outcome.run, crashes=0)
    check_the_release(outcome)
    assert verify_ledger().manifests == 1
    assert pq.read_table(Path(outcome.release) / "data").num_rows == outcome.rows


@pytest.mark.parametrize(
    ("epsilon", "table"),
    [
        (0.01, people(1200)),
        (5.0, people(0)),
        (5.0, people(1200).head(3)),
        (20.0, people(1200).iloc[[0] * 600]),
    ],
    ids=["only columns pay", "empty", "three rows", "all alike"],
)
def test_a_run_with_little_to_learn_from_ends_with_a_release(
    workspace: Workspace, epsilon: float, table: pd.DataFrame
) -> None:
    prepare(workspace, ("epsilon: 5.0", f"epsilon: {epsilon}"), table=table)
    check_a_run(workspace)


@pytest.mark.parametrize("sex", [None, "F"])
def test_a_run_of_many_rounds_of_which_most_tell_nothing_ends_with_a_release(
    workspace: Workspace, sex: str | None
) -> None:
    prepare(workspace, table=people(1200).assign(sex=sex))
    all_pairs(workspace)
    check_a_run(workspace)


def test_a_settled_run_that_planned_its_own_rounds_is_replayed_without_the_table(
    workspace: Workspace, tree_of: Callable[[Path], dict[str, bytes]]
) -> None:
    prepare(workspace)
    check_a_replay(workspace, tree_of)


def test_a_run_that_was_interrupted_late_has_as_many_rounds_as_one_that_was_not(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(workspace, ("epsilon: 5.0", "epsilon: 0.7"))
    all_pairs(workspace)
    open_account()
    rounds = len(manifest_of(synthesize(workspace.spec, run_id="whole").release)["rounds"])
    commit, left = Ledger.commit, NAMED + 2 * (rounds - 2)

    def some(ledger: Ledger, operation: Operation, output: bytes) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        commit(ledger, operation, output)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", some)
        with pytest.raises(KeyboardInterrupt):
            synthesize(workspace.spec, run_id="interrupted")
    before = transcript_of("interrupted")
    outcome = synthesize(workspace.spec, run_id="interrupted", resume=True)
    assert transcript_of("interrupted")[: len(before)] == before
    check_the_release(outcome)  # where nothing is left out that was paid for
    assert abs(len(manifest_of(outcome.release)["rounds"]) - rounds) <= 1  # which may follow from noisy counts
