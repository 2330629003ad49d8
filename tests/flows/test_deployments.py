import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dpcore.registry import register, unregister
from tests.conftest import Workspace

pytestmark = pytest.mark.prefect
YAML = Path(__file__).parents[2] / "deployments" / "prefect.yaml"
SAMPLE = Path(__file__).parents[2] / "data" / "clinic-visits.yaml"


@contextmanager
def client() -> Iterator[Any]:
    from prefect.client.orchestration import get_client  # noqa: PLC0415

    with get_client(sync_client=True) as found:
        yield found


@pytest.fixture(autouse=True)
def _pool(workspace: Workspace, prefect_server: str) -> Iterator[None]:
    """A work pool, and no deployment of ours left behind."""
    from flows.pool import ensure_pool  # noqa: PLC0415

    ensure_pool("dpflow", worker=True)
    yield
    with client() as api:
        for deployment in api.read_deployments():
            api.delete_deployment(deployment.id)


def deployed() -> Any:
    from flows.deployments import deploy  # noqa: PLC0415

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
    assert first.parameter_openapi_schema["properties"]["release"]["enum"] == ["first", "second"]
    assert crons("synthesize/first") == [("0 3 * * *", "Europe/Zurich", True)]
    assert crons("synthesize/second") == []
    assert crons("budget/budget") == [("*/15 * * * *", "UTC", True)]
    assert crons("verify/verify") == [("30 2 * * *", "UTC", True)]


def test_the_runs_of_one_account_are_taken_one_at_a_time_whatever_their_deployment(workspace: Workspace) -> None:
    from prefect.states import Running  # noqa: PLC0415

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


def test_no_folder_of_this_machine_is_in_a_deployment(workspace: Workspace) -> None:
    register(workspace.spec, name="first")
    deployed()
    first = read("synthesize/first")
    assert first.entrypoint == "flows.synthesize.synthesize"
    assert not first.path
    assert not first.pull_steps
    stored = first.model_dump_json()
    assert str(workspace.folder) not in stored
    assert str(Path(__file__).parents[2]) not in stored
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
    from prefect.client.schemas.actions import DeploymentUpdate  # noqa: PLC0415
    from prefect.client.schemas.schedules import CronSchedule  # noqa: PLC0415

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
    from prefect.client.schemas.actions import WorkPoolCreate  # noqa: PLC0415

    from dpcore.errors import UsageError  # noqa: PLC0415
    from flows.pool import ensure_pool  # noqa: PLC0415

    with client() as api:
        api.create_work_pool(WorkPoolCreate(name="elsewhere", type="kubernetes"))
    ensure_pool("elsewhere", worker=False)
    with pytest.raises(UsageError, match="is of type kubernetes"):
        ensure_pool("elsewhere", worker=True)


def test_prefect_deploy_gives_the_same_deployments_for_the_sample(prefect_server: str) -> None:
    register(SAMPLE, cron="0 3 1 * *", timezone="Europe/Zurich")
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
    found["global_concurrency_limit"] = found["global_concurrency_limit"]["limit"]
    found["pull_steps"] = found["pull_steps"] or []
    for schedule in found["schedules"]:
        for name in ("id", "created", "updated", "deployment_id"):
            schedule.pop(name, None)
    return found
