"""What a run may ask for without being refused, and what not."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.workers.process import ProcessWorker

from dpcore.steward.dashboards import register_dashboard
from dpcore.steward.registry import register
from flows.deploy.deployments import ENGINE, FLOWS, deployments
from flows.worker.overrides import disallowed_overrides
from tests.conftest import Workspace

TEMPLATE = ProcessWorker.get_default_base_job_template()


def wishes(template: dict[str, Any] = TEMPLATE, flow: str = "synthesize", **deployment: Any) -> list[str]:
    usual = {"entrypoint": "flows.synthesize.synthesize", "job_variables": {"command": ENGINE}}
    found = DeploymentResponse(name="x", flow_id=uuid4(), **usual | deployment)
    return disallowed_overrides(FlowRun(flow_id=found.flow_id), found, flow=flow, template=template)


@pytest.mark.parametrize(
    "deployment",
    [
        {},
        {"job_variables": {}},
        {"job_variables": {"env": {}, "labels": {"a": "b"}, "stream_output": False, "name": "x"}},
        {"path": "", "pull_steps": []},
        {"template": {}},
    ],
    ids=str,
)
def test_what_dpflow_deploys_and_what_is_without_effect_is_no_wish(deployment: dict[str, Any]) -> None:
    assert wishes(**deployment) == []


@pytest.mark.parametrize(
    ("deployment", "said"),
    [
        (
            {"job_variables": {"command": "python3 -m prefect.engine"}},
            "a command in the job variables of the deployment",
        ),
        ({"job_variables": {"env": {"A": "b"}}}, "an environment in the job variables of the deployment"),
        ({"job_variables": {"env.A": "b"}}, "an environment in the job variables of the deployment"),
        ({"entrypoint": "flows.budget.budget"}, "another entrypoint"),
        ({"entrypoint": None}, "another entrypoint"),
        ({"path": "."}, "code from another place"),
        ({"infrastructure_document_id": UUID(int=1)}, "code from another place"),
        ({"flow": "other"}, "a flow that is not one of dpflow's"),
    ],
    ids=str,
)
def test_each_wish_is_told(deployment: dict[str, Any], said: str) -> None:
    assert wishes(**deployment) == [said]


@pytest.mark.parametrize("name", ["command", "env", "working_dir"])
@pytest.mark.parametrize("value", ["x", "{{ name }}", "{{ $HOME }}", {"A": "b"}], ids=str)
def test_a_template_that_gives_a_value_is_noticed(name: str, value: Any) -> None:
    (said,) = wishes(TEMPLATE | {"job_configuration": TEMPLATE["job_configuration"] | {name: value}})
    assert said.endswith("in the template of the work pool")


@pytest.mark.parametrize("name", ["command", "env", "working_dir"])
def test_a_default_in_a_template_is_noticed(name: str) -> None:
    (said,) = wishes({"variables": {"properties": {name: {"default": {"A": "b"}}}}})
    assert said.endswith("in the template of the work pool")


def test_each_flow_that_is_deployed_is_one_that_the_worker_executes(workspace: Workspace) -> None:
    register(workspace.spec, name="first")
    board = workspace.folder / "board.yaml"
    board.write_text("release: first\nwithin: 50\nqueries: [select count(*) from release]\n", encoding="utf-8")
    register_dashboard(board)
    found = {it.flow_name: it for it in deployments("dpflow")}
    assert found.keys() == FLOWS.keys() == {"synthesize", "budget", "verify", "answer"}
    for name, it in found.items():
        assert wishes(flow=name, entrypoint=it.entrypoint, job_variables=it.job_variables) == []
