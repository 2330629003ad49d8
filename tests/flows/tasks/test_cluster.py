"""The flow on a Dask cluster that prefect-dask holds: the same steps, the same silence."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from distributed import LocalCluster

from dpcore.errors import SourceError
from dpcore.ledger import open_ledger
from flows.synthesize import synthesize
from tests.conftest import Workspace, visits
from tests.faults.flows.canary_places import STEPS
from tests.flows.conftest import DATABASE, Search

pytestmark = pytest.mark.prefect

MARKER = "Zq7_canary%"
WORKLOAD = "workload: {marginals: 2}"


@pytest.fixture
def scheduler() -> Iterator[str]:
    """The address of a cluster that was there before and stays."""
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address=None,
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    ) as cluster:
        yield cluster.scheduler_address
        assert len(cluster.scheduler.workers) == 1


def test_the_flow_runs_on_a_cluster_of_its_own_which_is_gone_afterwards(workspace: Workspace, stored: Search) -> None:
    workspace.open_account()
    workspace.write_spec((WORKLOAD, f"{WORKLOAD}\nengine: {{name: dask, workers: 2}}"))
    before = len(psutil.Process().children(recursive=True))
    outcome = synthesize(str(workspace.spec))
    assert Path(outcome["release"], "manifest.json").exists()
    assert (
        len(psutil.Process().children(recursive=True)) <= before + 1
    )  # Python's own, which watches over shared memory
    assert not list(workspace.folder.rglob("cluster-*"))
    assert "log.message" in stored("the Dask cluster has 2 workers")
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        query = "SELECT name FROM task_run WHERE flow_run_id = ? AND state_type = 'COMPLETED'"
        names = {name.rpartition("/")[2] for (name,) in database.execute(query, (outcome["run"],))}
    assert names - {"last"} == {step.replace("_", "-") for step in STEPS}


def test_what_breaks_on_a_worker_reaches_prefect_as_our_sentence(
    workspace: Workspace, stored: Search, scheduler: str
) -> None:
    table = visits(3000, seed=1)
    table["city"] = [f"{MARKER}-{row}" for row in table.index]
    file = workspace.folder / "visits.parquet"
    table.to_parquet(file, compression=None)
    content = bytearray(file.read_bytes())
    content[: len(content) // 2] = bytes(len(content) // 2)  # its end, which tells the columns, is whole
    file.write_bytes(content)
    workspace.open_account()
    workspace.write_spec(
        ("visits.csv", "visits.parquet"), (WORKLOAD, f'{WORKLOAD}\nengine: {{name: dask, scheduler: "{scheduler}"}}')
    )
    with pytest.raises(SourceError, match=r"^'visits\.parquet' is not a complete Parquet file"):
        synthesize(str(workspace.spec))
    assert stored(MARKER) == []
    assert "task_run_state.message" in stored("is not a complete Parquet file")
    with open_ledger() as ledger:
        (run,) = ledger.runs("visits")
        assert 0 < ledger.balance("visits").reserved == run.reserved  # kept: a row may have decided this


def test_a_cluster_that_was_there_before_makes_a_release_and_stays(workspace: Workspace, scheduler: str) -> None:
    workspace.open_account()
    workspace.write_spec((WORKLOAD, f'{WORKLOAD}\nengine: {{name: dask, scheduler: "{scheduler}"}}'))
    assert Path(synthesize(str(workspace.spec))["release"], "manifest.json").exists()
