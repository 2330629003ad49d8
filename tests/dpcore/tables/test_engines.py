"""Where a table is read: a release through a cluster, and what is refused before anything is read or spent."""

from collections.abc import Iterator
from pathlib import Path

import dask
import psutil
import pytest

from dpcore import synthesize
from dpcore.errors import SourceError, UsageError
from dpcore.ledger import open_ledger
from dpcore.tables.cluster import connecting
from tests.conftest import Workspace, visits

ON_CLUSTER = ("workload: {marginals: 2}", "workload: {marginals: 2}\nengine: {name: dask, workers: 1}")
NOBODY_THERE = (
    "workload: {marginals: 2}",
    'workload: {marginals: 2}\nengine: {name: dask, scheduler: "tcp://127.0.0.1:9"}',
)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(connecting.CONFIG, "distributed.comm.timeouts.connect", "200ms")
    with dask.config.set({"distributed.comm.timeouts.connect": "200ms"}):
        yield


def test_a_release_is_made_on_a_cluster_that_is_gone_afterwards(workspace: Workspace) -> None:
    workspace.open_account()
    workspace.write_spec(ON_CLUSTER)
    before = len(psutil.Process().children(recursive=True))
    outcome = synthesize(workspace.spec)
    assert 0.999 < outcome.epsilon <= 1.0
    assert 0.998 < outcome.spent / outcome.reserved <= 1.0
    assert (Path(outcome.release) / "manifest.json").exists()
    assert (
        len(psutil.Process().children(recursive=True)) <= before + 1
    )  # Python's own, which watches over shared memory
    assert [path.name for path in Path(".dpflow/private").iterdir() if path.is_dir()] == ["heads"]


def test_a_cluster_that_does_not_answer_gives_the_reservation_back(workspace: Workspace, impatient: None) -> None:
    workspace.open_account()
    workspace.write_spec(NOBODY_THERE)
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:9 cannot be reached"):
        synthesize(workspace.spec)
    with open_ledger() as ledger:
        balance = ledger.balance("visits")
    assert (balance.spent, balance.reserved) == (0, 0)


def test_without_dask_the_extra_is_named_before_anything_is_reserved(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.open_account()
    workspace.write_spec(ON_CLUSTER)
    monkeypatch.setattr(connecting, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[dask\]'` in the folder of dpflow"):
        synthesize(workspace.spec)
    with open_ledger() as ledger:
        assert ledger.runs("visits") == ()


def test_a_table_from_python_stays_here(workspace: Workspace) -> None:
    workspace.open_account()
    workspace.write_spec(ON_CLUSTER)
    with pytest.raises(UsageError, match="remove `engine`"):
        synthesize(workspace.spec, table=visits(10, seed=1))
