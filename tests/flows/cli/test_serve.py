import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from flows.cli import serve
from flows.cli.serve import worker_environment
from flows.deploy.deployments import ENGINE
from tests.flows.stack import RUN_SECONDS, Stack, wait_for
from tests.ports import free_port

FAR = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2099-01-01T00:00:00Z"}}
EVERY_MINUTE = {"schedule": {"cron": "* * * * *", "timezone": "Europe/Zurich"}, "active": True}

REFUSED: list[dict[str, Any]] = [
    {"release": "unknown"},
    {"epsilon": 101},
    {"rows": 2.5},
    {"note": "x" * 501},
    {"unknown": 1},
]
"""One value of each kind; `test_form` has them all."""


def scheduled(stack: Stack, deployment: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that the server's scheduler has made for a deployment and that wait for their time."""
    body = {
        "flow_runs": {"deployment_id": {"any_": [deployment["id"]]}, "state": {"type": {"any_": ["SCHEDULED"]}}},
        "sort": "EXPECTED_START_TIME_ASC",
    }
    return [run for run in stack.read("POST", "/flow_runs/filter", body) if run["auto_scheduled"]]


def ended(stack: Stack, deployment: dict[str, Any]) -> list[dict[str, Any]]:
    body = {
        "flow_runs": {"deployment_id": {"any_": [deployment["id"]]}, "state": {"type": {"any_": ["COMPLETED"]}}},
    }
    return [run for run in stack.read("POST", "/flow_runs/filter", body) if run["auto_scheduled"]]


@pytest.fixture
def every_minute(stack: Stack) -> Iterator[dict[str, Any]]:
    """The deployment `budget`, with a second schedule for as long as the test lasts."""
    deployment = stack.deployment("budget/budget")
    (schedule,) = stack.read("POST", f"/deployments/{deployment['id']}/schedules", [EVERY_MINUTE])
    yield deployment
    stack.read("DELETE", f"/deployments/{deployment['id']}/schedules/{schedule['id']}")


def test_a_cron_deployment_yields_scheduled_runs_and_the_worker_executes_one(
    stack: Stack, every_minute: dict[str, Any]
) -> None:
    before = {run["id"] for run in ended(stack, every_minute)}
    soon = datetime.now(UTC) + timedelta(minutes=3)

    def in_the_next_minutes() -> list[dict[str, Any]]:
        return [
            run for run in scheduled(stack, every_minute) if datetime.fromisoformat(run["expected_start_time"]) < soon
        ]

    # The schedule of 15 minutes alone yields at most one of them.
    assert wait_for(lambda: len(in_the_next_minutes()) >= 2, "runs that the scheduler makes")
    # Control: a deployment without a schedule yields none.
    assert scheduled(stack, stack.deployment("synthesize/visits")) == []
    (run, *_) = wait_for(
        lambda: [run for run in ended(stack, every_minute) if run["id"] not in before], "a run that the worker executes"
    )
    assert run["name"] == "budget of all accounts"
    assert "account-visits" in {it["key"] for it in stack.read("POST", "/artifacts/filter", {})}


def asked(stack: Stack, parameters: dict[str, Any], tag: str) -> tuple[int, list[dict[str, Any]]]:
    """Ask for a run in a far future, and return the answer's code and the runs that there are with this tag."""
    path = f"/deployments/{stack.deployment()['id']}/create_flow_run"
    answer = stack.api("POST", path, {"parameters": parameters, "state": FAR, "tags": [tag]})
    runs = stack.read("POST", "/flow_runs/filter", {"flow_runs": {"tags": {"all_": [tag]}}})
    for run in runs:
        stack.read("DELETE", f"/flow_runs/{run['id']}")
    return answer.status_code, runs


@pytest.mark.parametrize("parameters", REFUSED, ids=lambda value: str(value)[:30])
def test_a_refused_value_starts_no_run(stack: Stack, parameters: dict[str, Any]) -> None:
    assert asked(stack, parameters, "refused") == (409, [])


def test_of_thirty_submissions_at_once_none_is_turned_away(stack: Stack) -> None:
    path = f"deployments/{stack.deployment()['id']}/create_flow_run"
    body = {"parameters": {}, "state": FAR, "tags": ["many"]}
    with stack.client(timeout=RUN_SECONDS) as client, ThreadPoolExecutor(30) as people:
        proof = stack.proof(client, "POST")
        codes = list(people.map(lambda _: client.post(path, json=body, headers=proof).status_code, range(30)))
    runs = stack.read("POST", "/flow_runs/filter", {"flow_runs": {"tags": {"all_": ["many"]}}})
    for run in runs:
        stack.read("DELETE", f"/flow_runs/{run['id']}")
    assert (codes, len(runs)) == ([201] * 30, 30)


def test_a_value_within_the_limits_is_accepted(stack: Stack) -> None:
    parameters = {"epsilon": 100, "delta": 0, "rows": 1, "workload": 8, "strategy": "pmw", "note": "x" * 500}
    code, (run,) = asked(stack, parameters, "accepted")
    assert code == 201
    assert run["parameters"] == {"release": "visits"} | parameters
    assert set(run["tags"]) == {"dpflow", "visits", "accepted"}


def test_deployed_again_nothing_is_doubled(stack: Stack) -> None:
    def there() -> tuple[list[Any], list[Any], list[Any]]:
        deployments = stack.read("POST", "/deployments/filter", {})
        automations = stack.read("POST", "/automations/filter", {})
        pools = stack.read("POST", "/work_pools/filter", {})
        return (
            sorted((it["id"], [(s["id"], s["schedule"], s["active"]) for s in it["schedules"]]) for it in deployments),
            sorted((it["id"], it["name"]) for it in automations),
            sorted(it["id"] for it in pools),
        )

    before = there()
    said = stack.dpflow("serve", "--deploy-only")  # finds the server that `dpflow ui` runs in the folder
    assert "deployed synthesize/visits" in said
    assert "--notify BLOCK_TYPE/BLOCK_NAME" in said
    assert there() == before
    assert [name for _, name in before[1] if not name.startswith("dpflow:")] == []
    assert len({name for _, name in before[1]}) == len(before[1]) == 5


def test_a_run_from_the_command_line_is_shown_in_the_ui_of_its_folder(stack: Stack) -> None:
    (said,) = [line for line in stack.dpflow("run", "visits", "--json").splitlines() if line.startswith("{")]
    run = stack.run(json.loads(said)["run"])
    assert (run["state_name"], run["deployment_id"]) == ("Completed", None)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Stack:
    """A project in which nothing runs."""
    (tmp_path / ".dpflow").mkdir()
    return Stack(tmp_path, free_port())


@pytest.mark.parametrize(
    ("configured", "words"),
    [
        (None, "no Prefect server is configured; set PREFECT_API_URL"),
        ("http://me:secret@127.0.0.1:9/api", "the Prefect server at http://127.0.0.1:9/api does not answer"),
    ],
    ids=["none", "silent"],
)
def test_without_a_server_that_answers_serving_is_refused(
    elsewhere: Stack, monkeypatch: pytest.MonkeyPatch, configured: str | None, words: str
) -> None:
    monkeypatch.setattr(serve, "configured_url", lambda: configured)
    said = elsewhere.here("serve", code=2)
    assert words in said
    assert "secret" not in said


class Locked(BaseHTTPRequestHandler):
    """A server that asks everybody for a password."""

    def _refuse(self) -> None:
        self.send_response(401)
        self.end_headers()

    do_GET = do_POST = _refuse  # noqa: N815  names of the library

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_server_that_asks_for_a_password_is_named_with_what_to_set(elsewhere: Stack) -> None:
    with ThreadingHTTPServer(("127.0.0.1", elsewhere.port), Locked) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        configured = Stack(elsewhere.folder, elsewhere.port, {"PREFECT_API_URL": elsewhere.url})
        said = configured.dpflow("serve", "--deploy-only", code=2)
        server.shutdown()
    assert "asks for a password; set PREFECT_API_AUTH_STRING" in said


@pytest.mark.parametrize("block", ["slack", "/steward", "slack-webhook/"])
def test_a_block_without_type_or_name_is_refused(elsewhere: Stack, block: str) -> None:
    assert "must be TYPE/NAME of a block" in elsewhere.here("serve", "--notify", block, code=2)


def test_worker_and_runs_get_absolute_places_and_settings_that_nobody_has_loosened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_PRIVATE")
    monkeypatch.setenv("PREFECT_LOGGING_LOG_PRINTS", "true")
    monkeypatch.setenv("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "600")
    found = worker_environment()
    assert found["DPFLOW_LEDGER_URL"] == f"sqlite:///{tmp_path}/.dpflow/ledger.sqlite"
    assert found["DPFLOW_PRIVATE"] == f"{tmp_path}/.dpflow/private"
    assert found["DPFLOW_REGISTRY"] == f"{tmp_path}/.dpflow/registry"
    assert found["PREFECT_LOGGING_LOG_PRINTS"] == "false"
    assert found["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
    assert found["DO_NOT_TRACK"] == "1"


def test_the_command_of_a_run_finds_the_interpreter_of_its_worker() -> None:
    def imports_prefect(path: str) -> bool:
        command = [
            *ENGINE.split()[:1],
            "-c",
            "import importlib.util as u; raise SystemExit(not u.find_spec('prefect'))",
        ]
        return subprocess.run(command, env={"PATH": path}, check=False).returncode == 0

    assert imports_prefect(worker_environment()["PATH"])
    assert not imports_prefect("/usr/bin:/bin")
