"""The harness that kills workers under a burst of runs: a small run of it, and proof that its rules would find what is broken."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from dpcore import synthesize
from dpcore.errors import BudgetRefused
from tests.faults.soak_planted import PLANTED, TELLING
from tests.faults.soak_rules import COMPLETED, REFUSED, Soaked, broken
from tests.faults.soak_table import ACCOUNT, prepare

ROOT = Path(__file__).parents[2]


def test_no_death_of_a_worker_loses_or_doubles_anything(tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    small = ("--runs", "4", "--workers", "1", "--store", "sqlite")
    storm = ("--kills", "1", "--kill-seconds", "3", "--life", "3", "--by-hand")
    command = [sys.executable, "-m", "tests.faults.soak", "--json", *small, *storm, "--keep", str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    logs = "\n".join(path.read_text(encoding="utf-8")[-2000:] for path in folder.glob("*/log"))
    assert not done.stderr, f"{done.stderr}\n{logs}"
    result = json.loads(done.stdout)
    assert (done.returncode, result["findings"]) == (0, []), logs
    assert (result["completed"], result["refused"], result["otherwise"]) == (3, 1, {})
    assert result["kills"] == {"group": 1}
    assert result["retries_by_hand"] > 0
    assert not left(folder)


def left(folder: Path) -> list[psutil.Process]:
    """Return the processes that work in a folder or know of it."""

    def knows(process: psutil.Process) -> bool:
        try:
            return process.pid != os.getpid() and str(folder) in str(process.environ())
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if knows(process)]


@pytest.fixture
def soaked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Soaked:
    """What a soak leaves in which nobody was killed: of four runs, three are paid."""
    monkeypatch.chdir(tmp_path)
    ledger = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    monkeypatch.setenv("DPFLOW_LEDGER_URL", ledger)
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
    monkeypatch.setenv("DPFLOW_REGISTRY", str(tmp_path / "registry"))
    names = prepare(tmp_path, runs=4, names=2)
    ends: dict[str, str | None] = {}
    for number in range(4):
        run = str(uuid4())
        try:
            synthesize(tmp_path / f"{names[number % 2]}.yaml", run_id=run)
            ends[run] = COMPLETED
        except BudgetRefused:
            ends[run] = REFUSED
    return Soaked(releases=tmp_path / "releases", ledger=ledger, account=ACCOUNT, ends=ends, asked=4)


def test_a_sound_end_breaks_no_rule(soaked: Soaked) -> None:
    assert sorted(soaked.ends.values()) == [COMPLETED] * 3 + [REFUSED]
    assert broken(soaked) == []


@pytest.mark.parametrize(("name", "plant"), PLANTED.items(), ids=PLANTED)
def test_planted_damage_is_found(name: str, plant: Callable[[Soaked], Soaked], soaked: Soaked) -> None:
    assert TELLING[name] in {finding.rule for finding in broken(plant(soaked))}
