"""A short version of `budget_storm` on both stores, and proof that it would see a broken protocol. `make campaign` runs the whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import often

ROOT = Path(__file__).parents[2]
WORKERS = 8
TASKS, CAP = often((24, 10), campaign=(200, 77))
KILLS = often(8, campaign=60)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    if request.param == "postgres":
        monkeypatch.setenv("DPFLOW_LEDGER_URL", request.getfixturevalue("postgres_server").new_database())
        monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
        monkeypatch.setenv("DPFLOW_REGISTRY", str(tmp_path / "registry"))
    return tmp_path


def storm(folder: Path, *arguments: object, program: str = "budget_storm") -> dict[str, Any]:
    command = [sys.executable, "-m", f"tests.faults.{program}", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


@pytest.mark.campaign
def test_exactly_what_the_account_can_pay_for_runs(place: Path) -> None:
    seen = storm(place, "race", "--workers", WORKERS, "--tasks", TASKS, "--cap", CAP)
    assert (seen["bodies"], seen["twice"], seen["failed"]) == (CAP, 0, 0)
    assert (seen["values"], seen["charges"], seen["spent"]) == (CAP, CAP, CAP)


@pytest.mark.campaign
def test_nothing_is_lost_and_nothing_that_was_kept_runs_again_after_a_kill(place: Path) -> None:
    seen = storm(place, "kills", "--times", KILLS, "--tasks", 2)
    assert (seen["deaths"], seen["again_after_kept"], seen["tasks_with_two_values"]) == (KILLS, 0, 0)
    assert (
        seen["kept"] <= seen["values"] <= seen["bodies"] <= seen["charges"] == seen["spent"] <= seen["values"] + KILLS
    )


def test_workers_that_meet_at_a_task_run_it_once(place: Path) -> None:
    seen = storm(place, "meet", "--workers", 4, "--tasks", 3)
    assert (seen["bodies"], seen["twice"], seen["failed"], seen["spent"]) == (3, 0, 0, 3)


def test_a_protocol_without_leases_or_replays_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    for folder in (meeting := tmp_path / "meet", kills := tmp_path / "kills"):
        folder.mkdir()
    assert storm(kills, "kills", "--times", 5, "--tasks", 2, "--planted", "no replay")["again_after_kept"] > 0
    assert storm(meeting, "meet", "--workers", 2, "--tasks", 1, "--planted", "no lease")["bodies"] == 2


def test_real_libraries_are_refused_at_the_cap_exact_in_a_race_and_replayed_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    seen = storm(tmp_path, program="budget_libraries")
    assert len(seen) == 4
    for found in seen.values():
        assert (found["failed"], found["bodies"], found["twice"], found["spent_as_priced"]) == (0, 5, 0, True)
        assert (found["death"], found["bodies_of_the_killed"], found["same_value"]) == (-9, 1, True)
        assert found["refused_at_the_cap"]
