"""The worker executes our flows and nothing else that a server names: neither a command nor code, an environment or a folder."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect import get_client
from prefect.client.schemas import State
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate
from prefect.filesystems import LocalFileSystem
from prefect.states import AwaitingRetry, Cancelled, Cancelling, Running, Suspended
from prefect.workers.process import ProcessWorker

from flows.deploy.pool import ensure_pool
from flows.prefect_compat import FlowRunExecutorContext
from flows.worker.supervision import cancel_only_if_asked
from tests.flows.deployed import started, transcript
from tests.flows.server.gated import STEP
from tests.flows.stack import wait_for
from tests.flows.worksite import PRINTED, ROOT, Site, working

pytestmark = pytest.mark.prefect

KUBERNETES = ROOT / "deployments" / "kubernetes" / "base-job-template.json"
TEMPLATE = ProcessWorker.get_default_base_job_template()

EVIL_STARTUP = "import os; open(os.environ['MARK'], 'w').close()"
EVIL_FLOW = """
import os
from prefect import flow
open({mark!r}, "w").close()

@flow(name="synthesize")
def synthesize(release: str = "") -> None:
    pass
"""


@pytest.fixture(scope="module")
def site(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with working(tmp_path_factory.mktemp("site"), prefect_server) as made:
        yield made


def run_variable(name: str, value: Callable[[Path], Any]) -> Callable[[Site, Path], UUID]:
    return lambda site, mark: site.start(job_variables={name: value(mark)}, mark=mark)


def deployment_variable(name: str, value: Callable[[Path], Any]) -> Callable[[Site, Path], UUID]:
    return lambda site, mark: site.start(site.deployment(job_variables={name: value(mark)}), mark)


def command(mark: Path) -> str:
    return f"touch {mark}"


def environment_of_a_run(site: Site, mark: Path) -> UUID:
    place = site.evil_folder(mark, "sitecustomize.py", EVIL_STARTUP)
    return site.start(job_variables={"env": {"PYTHONPATH": str(place), "MARK": str(mark)}}, mark=mark)


def one_variable_of_a_run(site: Site, mark: Path) -> UUID:
    place = site.evil_folder(mark, "sitecustomize.py", EVIL_STARTUP)
    return site.start(job_variables={"env.PYTHONPATH": str(place), "env.MARK": str(mark)}, mark=mark)


def working_folder(site: Site, mark: Path) -> UUID:
    place = site.evil_folder(mark, "prefect/engine.py", "open({mark!r}, 'w').close()")
    return site.start(job_variables={"working_dir": str(place), "command": "python -m prefect.engine"}, mark=mark)


def other_entrypoint(site: Site, mark: Path) -> UUID:
    place = site.evil_folder(mark, "evil.py", EVIL_FLOW)
    return site.start(site.deployment(entrypoint=f"{place}/evil.py:synthesize"), mark)


def other_path(site: Site, mark: Path) -> UUID:
    place = site.evil_folder(mark, "evil.py", EVIL_FLOW)
    return site.start(site.deployment(entrypoint="evil.py:synthesize", path=str(place)), mark)


def code_storage(site: Site, mark: Path) -> UUID:
    place = site.evil_folder(mark, "evil.py", EVIL_FLOW)
    block = LocalFileSystem(basepath=str(place)).save(f"evil-{mark.name}", _sync=True)
    return site.start(site.deployment(entrypoint="evil.py:synthesize", storage_document_id=block), mark)


def pull_steps(site: Site, mark: Path) -> UUID:
    steps = [{"prefect.deployments.steps.run_shell_script": {"script": f"touch {mark}"}}]
    return site.start(site.deployment(pull_steps=steps), mark)


def another_flow(site: Site, mark: Path) -> UUID:
    place = site.evil_folder(mark, "evil.py", EVIL_FLOW)
    return site.start(site.deployment("evil", entrypoint=f"{place}/evil.py:synthesize"), mark)


def no_deployment(site: Site, mark: Path) -> UUID:
    variables = {"command": command(mark)}
    with get_client(sync_client=True) as client:
        flow = client.create_flow_from_name("synthesize")
        body = {
            "flow_id": str(flow),
            "state": {"type": "SCHEDULED"},
            "work_pool_name": site.pool,
            "job_variables": variables,
        }
        run = UUID(client._client.post("/flow_runs/", json=body).json()["id"])
    site.marks[run] = mark
    return run


ATTEMPTS: dict[str, tuple[Callable[[Site, Path], UUID], str]] = {
    "a command for a run": (run_variable("command", command), "a command in the job variables of the run"),
    "a command for a deployment": (
        deployment_variable("command", command),
        "a command in the job variables of the deployment",
    ),
    "an environment": (environment_of_a_run, "an environment in the job variables of the run"),
    "a variable": (one_variable_of_a_run, "an environment in the job variables of the run"),
    "a working folder": (working_folder, "a working folder in the job variables of the run"),
    "an entrypoint": (other_entrypoint, "another entrypoint"),
    "a path": (other_path, "code from another place"),
    "code storage": (code_storage, "code from another place"),
    "pull steps": (pull_steps, "pull steps"),
    "another flow": (another_flow, "a flow that is not one of dpflow's"),
    "no deployment": (no_deployment, "to be executed without a deployment"),
}


@pytest.fixture(scope="module")
def attempts(site: Site) -> dict[str, UUID]:
    """One run for each way in which a server could have something else executed; all at once."""
    return {name: attempt(site, site.mark()) for name, (attempt, _) in ATTEMPTS.items()}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_what_else_a_server_asks_for_is_refused_and_not_done(site: Site, attempts: dict[str, UUID], name: str) -> None:
    run = site.wait(attempts[name])
    assert run.state_name == "Refused", run.state
    assert ATTEMPTS[name][1] in run.state.message
    assert "this worker runs only dpflow's own flows" in run.state.message
    assert site.states(run.id) == ["Scheduled", "Refused"]
    assert not site.marks[run.id].exists()


def test_prefects_own_worker_would_do_it(site: Site) -> None:
    control = Site(site.folder, f"{site.pool}-control", site.url, deployed=site.deployed)
    ensure_pool(control.pool, worker=True)
    marks = [control.mark() for _ in range(2)]
    control.start(job_variables={"command": command(marks[0])})
    control.start(control.deployment(job_variables={"command": command(marks[1])}))
    worker = [sys.executable, "-P", "-m", "prefect", "worker", "start", "--pool", control.pool, "--run-once"]
    subprocess.run(worker, env=control.environment(), check=True, capture_output=True)
    assert [mark.exists() for mark in marks] == [True, True]


def test_a_template_of_the_pool_is_refused_and_not_followed(site: Site) -> None:
    mark = site.mark()
    worse = TEMPLATE | {"job_configuration": TEMPLATE["job_configuration"] | {"command": command(mark)}}
    with get_client(sync_client=True) as client:
        client.update_work_pool(site.pool, WorkPoolUpdate(base_job_template=worse))
    run = site.wait(site.start())
    with get_client(sync_client=True) as client:
        client.update_work_pool(site.pool, WorkPoolUpdate(base_job_template=TEMPLATE))
    assert run.state_name == "Refused"
    assert "a command in the template of the work pool" in run.state.message
    assert not mark.exists()


def test_a_run_completes_and_what_its_steps_print_is_for_the_steward_alone(
    site: Site, stored: Callable[[str], list[str]]
) -> None:
    run = site.wait(site.start())
    assert run.state_name == "Completed", (run.state, site.output()[-3000:])
    assert list(site.folder.glob("releases/visits/*/manifest.json"))
    printed = (site.folder / "private" / "output.log").read_text(encoding="utf-8")
    assert [f"{PRINTED} {by}" in printed for by in ("out", "error", "program")] == [True, True, True]
    # What is for everybody is still there; lines are sent after the state.
    wait_for(lambda: "round 4/4" in site.log(run.id), "the line of the last round", tell=lambda: site.log(run.id))
    assert PRINTED not in site.output()
    assert stored(PRINTED) == []


def test_in_a_container_of_its_own_as_on_kubernetes_a_run_is_executed_just_so(site: Site) -> None:
    pod = json.loads(KUBERNETES.read_text(encoding="utf-8"))["job_configuration"]["job_manifest"]["spec"]["template"]
    python, *arguments = pod["spec"]["containers"][0]["args"]
    assert python == "python"
    elsewhere = Site(site.folder, f"{site.pool}-elsewhere", site.url, deployed=site.deployed)
    ensure_pool(elsewhere.pool, worker=True)
    place = site.evil_folder(mark := site.mark(), "evil.py", EVIL_FLOW)
    run = elsewhere.start(elsewhere.deployment(entrypoint=f"{place}/evil.py:synthesize"))
    done = subprocess.run(
        [sys.executable, *arguments],
        env=site.environment() | {"PREFECT__FLOW_RUN_ID": str(run)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, site.read(run).state_name) == (0, "Completed"), done.stderr
    assert PRINTED not in done.stdout + done.stderr
    assert not mark.exists()


@pytest.fixture
def stopped(site: Site) -> Callable[[UUID], int]:
    """Close the gate; then wait until a run has stopped there, the only one, and return its process."""
    gate = site.folder / "gate"
    for file in gate.iterdir():
        file.unlink()

    def process(run: UUID) -> int:
        (said,) = wait_for(
            lambda: list(gate.glob("*.paid")),
            "a step that is paid for",
            tell=lambda: f"{site.read(run)}\n{site.output()}",
        )
        return int(said.stem)

    return process


def test_of_a_run_that_dies_the_worker_tells_and_loads_no_code_of_the_servers_choice(
    site: Site, stopped: Callable[[UUID], int]
) -> None:
    mark, deployment = site.mark(), site.deployment()
    run = site.start(deployment)
    process = stopped(run)
    place = site.evil_folder(mark, "evil.py", EVIL_FLOW)
    with get_client(sync_client=True) as client:
        client.update_deployment(deployment, DeploymentUpdate(entrypoint=f"{place}/evil.py:synthesize"))
    os.kill(process, signal.SIGKILL)
    state = site.wait(run).state
    assert state.name == "Crashed"
    assert "status code: -9" in state.message
    site.wait(site.start(deployment))  # refused, and by then the worker is done with the first
    assert not mark.exists()


@pytest.mark.parametrize(
    ("state", "ends"), [(Cancelling(), True), (Running(), False), (AwaitingRetry(), False), (Cancelled(), False)]
)
def test_an_old_request_to_cancel_does_not_end_a_run_that_was_retried(
    prefect_server: str, state: State[Any], ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor is asked to cancel a run that the server has in some state: for a retried run, it gets the request of before again."""
    run, cancelled = SimpleNamespace(id=uuid4(), state=state), []

    async def read_flow_run(run_id: UUID) -> Any:
        assert run_id == run.id
        return run

    async def cancel(found: Any) -> None:
        cancelled.append(found)

    async def asked() -> None:
        async with FlowRunExecutorContext() as context:
            monkeypatch.setattr(context.client, "read_flow_run", read_flow_run)
            monkeypatch.setattr(context._cancellation_manager, "cancel", cancel)
            cancel_only_if_asked(context)
            context._observer.on_cancelling(run.id)

    asyncio.run(asked())
    assert cancelled == ([run] if ends else [])


def test_a_run_that_was_suspended_or_cancelled_in_the_middle_goes_on_later_and_pays_once(
    site: Site, stopped: Callable[[UUID], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(site.folder)  # where the ledger is
    suspended = site.start()
    process = stopped(suspended)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(suspended, Suspended(timeout_seconds=3600), force=True)
        os.kill(process, signal.SIGKILL)
        (site.folder / "gate" / f"{process}.paid").unlink()
        paid = started()
        cancelled = site.start()
        process = stopped(cancelled)  # by now the worker is done with the other
        assert site.states(suspended)[-1] == "Suspended"
        before = transcript(cancelled)
        client.set_flow_run_state(cancelled, Cancelling())
        assert site.wait(cancelled).state_name == "Cancelled"
        wait_for(lambda: not Path(f"/proc/{process}").exists(), "the end of its process")
        assert transcript(cancelled) == before
        paid_first = started() - paid
        (site.folder / "gate" / "open").touch()
        client.resume_flow_run(suspended)
        assert site.wait(suspended).state_name == "Completed"
        assert "Crashed" not in site.states(suspended)
        paid = started() - paid_first
        client.set_flow_run_state(cancelled, AwaitingRetry())
    wait_for(
        lambda: site.read(cancelled).state_name == "Completed", "the retry", tell=lambda: f"{site.states(cancelled)}"
    )
    after = transcript(cancelled)
    assert after[: len(before)] == before
    assert started() - paid == Counter([step for step, _ in after] + [STEP])
