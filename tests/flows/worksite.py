"""A folder with a table, a spec and an account, a work pool on the tests' own Prefect server, and our worker as a real process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect import get_client
from prefect.client.schemas import FlowRun
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

from dpcore.steward.registry import register
from flows.deploy.deployments import ENGINE
from flows.deploy.pool import ensure_pool
from tests.conftest import SPEC, Workspace, visits
from tests.flows.connections import GATE
from tests.flows.stack import wait_for

ROOT = Path(__file__).parents[2]
PRINTED = "Wq7_printed%"

WORKER = """
import os, sys
from flows.cli import serve
os.environ.update(serve.worker_environment())
serve._work(sys.argv[1], limit=2)
"""

# A careless step, and the gate at which a run can be stopped.
SABOTAGE = f"""
import sys
if "flows.worker.execute" in sys.orig_argv:
    import os
    import tests.flows.server.gated
    from dpcore.runs.synthesis import Synthesis
    ingest = Synthesis.ingest
    def careless(self):
        print("{PRINTED} out", flush=True)
        print("{PRINTED} error", file=sys.stderr, flush=True)
        os.system("echo '{PRINTED} program'")
        return ingest(self)
    Synthesis.ingest = careless
"""


@dataclass(frozen=True)
class Site:
    """A folder with a table, a spec and an account, and a work pool with its worker."""

    folder: Path
    pool: str
    url: str
    marks: dict[UUID, Path] = field(default_factory=dict)
    deployed: list[UUID] = field(default_factory=list)

    def mark(self) -> Path:
        """Return the path of a file that does not exist, by which a test notices that foreign code was run."""
        return self.folder / "marks" / uuid4().hex

    def evil_folder(self, mark: Path, name: str, text: str) -> Path:
        """Make a folder with a file of foreign code, and return it."""
        file = self.folder / "evil" / mark.name / name
        file.parent.mkdir(parents=True)
        file.write_text(text.format(mark=str(mark)), encoding="utf-8")
        return self.folder / "evil" / mark.name

    def deployment(self, name: str = "synthesize", **options: Any) -> UUID:
        """Deploy as `dpflow serve` does, except for the given options."""
        usual = {"entrypoint": "flows.synthesize.synthesize", "job_variables": {"command": ENGINE}}
        with get_client(sync_client=True) as client:
            flow = client.create_flow_from_name(name)
            made = client.create_deployment(
                flow, name=uuid4().hex, work_pool_name=self.pool, parameters={"release": "spec"}, **usual | options
            )
        self.deployed.append(made)
        return made

    def start(self, deployment: UUID | None = None, mark: Path | None = None, **options: Any) -> UUID:
        """Start a run of a deployment. Default: a new one as `dpflow serve` makes it."""
        with get_client(sync_client=True) as client:
            run = client.create_flow_run_from_deployment(deployment or self.deployment(), **options).id
        if mark:
            self.marks[run] = mark
        return run

    def wait(self, run: UUID) -> FlowRun:
        """Return a run once it has ended."""

        def ended() -> FlowRun | None:
            found = client.read_flow_run(run)
            return found if found.state and found.state.is_final() else None

        with get_client(sync_client=True) as client:
            return wait_for(ended, f"the run {run}", tell=lambda: f"{self.read(run)}\n{self.output()[-3000:]}")

    def read(self, run: UUID) -> FlowRun:
        """Return a run in its current state."""
        with get_client(sync_client=True) as client:
            return client.read_flow_run(run)

    def states(self, run: UUID) -> list[str]:
        """Return the names of all states that a run has been in."""
        with get_client(sync_client=True) as client:
            return [str(state.name) for state in client.read_flow_run_states(run)]

    def log(self, run: UUID) -> str:
        """Return the log of a run, as the UI shows it."""
        with get_client(sync_client=True) as client:
            lines = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])), limit=200)
        return "\n".join(line.message for line in lines)

    def output(self) -> str:
        """Return what the worker and its runs have written to their standard streams."""
        return (self.folder / "output").read_text(encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """Return the environment of a worker."""
        path = os.pathsep.join([str(self.folder / "sabotage"), str(ROOT)])
        own = {"PREFECT_API_URL": self.url, "PYTHONPATH": path, GATE: str(self.folder / "gate")}
        places = {
            "DPFLOW_LEDGER_URL": f"sqlite:///{self.folder}/.dpflow/ledger.sqlite",
            "DPFLOW_REGISTRY": str(self.folder / ".dpflow" / "registry"),
            "DPFLOW_PRIVATE": str(self.folder / "private"),
        }
        return os.environ | own | places | {"PREFECT_WORKER_QUERY_SECONDS": "0.5"}


@contextmanager
def working(folder: Path, url: str) -> Iterator[Site]:
    """Set up a folder and a work pool, and keep a worker running while the context is open."""
    made = Site(folder, f"test-{folder.name}", url)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        patch.chdir(folder)
        for variable in ("DPFLOW_LEDGER_URL", "DPFLOW_REGISTRY"):
            patch.delenv(variable, raising=False)
        visits(500, seed=1).to_csv("visits.csv", index=False)
        Path("spec.yaml").write_text(SPEC, encoding="utf-8")
        Workspace(folder, folder / "spec.yaml").open_account(epsilon=100)
        register("spec.yaml")
        for name in ("marks", "sabotage", "gate"):
            Path(name).mkdir()
        Path("gate", "open").touch()
        Path("sabotage", "sitecustomize.py").write_text(SABOTAGE, encoding="utf-8")
        ensure_pool(made.pool, worker=True)
        output = running.enter_context(Path("output").open("wb"))
        worker = subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER, made.pool], env=made.environment(), stdout=output, stderr=output
        )
        running.callback(worker.wait)
        running.callback(worker.terminate)
        yield made
        assert worker.poll() is None, made.output()[-3000:]
    with get_client(sync_client=True) as client:
        for deployment in made.deployed:
            client.delete_deployment(deployment)
