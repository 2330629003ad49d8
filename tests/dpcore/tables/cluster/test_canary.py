"""No byte of a private value, and none of the run's secrets, is in what a cluster logs, stores, raises or leaves behind."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import visits

MARKER, PLANTED = "Zq7_canary%", "Yq7_planted%"
STEWARDS = {"visits.csv", "failures.log", "output.log"}


@dataclass(frozen=True)
class Flight:
    """What the program left: what it found while the cluster was up, what it wrote to its streams, and its folder."""

    found: dict[str, list[str]]
    said: int
    spilled: int
    streams: str
    folder: Path


@pytest.fixture(scope="module")
def flight(tmp_path_factory: pytest.TempPathFactory) -> Flight:
    folder = tmp_path_factory.mktemp("canary")
    table = visits(3000, seed=3).astype(object)
    for number, column in enumerate(table):
        table.loc[number::7, column] = [f"{MARKER}-{column}-{row}" for row in table.index[number::7]]
    table.to_csv(folder / "visits.csv", index=False)
    variables = {
        "PYTHONPATH": str(Path(__file__).parents[4]),
        "DPFLOW_PRIVATE": str(folder / "private"),
        "TMPDIR": str(folder),
        "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "1e-9",  # everything is put down on disk
        "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL_COMPRESSION": "false",
    }
    flown = subprocess.run(
        [sys.executable, "-m", "tests.dpcore.tables.cluster.canary", MARKER, PLANTED],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert flown.returncode == 0, flown.stderr[-3000:]
    *lines, told = flown.stdout.splitlines()
    return Flight(**json.loads(told), streams="\n".join(lines) + flown.stderr, folder=folder)


def test_it_failed_on_workers_and_put_rows_down_on_disk(flight: Flight) -> None:
    assert flight.said == 2
    assert flight.spilled > 0


def test_nothing_that_the_cluster_knows_holds_a_private_value_or_a_secret(flight: Flight) -> None:
    assert flight.found["marker"] == flight.found["key"] == flight.found["id"] == flight.found["version"] == []


def test_nothing_but_the_result_is_printed(flight: Flight) -> None:
    assert flight.streams == ""


def test_no_file_but_the_stewards_is_left(flight: Flight) -> None:
    assert {path.name for path in flight.folder.rglob("*") if path.is_file()} == STEWARDS
    assert not list(flight.folder.rglob("cluster-*"))


def test_the_steward_reads_what_broke(flight: Flight) -> None:
    assert MARKER in (flight.folder / "private" / "failures.log").read_text(encoding="utf-8")
    assert MARKER in (flight.folder / "private" / "output.log").read_text(encoding="utf-8")


def test_the_search_finds_what_an_ordinary_task_gives_away(flight: Flight) -> None:
    assert {"state", "workers' logs"} <= set(flight.found["planted"])
