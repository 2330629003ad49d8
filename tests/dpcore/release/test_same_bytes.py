"""A run writes the same bytes in another process, whatever its locale, time zone, hash seed and number of threads."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import Workspace

ROOT = Path(__file__).parents[3]
PUBLISH = """
import tests.few_replicates
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import load_spec
run = Synthesis(load_spec("spec.yaml"), run_id="run", resume=False)
run.reserve()
run.check_rows()
run.ingest()
run.histogram()
run.begin()
run.rounds.update(1, run.rounds.measure(1, run.rounds.select(1)))
run.sample()
run.publish()
"""
RESUME = """
import pyarrow
import tests.few_replicates
from dpcore import synthesize
pyarrow.set_cpu_count(1)
synthesize("spec.yaml", run_id="run", resume=True)
"""
ONE = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "1"}
OTHER = {"LC_ALL": "C", "TZ": "Pacific/Chatham", "PYTHONHASHSEED": "2", "PYTHONUTF8": "0"}
OTHER |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def run(folder: Path, program: str, environment: Mapping[str, str]) -> None:
    changed = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=changed, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_replay_in_another_process_writes_the_same_release(workspace: Workspace) -> None:
    """A run that resumes before it is settled accepts a release only if it would write each byte of it: see test_publishing."""
    workspace.write_spec(("rounds: 4", "rounds: 1"))
    workspace.open_account()
    run(workspace.folder, PUBLISH, ONE)
    (release,) = (path for path in (workspace.folder / "releases" / "visits").iterdir() if path.is_dir())
    before = {path: path.read_bytes() for path in release.rglob("*") if path.is_file()}
    assert release / "data" / "part-00000.parquet" in before
    run(workspace.folder, RESUME, OTHER)
    assert {path: path.read_bytes() for path in release.rglob("*") if path.is_file()} == before
