"""A release of many rows: drawn and written chunk by chunk, the same each time, in memory that does not depend on their number."""

import tracemalloc
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpcore import synthesize
from dpcore.ledger import open_ledger
from dpcore.marginals.resolutions import Resolutions
from dpcore.models import DenseModel, FactoredModel, Model
from dpcore.models.factored.sampling import CHUNK_ROWS as FACTORED_CHUNK
from dpcore.models.systematic import CHUNK_ROWS
from dpcore.release import Codes, Draft, Published, SyntheticRows, publish, publishing
from tests.conftest import Workspace

SHAPE = (4, 3, 5)


def dense() -> DenseModel:
    model = DenseModel(SHAPE, total=1.0)
    model.assign({(0, 1): np.log(np.random.default_rng(1).gamma(1.0, size=SHAPE[:2]))})
    return model


def factored() -> FactoredModel:
    model = FactoredModel(Resolutions(SHAPE), total=1.0)
    rng = np.random.default_rng(1)
    model.assign({axes: rng.normal(size=[SHAPE[axis] for axis in axes]) for axes in ((0, 1), (1, 2))})
    return model


MODELS = pytest.mark.parametrize(
    ("model", "chunk"), [(dense(), CHUNK_ROWS), (factored(), FACTORED_CHUNK)], ids=["dense", "factored"]
)


@MODELS
def test_chunks_are_the_rows_that_the_model_draws_as_a_whole(model: Model, chunk: int) -> None:
    rows = chunk + chunk // 8
    whole = model.rows(rows, rng=np.random.default_rng(3))
    chunks = list(model.row_chunks(rows, rng=np.random.default_rng(3)))
    assert len(chunks) == 2
    assert max(len(part[0]) for part in chunks) <= chunk
    for column, codes in enumerate(whole):
        np.testing.assert_array_equal(np.concatenate([part[column] for part in chunks]), codes)
    shares = model.marginal((0,)) / model.total
    for part in (*chunks, whole):  # a chunk is as good a picture of the model as all rows are
        counts = np.bincount(part[0], minlength=SHAPE[0])
        assert np.abs(counts / len(part[0]) - shares).max() < 1e-4


def peak(draw: Callable[[], Iterable[object]]) -> int:
    """Return how much memory drawing takes: the least of three, since other threads of this process may take some meanwhile."""
    return min(_peak(draw) for _ in range(3))


def _peak(draw: Callable[[], Iterable[object]]) -> int:
    tracemalloc.start()
    try:
        for _ in draw():
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["dense", "factored"])
def test_the_memory_of_drawing_does_not_grow_with_the_rows_and_that_of_all_at_once_does(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.models.factored.sampling.CHUNK_ROWS", 1 << 12)
    monkeypatch.setattr("dpcore.models.systematic.CHUNK_ROWS", 1 << 12)
    model = dense() if kind == "dense" else factored()

    def growth(draw: Callable[[int], Iterable[object]]) -> float:
        draw(100)  # what is computed once only
        return peak(lambda: draw(1 << 18)) / peak(lambda: draw(1 << 13))

    assert growth(lambda rows: model.row_chunks(rows, rng=np.random.default_rng(1))) < 1.1
    assert growth(lambda rows: [model.rows(rows, rng=np.random.default_rng(1))]) > 1.5  # the planted variant


@pytest.mark.usefixtures("rough")
def test_a_large_release_has_every_row_and_is_written_again_row_for_row(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.models.systematic.CHUNK_ROWS", 1 << 12)
    monkeypatch.setattr(publishing, "ROWS_PER_GROUP", 1 << 10)
    rows = (1 << 12) + 1001
    workspace.open_account()
    workspace.write_spec(
        ("strategy: {name: mwem, rounds: 4}", f"strategy: {{name: mwem, rounds: 1}}\noutput: {{rows: {rows}}}")
    )
    outcome = synthesize(workspace.spec, run_id="large")
    data = Path(outcome.release, "data", "part-00000.parquet")
    file = pq.ParquetFile(data)
    groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    assert sum(groups) == rows == outcome.rows
    assert max(groups) <= publishing.ROWS_PER_GROUP
    first = pq.read_table(data)
    for path in sorted(Path(outcome.release).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    Path(outcome.release).rmdir()
    again = synthesize(workspace.spec, run_id="large", resume=True)
    assert pq.read_table(Path(again.release, "data", "part-00000.parquet")).equals(first)


def test_publishing_holds_a_chunk_or_two_at_a_time(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.open_account()
    drafts: list[Draft] = []

    def keep(draft: Draft, **how: Any) -> Published:
        drafts.append(draft)
        return publish(draft, **how)

    monkeypatch.setattr("dpcore.runs.synthesis.publish", keep)
    synthesize(workspace.spec)
    alive: list[weakref.ref[np.ndarray]] = []  # type: ignore[type-arg]
    most = 0

    def chunks() -> Iterator[Codes]:
        nonlocal most
        for _ in range(10):
            codes = [np.zeros(100, dtype=np.int64) for _ in range(4)]
            alive.append(weakref.ref(codes[0]))
            most = max(most, sum(ref() is not None for ref in alive))
            yield codes
            del codes

    draft = replace(drafts[0], name="another", rows=SyntheticRows(1000, chunks=chunks))
    with open_ledger() as ledger:
        publish(draft, ledger=ledger, lease=None)
    assert most <= 2


def test_rows_are_drawn_only_where_they_are_written(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.open_account()
    synthesize(workspace.spec, run_id="r")

    def never(*_args: object, **_named: object) -> None:
        raise AssertionError

    monkeypatch.setattr(DenseModel, "row_chunks", never)
    synthesize(workspace.spec, run_id="r", resume=True)  # whose release is there
