import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.server.schemas import actions
from prefect.states import Running
from prefect.workers.process import ProcessWorker

from dpcore.errors import UsageError
from dpcore.ledger import Balance
from dpcore.reporting import overview
from dpcore.steward.dashboards import register_dashboard, unregister_dashboard
from dpcore.steward.registry import register, unregister
from flows.deploy import deployments
from flows.deploy.deployments import deploy
from flows.deploy.pool import ensure_pool
from flows.pages.form import refresh_forms
from tests.conftest import Workspace

pytestmark = pytest.mark.prefect
YAML = Path(__file__).parents[3] / "deployments" / "prefect.yaml"
SAMPLE = Path(__file__).parents[3] / "data" / "clinic-visits.yaml"


@contextmanager
def client() -> Iterator[Any]:
    with get_client(sync_client=True) as found:
        yield found


@pytest.fixture(autouse=True)
def _pool(workspace: Workspace, prefect_server: str) -> Iterator[None]:
    """A work pool, and no deployment of ours left behind."""
    ensure_pool("dpflow", worker=True)
    yield
    with client() as api:
        for deployment in api.read_deployments():
            api.delete_deployment(deployment.id)


def deployed() -> Any:
    return deploy("dpflow")


def read(name: str) -> Any:
    with client() as api:
        return api.read_deployment_by_name(name)


def crons(name: str) -> list[tuple[str, str, bool]]:
    return [(it.schedule.cron, it.schedule.timezone, it.active) for it in read(name).schedules]


def test_each_registered_spec_is_a_deployment_beside_budget_and_verify(workspace: Workspace) -> None:
    register(workspace.spec, name="first", cron="0 3 * * *", timezone="Europe/Zurich")
    register(workspace.spec, name="second")
    assert deployed().present == ("budget/budget", "synthesize/first", "synthesize/second", "verify/verify")
    first = read("synthesize/first")
    assert first.parameters == {"release": "first"}
    assert first.tags == ["dpflow", "visits"]
    assert (first.work_pool_name, first.work_queue_name) == ("dpflow", "visits")
    assert first.global_concurrency_limit.limit == 1
    assert first.concurrency_options.collision_strategy == "ENQUEUE"
    assert first.enforce_parameter_schema
    assert first.parameter_openapi_schema["properties"]["release"]["enum"] == ["first"]
    assert crons("synthesize/first") == [("0 3 * * *", "Europe/Zurich", True)]
    assert crons("synthesize/second") == []
    assert crons("budget/budget") == [("*/15 * * * *", "UTC", True)]
    assert crons("verify/verify") == [("30 2 * * *", "UTC", True)]


def test_each_registered_dashboard_is_a_deployment_in_the_queue_of_its_account(workspace: Workspace) -> None:
    register(workspace.spec, name="first")
    board = workspace.folder / "board.yaml"
    board.write_text("release: first\nwithin: 2%\nqueries: [select count(*) from release]\n", encoding="utf-8")
    register_dashboard(board, cron="0 6 * * *")
    assert "answer/board" in deployed().present
    found = read("answer/board")
    assert found.parameters["queries"] == ["select count(*) from release"]
    assert (found.parameters["within"], found.work_queue_name, found.tags) == ("2%", "visits", ["dpflow", "visits"])
    assert crons("answer/board") == [("0 6 * * *", "UTC", True)]
    unregister_dashboard("board")
    assert deployed().removed == ("answer/board",)


def test_the_runs_of_one_account_are_taken_one_at_a_time_whatever_their_deployment(workspace: Workspace) -> None:
    register(workspace.spec, name="first")
    register(workspace.spec, name="second")
    deployed()
    with client() as api:
        one, other = (
            api.create_flow_run_from_deployment(read(f"synthesize/{name}").id).id for name in ("first", "second")
        )

        def offered() -> set[Any]:
            answer = api.request(
                "POST", "/work_pools/dpflow/get_scheduled_flow_runs", json={"work_queue_names": ["visits"]}
            )
            return {item["flow_run"]["id"] for item in answer.json()}

        assert len(offered() & {str(one), str(other)}) == 1
        api.set_flow_run_state(one, Running(), force=True)
        assert not offered() & {str(one), str(other)}
        api.delete_flow_run(one)
        assert offered() == {str(other)}


def test_the_form_is_written_again_when_the_balance_changes_unless_a_run_is_about_to_start(
    workspace: Workspace,
) -> None:
    def shown() -> str:
        return str(read("synthesize/first").parameter_openapi_schema["properties"]["epsilon"]["description"])

    workspace.open_account(epsilon=3)
    register(workspace.spec, name="first", cron="* * * * *")  # so one of its runs is always about to start
    deployed()
    assert "can ask for epsilon 3.0000" in shown()
    (found,) = overview.look("visits").accounts
    nothing = Balance(found.account.cap, found.account.cap, 0)
    with client() as api:
        deployment = read("synthesize/first")
        due = api.create_flow_run_from_deployment(deployment.id).id  # as the server's scheduler does
        refresh_forms(found.account, nothing)
        assert "can ask for epsilon 3.0000" in shown()
        api.delete_flow_run(due)
    register(workspace.spec, name="first")
    deployed()
    refresh_forms(found.account, nothing)
    assert "can ask for epsilon 0.0000" in shown()
    assert read("synthesize/first").enforce_parameter_schema


def test_no_folder_of_this_machine_is_in_a_deployment(workspace: Workspace) -> None:
    register(workspace.spec, name="first")
    deployed()
    first = read("synthesize/first")
    assert first.entrypoint == "flows.synthesize.synthesize"
    assert not first.path
    assert not first.pull_steps
    stored = first.model_dump_json()
    assert str(workspace.folder) not in stored
    assert str(Path(__file__).parents[3]) not in stored
    assert sys.prefix not in stored


def test_deployed_again_it_is_updated_and_not_doubled(workspace: Workspace) -> None:
    register(workspace.spec, name="first", cron="0 3 * * *")
    deployed()
    before = read("synthesize/first")
    register(workspace.spec, name="first", cron="0 4 * * *", timezone="Europe/Zurich")
    deployed()
    assert read("synthesize/first").id == before.id
    assert crons("synthesize/first") == [("0 4 * * *", "Europe/Zurich", True)]
    register(workspace.spec, name="first")
    deployed()
    assert crons("synthesize/first") == []


def test_what_was_switched_off_or_added_in_the_ui_stays_so(workspace: Workspace) -> None:
    register(workspace.spec, name="first", cron="0 3 * * *")
    deployed()
    found = read("synthesize/first")
    with client() as api:
        api.update_deployment_schedule(found.id, found.schedules[0].id, active=False)
        api.create_deployment_schedules(found.id, [(CronSchedule(cron="0 9 * * *", timezone="UTC"), True)])
        api.update_deployment(found.id, DeploymentUpdate(paused=True))
    deployed()
    assert read("synthesize/first").paused
    assert sorted(crons("synthesize/first")) == [("0 3 * * *", "UTC", False), ("0 9 * * *", "UTC", True)]
    register(workspace.spec, name="first")
    deployed()
    assert crons("synthesize/first") == [("0 9 * * *", "UTC", True)]


CHANGED: dict[str, Any] = {
    "version": "9.9",
    "description": "changed",
    "tags": ["mine"],
    "parameters": {"release": "first", "epsilon": 99.0},
    "parameter_openapi_schema": {"type": "object", "properties": {}},
    "enforce_parameter_schema": False,
    "work_pool_name": "other",
    "work_queue_name": "quick",
    "job_variables": {"command": "touch here"},
    "concurrency_options": {"collision_strategy": "CANCEL_NEW"},
    "entrypoint": "other.module.flow",
    "path": "/somewhere",
    "pull_steps": [{"prefect.deployments.steps.run_shell_script": {"script": "true"}}],
}
"""A value for each field that can be changed by itself, other than the one that is deployed."""

OTHERWISE = {
    "schedules",  # below, by the requests that are there for them
    "concurrency_limit",  # below, in three ways
    "global_concurrency_limit_id",
    "storage_document_id",  # below, as both need a block
    "infrastructure_document_id",
    "paused",  # a person's to decide
    "version_info",  # another way to set the version
}


def change_schedules(api: Any, found: Any) -> None:
    """Have the runs of the schedule ask for more, at another time, and make the schedule one of many."""
    (schedule,) = found.schedules
    path = f"/deployments/{found.id}/schedules/{schedule.id}"
    often = {"cron": "* * * * *", "timezone": "Asia/Tokyo"}
    api.request("PATCH", path, json={"schedule": often, "parameters": {"epsilon": 99.0}})


def take_limit_away(api: Any, found: Any) -> None:
    api.request("PATCH", f"/deployments/{found.id}", json={"concurrency_limit": None})


def raise_limit(api: Any, found: Any) -> None:
    api.request("PATCH", f"/deployments/{found.id}", json={"concurrency_limit": 99})


def switch_limit_off(api: Any, found: Any) -> None:
    limit = {"active": False, "slot_decay_per_second": 5.0}
    api.request("PATCH", f"/v2/concurrency_limits/{found.global_concurrency_limit.id}", json=limit)


def use_another_limit(api: Any, found: Any) -> None:
    body = {"name": f"of-others-{uuid4()}", "limit": 99}
    made = api.request("POST", "/v2/concurrency_limits/", json=body).json()["id"]
    api.request("PATCH", f"/deployments/{found.id}", json={"global_concurrency_limit_id": made})


def name_blocks(api: Any, found: Any) -> None:
    """Have the code and the infrastructure come from blocks."""
    block = str(Secret(value="x").save("any", overwrite=True))
    body = {"storage_document_id": block, "infrastructure_document_id": block}
    api.request("PATCH", f"/deployments/{found.id}", json=body)


LIMITS = [take_limit_away, raise_limit, switch_limit_off, use_another_limit]


def test_whatever_was_changed_at_the_server_is_as_deployed_after_the_next_time(workspace: Workspace) -> None:
    assert (
        set(actions.DeploymentUpdate.model_fields) == CHANGED.keys() | OTHERWISE
    )  # so a new version's new field is noticed
    ensure_pool("other", worker=True)
    register(workspace.spec, name="first", cron="0 3 * * *", timezone="Europe/Zurich")
    deployed()
    right = _compared(read("synthesize/first"))

    with client() as api:
        found = read("synthesize/first")
        change_schedules(api, found)
        name_blocks(api, found)
        api.request("PATCH", f"/deployments/{found.id}", json=CHANGED)
    wrong = _compared(read("synthesize/first"))
    blocks = {"storage_document_id", "infrastructure_document_id"}
    assert {name for name in wrong if wrong[name] != right[name]} == CHANGED.keys() | blocks | {
        "schedules",
        "work_queue_id",
    }
    deployed()
    assert _compared(read("synthesize/first")) == right
    for change in LIMITS:
        with client() as api:
            change(api, read("synthesize/first"))
        assert _compared(read("synthesize/first")) != right, change.__name__
        deployed()
        assert _compared(read("synthesize/first")) == right, change.__name__


@pytest.mark.parametrize("field", ["path", "storage_document_id"])
def test_a_field_that_is_not_told_again_would_stay_changed(
    field: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: what the test above rests on. Prefect's own update leaves out what was not chosen, such as the path."""
    everything = deployments._fields
    register(workspace.spec, name="first")
    deployed()
    right = _compared(read("synthesize/first"))
    with client() as api:
        found = read("synthesize/first")
        if field in CHANGED:
            api.request("PATCH", f"/deployments/{found.id}", json={field: CHANGED[field]})
        else:
            name_blocks(api, found)
    planted = {field}
    monkeypatch.setattr(
        deployments,
        "_fields",
        lambda it: {name: value for name, value in everything(it).items() if name not in planted},
    )
    deployed()
    assert _compared(read("synthesize/first")) != right


SCHEDULE: dict[str, Any] = {
    "schedule": {"cron": "* * * * *", "timezone": "Asia/Tokyo"},
    "parameters": {"epsilon": 99.0},
    "max_scheduled_runs": 1,
    "slug": "mine",
}
"""A value for each field of a schedule that can be changed, other than the one that is deployed."""

SWITCHES = {"active", "replaces"}
"""A person's to decide; and not a field, but how another is renamed."""


def test_whatever_was_changed_in_a_schedule_is_as_deployed_after_the_next_time(workspace: Workspace) -> None:
    assert set(actions.DeploymentScheduleUpdate.model_fields) == SCHEDULE.keys() | SWITCHES
    register(workspace.spec, name="first", cron="0 3 * * *", timezone="Europe/Zurich")
    deployed()
    right = _compared(read("synthesize/first"))
    for field, value in SCHEDULE.items():
        with client() as api:
            found = read("synthesize/first")
            path = f"/deployments/{found.id}/schedules/{found.schedules[0].id}"
            api.request("PATCH", path, json={"parameters": found.schedules[0].parameters, field: value})
        assert _compared(read("synthesize/first")) != right, field
        deployed()
        assert _compared(read("synthesize/first")) == right, field


@pytest.mark.parametrize(
    ("planted", "field"),
    [("_settable", "max_scheduled_runs"), ("_plan", "slug")],
    ids=["not compared", "by its name alone"],
)
def test_a_field_of_a_schedule_that_is_not_looked_at_would_stay_changed(
    planted: str, field: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: without a look at the limit it stays, and a schedule that is known by its name alone is doubled when it is renamed."""
    register(workspace.spec, name="first", cron="0 3 * * *")
    deployed()
    right = _compared(read("synthesize/first"))
    with client() as api:
        found = read("synthesize/first")
        path = f"/deployments/{found.id}/schedules/{found.schedules[0].id}"
        api.request("PATCH", path, json={field: SCHEDULE[field]})
    less = {
        "_settable": lambda it: (it.schedule, it.parameters, it.active, it.slug),
        "_plan": lambda it: (it.schedule, it.parameters, it.slug),
    }
    monkeypatch.setattr(deployments, planted, less[planted])
    deployed()
    assert _compared(read("synthesize/first")) != right


def test_of_a_renamed_schedule_that_is_switched_off_ours_is_off(workspace: Workspace) -> None:
    register(workspace.spec, name="first", cron="0 3 * * *")
    deployed()
    with client() as api:
        found = read("synthesize/first")
        path = f"/deployments/{found.id}/schedules/{found.schedules[0].id}"
        api.request("PATCH", path, json={"slug": "mine", "active": False})
    deployed()
    assert crons("synthesize/first") == [("0 3 * * *", "UTC", False)]


PERSONS = {"description": "ours", "is_paused": True, "concurrency_limit": 3}
"""What a person decides about the pool, or about a queue: it stays."""


def test_the_template_of_the_pool_is_set_back_and_what_a_person_decides_about_it_stays(workspace: Workspace) -> None:
    ours, elsewhere = (
        {"base_job_template"},
        {"storage_configuration"},
    )  # for flows that are sent to a worker as a pickle
    assert set(actions.WorkPoolUpdate.model_fields) == PERSONS.keys() | ours | elsewhere
    ensure_pool("changed", worker=True)
    with client() as api:
        template = ProcessWorker.get_default_base_job_template()
        template["job_configuration"]["command"] = "touch here"
        api.request("PATCH", "/work_pools/changed", json=PERSONS | {"base_job_template": template})
        assert api.read_work_pool("changed").base_job_template == template
        ensure_pool("changed", worker=False)  # as `--deploy-only` does
        found = api.read_work_pool("changed")
    assert found.base_job_template == ProcessWorker.get_default_base_job_template()
    assert {name: getattr(found, name) for name in PERSONS} == PERSONS


def test_what_a_person_decides_about_the_queue_of_an_account_stays(workspace: Workspace) -> None:
    register(workspace.spec, name="first")
    deployed()
    with client() as api:
        api.request("PATCH", "/work_pools/dpflow/queues/visits", json=PERSONS)
        deployed()
        found = api.read_work_queue_by_name("visits", work_pool_name="dpflow")
        assert {name: getattr(found, name) for name in PERSONS} == PERSONS
        api.request("PATCH", "/work_pools/dpflow/queues/visits", json={"is_paused": False, "concurrency_limit": 1})


def test_an_unregistered_spec_is_removed_and_what_others_deployed_is_not(workspace: Workspace) -> None:
    register(workspace.spec, name="first")
    register(workspace.spec, name="second")
    deployed()
    with client() as api:
        flow = api.create_flow_from_name("synthesize")
        api.create_deployment(flow_id=flow, name="by-hand", tags=["mine"])
    unregister("first")
    found = deployed()
    assert found.removed == ("synthesize/first",)
    with client() as api:
        assert {it.name for it in api.read_deployments()} == {"budget", "by-hand", "second", "verify"}


def test_a_pool_of_another_type_is_no_place_for_our_worker(workspace: Workspace) -> None:
    with client() as api:
        api.create_work_pool(WorkPoolCreate(name="elsewhere", type="kubernetes"))
    ensure_pool("elsewhere", worker=False)
    with pytest.raises(UsageError, match="is of type kubernetes"):
        ensure_pool("elsewhere", worker=True)


def test_prefect_deploy_gives_the_same_deployments_for_the_sample(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPFLOW_REGISTRY", str(tmp_path / "registry"))  # the sample's own is the one of this project
    # Prefect's command knows neither spec nor ledger. The first run, or `budget`, fills the form in.
    monkeypatch.setattr(deployments, "filled", lambda schema, *_: schema)
    register(SAMPLE, cron="0 3 1 * *", timezone="Europe/Zurich")
    register_dashboard(SAMPLE.with_name("clinic-dashboard.yaml"), cron="0 6 * * *", timezone="Europe/Zurich")
    names = deployed().present
    ours = {name: _compared(read(name)) for name in names}
    # Prefect's command can't say that a form has no other fields; a run with such a field fails at its start.
    assert not any(found["parameter_openapi_schema"].pop("additionalProperties") for found in ours.values())
    with client() as api:
        for deployment in api.read_deployments():
            api.delete_deployment(deployment.id)
    command = [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(YAML)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: _compared(read(name)) for name in names} == ours
    with client() as api:
        assert len(api.read_deployments()) == len(names)
    assert deployed().removed == ()
    with client() as api:
        assert len(api.read_deployments()) == len(names)


def _compared(deployment: Any) -> dict[str, Any]:
    """Everything of a deployment but its identity, and when it was made and polled."""
    found = json.loads(deployment.model_dump_json())
    for name in ("id", "created", "updated", "last_polled", "status", "created_by", "updated_by", "version_id"):
        found.pop(name, None)
    if found["global_concurrency_limit"]:
        for name in ("id", "created", "updated", "name", "active_slots"):
            if name != "name" or found["global_concurrency_limit"]["name"].startswith("deployment:"):
                found["global_concurrency_limit"].pop(name, None)
    found["pull_steps"] = found["pull_steps"] or []
    for schedule in found["schedules"]:
        for name in ("id", "created", "updated", "deployment_id"):
            schedule.pop(name, None)
    return found
