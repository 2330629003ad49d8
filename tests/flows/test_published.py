"""The event of a published release: emitted once, with nothing private in it, and it starts the deployment of a reader."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import flow, get_client
from prefect.automations import AutomationCore
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.flow_engine import run_flow

from flows.pages import announcements
from flows.synthesize import synthesize
from tests.conftest import Workspace
from tests.flows.conftest import DATABASE
from tests.flows.stack import wait_for

AUTOMATION = Path(__file__).parents[2] / "deployments" / "after-release.yaml"
pytestmark = pytest.mark.prefect


@flow(name="reader")
def reader(path: str) -> str:
    """Use a release, as somebody else's flow would."""
    return str(json.loads(Path(path, "manifest.json").read_text("utf-8"))["release"])


def emitted(release: Path, event: str, *, resource: str = "dpflow.dataset.visits") -> list[dict[str, Any]]:
    """Return what the server knows of an event of a release. Other tests may have published to a dataset of this name."""
    query = "SELECT resource, related, payload FROM events WHERE event = ? AND resource_id = ?"
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        found = database.execute(query, (event, resource))
        told = [dict(zip(("resource", "related", "payload"), map(json.loads, row), strict=True)) for row in found]
    return [each for each in told if each["payload"]["path"] == str(release)]


def test_each_release_is_announced_once_and_starts_the_deployment_of_its_reader(
    prefect_server: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    emit = announcements.emit_event
    monkeypatch.setattr(announcements, "emit_event", lambda event, **how: (sent.append(event), emit(event, **how)))
    workspace.write_spec(("rounds: 4", "rounds: 1"))
    workspace.open_account()
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow(reader), name="after-release")
        filled = yaml.safe_load(
            AUTOMATION.read_text("utf-8")
            .replace("dpflow.dataset.clinic-visits", "dpflow.dataset.visits")
            .replace("00000000-0000-0000-0000-000000000000", str(deployment))
        )
        automation = client.create_automation(AutomationCore.model_validate(filled))
        try:
            outcome = synthesize(str(workspace.spec))
            release = Path(outcome["release"]).absolute()
            wanted = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment]))
            (run,) = wait_for(lambda: client.read_flow_runs(flow_run_filter=wanted), "the run of the reader")
            assert run.parameters == {"path": str(release)}
            assert run_flow(reader, flow_run=run, parameters=run.parameters) == release.name
            synthesize(str(workspace.spec), resume=outcome["run"])  # it is there already
            assert sent.count(announcements.PUBLISHED) == sent.count(announcements.MATERIALIZED) == 1
            (told,) = wait_for(lambda: emitted(release, "dpflow.release.published"), "the event")
            (asset,) = wait_for(
                lambda: emitted(release, "prefect.asset.materialization.succeeded", resource="dpflow://visits"),
                "the event of the asset",
            )
        finally:
            client.delete_automation(automation)
    manifest = json.loads((release / "manifest.json").read_text("utf-8"))
    assert asset["resource"]["prefect.resource.name"] == "visits"
    roles = {each["prefect.resource.role"]: each["prefect.resource.id"] for each in asset["related"]}
    assert roles["asset-materialized-by"] == "dpflow"
    assert roles["flow-run"] == f"prefect.flow-run.{outcome['run']}"
    assert (
        told["payload"]
        == asset["payload"]
        == {
            "dataset": "visits",
            "release": release.name,
            "path": str(release),
            "rows": manifest["rows"],
            "privacy": manifest["privacy"],
        }
    )
