"""Runs of a deployment on the tests' own Prefect server, each executed here or in a process of its own, as a worker would."""

import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from prefect import Flow, get_client
from prefect.client.schemas import State, TaskRun
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, LogFilter, LogFilterFlowRunId
from prefect.exceptions import Abort, Pause
from prefect.flow_engine import run_flow
from prefect.logging.handlers import APILogWorker
from prefect.states import AwaitingRetry, Scheduled

from dpcore.errors import DpflowError
from dpcore.ledger import open_ledger
from dpcore.steward.registry import register
from flows.synthesize import synthesize
from tests.conftest import Workspace

ROOT = Path(__file__).parents[2]
NAME = "spec"  # the name under which the workspace's spec is registered


@dataclass(frozen=True)
class Deployed:
    """A deployment of a flow, and what people and workers do with its runs."""

    id: UUID
    flow: Flow[..., Any]
    url: str

    def start(self, **parameters: Any) -> UUID:
        """Ask for a run, as the form does."""
        with get_client(sync_client=True) as client:
            return client.create_flow_run_from_deployment(self.id, parameters={"release": NAME, **parameters}).id

    def execute(self, run: UUID) -> State:
        """Execute a run in this process, and return the state in which it ended."""
        with get_client(sync_client=True) as client:
            found = client.read_flow_run(run)
        with suppress(Abort, Pause, DpflowError):  # the state says how it ended
            run_flow(self.flow, flow_run=found)
        return self.state(run)

    def process(self, run: UUID, **environment: str) -> subprocess.Popen[str]:
        """Execute a run in another process."""
        return subprocess.Popen(
            [sys.executable, "-m", "prefect.engine", str(run)],
            env=os.environ | {"PREFECT_API_URL": self.url, "PYTHONPATH": str(ROOT)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def retry(self, run: UUID, *, forced: bool = False) -> None:
        """Schedule a run again, as the button in the UI does or, if forced, as `prefect flow-run retry` does."""
        with get_client(sync_client=True) as client:
            wanted: State[None] = Scheduled() if forced else AwaitingRetry()
            client.set_flow_run_state(run, wanted, force=forced)

    def state(self, run: UUID) -> State:
        """Return the current state of a run."""
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(run).state
        assert state is not None
        return state

    def states(self, run: UUID) -> list[str]:
        """Return the names of all states that a run has been in."""
        with get_client(sync_client=True) as client:
            return [str(state.name) for state in client.read_flow_run_states(run)]

    def log(self, run: UUID) -> str:
        """Return the log of a run, as the UI shows it."""
        APILogWorker.drain_all(timeout=10)
        with get_client(sync_client=True) as client:
            lines = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])), limit=200)
        return "\n".join(line.message for line in lines)

    def tasks(self, run: UUID) -> list[TaskRun]:
        """Return the task runs of a run that are recorded so far."""
        with get_client(sync_client=True) as client:
            return client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run])))


def deploy(
    workspace: Workspace,
    url: str,
    flow: Flow[..., Any] = synthesize,
    *,
    entrypoint: str = "flows.synthesize.synthesize",
) -> Deployed:
    """Register the workspace's spec and deploy a flow. Default: `synthesize`."""
    register(workspace.spec, name=NAME)
    with get_client(sync_client=True) as client:
        made = client.create_deployment(client.create_flow(flow), name=uuid4().hex, entrypoint=entrypoint)
    return Deployed(made, flow, url)


def started(account: str = "visits") -> Counter[str]:
    """Count how often each step of all runs of an account was charged, which happens before each draw."""
    with open_ledger() as ledger:
        return Counter(event.details["step"] for event in ledger.history(account) if event.kind == "charged")


def transcript(run: UUID | str) -> list[tuple[str, bytes | None]]:
    """Return what a run has committed, in order."""
    with open_ledger() as ledger:
        return [(done.step, done.output) for done in ledger.transcript(str(run))]
