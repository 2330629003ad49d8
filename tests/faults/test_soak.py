"""The harness that kills workers under a burst of runs: one death without a server, the whole at length, and proof that its rules find damage."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from dpcore import synthesize
from dpcore.errors import BudgetRefused
from tests.campaign import CAMPAIGN
from tests.faults.soak_planted import PLANTED, TELLING
from tests.faults.soak_rules import COMPLETED, REFUSED, Soaked, broken
from tests.faults.soak_table import ACCOUNT, prepare
from tests.processes import die_at, forked

ROOT = Path(__file__).parents[2]


if CAMPAIGN:  # its short version is `ended`, without Prefect and a worker

    @pytest.mark.campaign
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


def die_in_a_run(folder: str, variables: dict[str, str], spec: str, run: str) -> None:
    """Begin a run, and be killed between two of its charges."""
    os.environ.update(variables)
    os.chdir(folder)
    die_at(9)
    synthesize(spec, run_id=run)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Soaked]:
    """What four runs leave of which three are paid; the worker of the second was killed, and the run resumed."""
    folder = tmp_path_factory.mktemp("soaked")
    variables = {
        "DPFLOW_LEDGER_URL": f"sqlite:///{folder / 'ledger.sqlite'}",
        "DPFLOW_PRIVATE": str(folder / "private"),
        "DPFLOW_REGISTRY": str(folder / "registry"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in variables.items():
            patch.setenv(name, value)
        specs = [f"{name}.yaml" for name in prepare(folder, runs=4, names=2)]
        ends: dict[str, str | None] = {}
        for number in range(4):
            spec, run = specs[number % 2], str(uuid4())
            if killed := number == 1:
                worker = forked().Process(target=die_in_a_run, args=(str(folder), variables, spec, run))
                worker.start()
                worker.join()
                assert worker.exitcode == -9
            try:
                synthesize(spec, run_id=run, resume=killed)
                ends[run] = COMPLETED
            except BudgetRefused:
                ends[run] = REFUSED
        shutil.copytree(folder, folder.with_name("kept"))
        yield Soaked(
            releases=folder / "releases", ledger=variables["DPFLOW_LEDGER_URL"], account=ACCOUNT, ends=ends, asked=4
        )


@pytest.fixture
def soaked(ended: Soaked) -> Soaked:
    """The same, as it was before another test damaged it."""
    folder = ended.releases.parent
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(folder.with_name("kept"), folder, dirs_exist_ok=True)
    return ended


def test_a_sound_end_breaks_no_rule(soaked: Soaked) -> None:
    assert sorted(map(str, soaked.ends.values())) == [COMPLETED] * 3 + [REFUSED]
    assert broken(soaked) == []


@pytest.mark.parametrize(("name", "plant"), PLANTED.items(), ids=PLANTED)
def test_planted_damage_is_found(name: str, plant: Callable[[Soaked], Soaked], soaked: Soaked) -> None:
    assert TELLING[name] in {finding.rule for finding in broken(plant(soaked))}
