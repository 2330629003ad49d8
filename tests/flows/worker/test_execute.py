"""The process of a run takes from the server which of our flows to run with which plain parameters, and nothing else."""

import json
import pickle
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import get_client
from prefect.blocks.core import Block
from prefect.blocks.system import Secret
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.exceptions import ParameterTypeError
from prefect.filesystems import LocalFileSystem

from dpcore.errors import UsageError
from dpcore.runs.synthesis import Synthesis
from flows.synthesize import synthesize
from flows.worker.execute import execute
from tests.conftest import Workspace
from tests.flows.deployed import Deployed, deploy, started

pytestmark = pytest.mark.prefect


@pytest.fixture
def deployed(workspace: Workspace, prefect_server: str) -> Deployed:
    """The deployment of the workspace's spec, whose parameters the server checks no more."""
    workspace.open_account()
    found = deploy(workspace, prefect_server)
    with get_client(sync_client=True) as client:
        client.update_deployment(found.id, DeploymentUpdate(enforce_parameter_schema=False))
    return found


def post(path: str, body: dict[str, Any]) -> Any:
    """Ask the server for what Prefect's client has no words for."""
    with get_client(sync_client=True) as client:
        return client._client.post(path, json=body).json()


def test_a_run_is_executed(workspace: Workspace, deployed: Deployed) -> None:
    run = deployed.start(note="as the form has it")
    assert execute(run) == 0
    assert deployed.state(run).name == "Completed"
    assert len(list(workspace.folder.glob("releases/visits/*/manifest.json"))) == 1


class Touch:
    """Something whose pickle makes a file when it is read."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._file,)


def completed_elsewhere(deployed: Deployed, file: Path, mark: Path) -> UUID:
    """Start a run, and say before it is executed that it has completed, with its result in a file."""
    metadata = {"storage_key": str(file), "serializer": {"type": "pickle"}}
    record = {"metadata": metadata, "result": b64encode(pickle.dumps(Touch(mark))).decode()}
    file.write_text(json.dumps(record), encoding="utf-8")
    run = deployed.start()
    state = {"type": "COMPLETED", "name": "Completed", "data": {"type": "ResultRecordMetadata", **metadata}}
    post(f"/flow_runs/{run}/set_state", {"state": state, "force": True})
    return run


def test_a_result_that_the_server_says_there_is_is_not_read(deployed: Deployed, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    run = completed_elsewhere(deployed, tmp_path / "result", mark)
    assert execute(run) == 0
    assert not mark.exists()
    deployed.execute(run)  # as Prefect's own program does it
    assert mark.exists()


@pytest.fixture
def storage_of_the_server(prefect_server: str, tmp_path: Path) -> Iterator[Path]:
    """The folder that the server names for all results for as long as the test lasts."""
    folder = tmp_path / "chosen"
    block = LocalFileSystem(basepath=str(folder)).save("chosen", overwrite=True, _sync=True)
    with get_client(sync_client=True) as client:
        client.update_server_default_result_storage(block)
        yield folder
        client.clear_server_default_result_storage()


def test_nothing_is_written_where_the_server_says(
    deployed: Deployed, storage_of_the_server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Synthesis) -> None:
        raise ValueError

    monkeypatch.setattr(Synthesis, "reserve", fail)
    run = deployed.start()
    assert execute(run) == 0
    assert deployed.state(run).name == "Failed"
    assert not storage_of_the_server.exists()
    deployed.retry(run)
    deployed.execute(run)
    assert list(storage_of_the_server.iterdir())


def test_a_parameter_is_no_reference_to_something_at_the_server(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(Block, "load_from_ref", lambda reference, **_: loaded.append(reference))
    block = Secret(value="x").save("of-the-server", overwrite=True, _sync=True)
    run = deployed.start(release={"$ref": {"block_document_id": str(block)}})
    assert execute(run) == 0
    assert deployed.state(run).name == "Refused"
    assert "the parameter release is neither a number nor text" in (deployed.state(run).message or "")
    assert not loaded
    deployed.retry(run, forced=True)
    with suppress(ParameterTypeError):
        deployed.execute(run)
    assert loaded


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"release": "../spec"}, "no spec is registered as '../spec'; registered specs: spec"),
        ({"release": None}, "with these parameters, see its form: release: Input should be a valid string"),
        ({"epsilon": 101}, "Input should be less than or equal to 100"),
        ({"note": "x" * 501}, "at most 500 characters"),
        ({"note": [{"x": 1}]}, "the parameter note is neither a number nor text"),
        ({"registered_only": False}, "the flow synthesize has no parameter 'registered_only'"),
        ({"untrusted": False}, "the flow synthesize has no parameter 'untrusted'"),
        ({"resume": "another"}, "the flow synthesize has no parameter 'resume'"),
    ],
    ids=str,
)
def test_the_parameters_are_checked_here_whatever_the_server_has_let_pass(
    deployed: Deployed, steward: Path, parameters: dict[str, Any], words: str
) -> None:
    run = deployed.start(**parameters)
    assert execute(run) == 0
    state = deployed.state(run)
    assert state.name == "Refused"
    assert words in (state.message or "")
    assert not started()
    assert "Traceback" not in deployed.log(run)


def without_deployment(release: str, flow: str = "synthesize") -> UUID:
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow_from_name(flow)
    body = {"flow_id": str(flow_id), "parameters": {"release": release}, "state": {"type": "SCHEDULED"}}
    return UUID(post("/flow_runs/", body)["id"])


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (lambda spec: without_deployment(str(spec)), "the run comes from no deployment"),
        (
            lambda spec: without_deployment(str(spec), "other"),
            "not one of dpflow's, which are synthesize, budget, verify",
        ),
    ],
)
def test_a_run_that_is_none_of_ours_is_refused(
    workspace: Workspace, deployed: Deployed, start: Callable[[Path], UUID], words: str
) -> None:
    run = start(workspace.spec)
    assert execute(run) == 0
    assert deployed.state(run).name == "Refused"
    assert words in (deployed.state(run).message or "")


def test_for_a_worker_only_a_registered_name_is_run_even_if_the_server_denies_the_deployment(
    workspace: Workspace, deployed: Deployed
) -> None:
    with pytest.raises(UsageError, match="no spec is registered as"):
        synthesize(release=str(workspace.spec), untrusted=True)
    assert not started()
    synthesize(release=str(workspace.spec))
    assert started()
