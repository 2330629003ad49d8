"""What `dpflow ui` survives. Its programs are killed here, so these tests are the last that use the shared installation."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import pytest

from flows.cli.ui import CANCELLING_SECONDS
from flows.server import background
from tests.flows.stack import Stack, wait_for
from tests.ports import free_port

SILENT = "dpflow: silent runs are dead"
CRASHED = "dpflow: crashed runs go on"
LATER = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2099-01-01T00:00:00Z"}}


def processes(stack: Stack) -> list[psutil.Process]:
    return background.all_of(stack.folder / ".dpflow" / "ui")


def pids(stack: Stack) -> tuple[int, int]:
    """The numbers of server and worker."""
    note = json.loads((stack.folder / ".dpflow" / "ui" / "running.json").read_text(encoding="utf-8"))
    return note["server"]["pid"], note["worker"]["pid"]


def online(stack: Stack, pid: int) -> bool:
    workers = stack.read("POST", "/work_pools/dpflow/workers/filter", {})
    return any(it["name"].endswith(f" {pid}") and it["status"] == "ONLINE" for it in workers)


def automation(stack: Stack, name: str) -> dict[str, Any]:
    (found,) = [it for it in stack.read("POST", "/automations/filter", {}) if it["name"] == name]
    return found


def switch(stack: Stack, name: str, *, enabled: bool) -> None:
    stack.read("PATCH", f"/automations/{automation(stack, name)['id']}", {"enabled": enabled})


def shortened(automation: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return an automation, such as it is sent to the server, that waits for the shortest time that Prefect allows."""
    sent = ("name", "description", "enabled", "tags", "actions", "actions_on_trigger", "actions_on_resolve")
    return {name: automation[name] for name in sent} | {"trigger": automation["trigger"] | {"within": 10} | changes}


def beat(stack: Stack, *runs: str) -> None:
    """Send a heartbeat of runs, as if it had been on its way for longer than the news of what has become of them."""
    ours = {"prefect.resource.id": "prefect.tag.dpflow", "prefect.resource.role": "tag"}
    now = datetime.now(UTC).isoformat()
    events = [
        {
            "event": "prefect.flow-run.heartbeat",
            "id": str(uuid4()),
            "occurred": now,
            "resource": {"prefect.resource.id": f"prefect.flow-run.{run}"},
            "related": [ours],
        }
        for run in runs
    ]
    stack.read("POST", "/events", events)


def refused_actions(stack: Stack, run: str) -> int:
    """Count how often an automation wanted to change a run and the server did not let it."""
    failed = {"filter": {"event": {"name": ["prefect.automation.action.failed"]}}, "limit": 50}
    return sum(run in str(event["related"]) for event in stack.read("POST", "/events/filter", failed)["events"])


def in_the_middle(stack: Stack) -> str:
    """Start a run, and return its id once it has measured something and stands before the gate."""
    (stack.gate / "open").unlink(missing_ok=True)
    before = set(stack.gate.iterdir())
    run_id = stack.start()
    wait_for(lambda: set(stack.gate.iterdir()) - before, "a run at the gate", tell=lambda: stack.told(run_id))
    assert stack.run(run_id)["state_type"] == "RUNNING", stack.told(run_id)
    return run_id


def open_gate(stack: Stack) -> None:
    (stack.gate / "open").touch()


def account(stack: Stack, name: str) -> dict[str, Any]:
    (found,) = json.loads(stack.here("ledger", "show", name, "--json"))["accounts"]
    return dict(found)


def test_started_twice_it_says_where_it_runs(stack: Stack) -> None:
    before = pids(stack)
    said = stack.here("ui")
    assert stack.page in said
    assert "runs already" in said
    assert "ignored" not in said + stack.here("ui", "--port", str(stack.port))
    assert f"--port 1 was ignored, because the server already runs on {stack.port}" in stack.here("ui", "--port", "1")
    assert pids(stack) == before


def test_a_cancelled_run_whose_process_is_dead_holds_up_its_account_for_a_minute(stack: Stack) -> None:
    services = stack.read("GET", "/admin/settings")["server"]["services"]
    assert services["cancellation_cleanup"]["cancelling_timeout_seconds"] == CANCELLING_SECONDS == 60


def test_a_worker_in_the_foreground_ends_cleanly_when_it_is_asked_to(stack: Stack) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "flows", "serve"],
        cwd=stack.folder,
        env=stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as serving:
        wait_for(lambda: online(stack, serving.pid) or serving.poll() is not None, "a second worker")
        serving.terminate()
        said = serving.communicate()[0]
    assert serving.returncode == 0, said
    assert said.endswith("the worker has stopped\n")
    assert "Traceback" not in said


def test_a_run_that_was_interrupted_by_a_stop_goes_on_after_the_next_start(stack: Stack) -> None:
    # On a busy machine the server's own rule for crashed runs may be quicker than the worker, whose words are wanted here.
    switch(stack, CRASHED, enabled=False)
    run_id = in_the_middle(stack)
    assert stack.here("ui", "--stop") == "stopped\n"
    assert processes(stack) == []
    open_gate(stack)
    stack.ui()
    run = stack.wait(run_id, until=lambda run: run["state_type"] == "COMPLETED")
    assert run["run_count"] == 2, stack.told(run_id)
    states = {state["name"]: state["message"] for state in stack.states(run_id)}
    assert states["Crashed"] == "Execution was aborted by a termination signal."
    assert "its worker was stopped" in states["AwaitingRetry"]
    assert stack.release(run_id).is_dir()
    switch(stack, CRASHED, enabled=True)


def test_a_run_whose_worker_was_killed_with_it_goes_on_and_pays_once(stack: Stack) -> None:
    silent = automation(stack, SILENT)
    stack.read("PUT", f"/automations/{silent['id']}", shortened(silent))  # two minutes otherwise
    run_id = in_the_middle(stack)
    server, _ = pids(stack)
    for process in processes(stack):
        if process.pid != server:
            process.kill()
    stack.wait(run_id, until=lambda run: run["state_name"] == "AwaitingRetry")
    open_gate(stack)
    stack.ui()
    assert pids(stack)[0] == server
    run = stack.wait(run_id)
    assert (run["state_name"], run["run_count"]) == ("Completed", 2)
    assert stack.release(run_id).is_dir()
    assert automation(stack, SILENT)["trigger"]["within"] == 120
    paying = account(stack, "visits")
    (paid,) = [it for it in paying["runs"] if it["run"] == run_id]
    assert 0 < paid["spent"] <= paid["reserved"]
    assert paying["spent"] == pytest.approx(sum(it["spent"] for it in paying["runs"]))


@pytest.fixture(scope="module")
def patient(stack: Stack) -> str:
    """A run that waits for approval."""
    run_id = stack.start({"release": "patient"}, deployment="synthesize/patient")
    stack.wait(run_id, until=lambda it: it["state_name"] == "Suspended")
    return run_id


def test_a_run_that_waits_for_approval_outlives_every_silence(stack: Stack, patient: str) -> None:
    """A heartbeat that arrives late makes a run count as alive, and then as silent. Only a run that is running is dead then."""
    victim = stack.read(
        "POST", f"/deployments/{stack.deployment()['id']}/create_flow_run", {"parameters": {}, "state": LATER}
    )["id"]
    stack.read("POST", f"/flow_runs/{victim}/set_state", {"state": {"type": "PAUSED", "name": "Suspended"}})
    silent = automation(stack, SILENT)
    stack.read("PUT", f"/automations/{silent['id']}", shortened(silent))
    # Planted: the rule as it would be without that condition, for one of the two runs.
    match = {"prefect.resource.id": f"prefect.flow-run.{victim}"}
    planted = shortened(silent, match=match) | {
        "name": "planted",
        "actions": [{"type": "change-flow-run-state", "state": "CRASHED"}],
    }
    made = stack.read("POST", "/automations/", planted)["id"]
    for silences in (1, 2):
        beat(stack, patient, victim)
        wait_for(lambda: refused_actions(stack, patient) >= silences, "the rule for silent runs", tell=stack.log)  # noqa: B023
    wait_for(lambda: "Crashed" in {state["name"] for state in stack.states(victim)}, "the planted rule", tell=stack.log)
    stack.read("DELETE", f"/automations/{made}")
    stack.read("DELETE", f"/flow_runs/{victim}")
    assert [state["name"] for state in stack.states(patient)][-1] == "Suspended", stack.told(patient)


class Inbox(BaseHTTPRequestHandler):
    """Somebody who is notified."""

    letters: ClassVar[list[dict[str, str]]] = []

    def do_POST(self) -> None:
        """Keep what was sent."""
        self.letters.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def save_webhook(stack: Stack, name: str, url: str) -> None:
    """Make a notification block, as a person does in the UI."""
    kind = stack.read("GET", "/block_types/slug/custom-webhook")["id"]
    (schema, *_) = stack.read("POST", "/block_schemas/filter", {"block_schemas": {"block_type_id": {"any_": [kind]}}})
    form = {"subject": "{{subject}}", "body": "{{body}}"}
    data = {"name": name, "url": url, "method": "POST", "json_data": form}
    document = {"name": name, "data": data, "block_type_id": kind, "block_schema_id": schema["id"]}
    stack.read("POST", "/block_documents/", document)


def test_whoever_was_named_is_notified_of_an_account_that_passes_80_percent(stack: Stack) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Inbox) as inbox:
        Thread(target=inbox.serve_forever, daemon=True).start()
        save_webhook(stack, "steward", f"http://127.0.0.1:{inbox.server_address[1]}/")
        assert "nobody is told" not in stack.dpflow("serve", "--deploy-only", "--notify", "custom-webhook/steward")
        resource = {"prefect.resource.id": "dpflow.account.visits", "prefect.resource.name": "visits"}
        event = {"occurred": datetime.now(UTC).isoformat(), "resource": resource, "payload": {"percent": 81.5}}
        events = [
            event | {"event": name, "id": str(uuid4())} for name in ("dpflow.account.used", "dpflow.account.passed")
        ]
        stack.read("POST", "/events", events)
        wait_for(lambda: Inbox.letters, "a letter")
        inbox.shutdown()
    (letter,) = Inbox.letters  # of the other event nobody is told
    assert letter["subject"] == "dpflow: visits has passed 80 % of its budget"
    assert letter["body"].startswith("81.5 % of the budget of account visits is spent or reserved.")


def test_a_killed_server_is_started_again_on_another_port_and_a_run_that_waited_for_approval_goes_on(
    stack: Stack, patient: str
) -> None:
    (server, worker), secret = pids(stack), stack.password
    os.kill(server, signal.SIGKILL)
    # From now on another account could listen on the port, and the worker would take it for the server.
    wait_for(lambda: processes(stack) == [], "the end of the worker")
    assert "the Prefect server of this folder has stopped" in stack.log()
    with socket.create_server(("127.0.0.1", stack.port)):  # by now it may be another program's
        said = json.loads(stack.dpflow("ui", "--json"))
        again = replace(stack, port=int(urlsplit(said["api"]).port or 0))
        assert again.port != stack.port
        assert said["page"].startswith(f"{again.page}/open/")
        assert pids(again)[0] != server
        assert not psutil.pid_exists(worker)
        assert again.password != secret
        assert again.deployment("synthesize/visits")["name"] == "visits"
        assert online(again, pids(again)[1])
        # The command finds the server by the note of the folder.
        assert "deployed synthesize/patient" in again.dpflow("serve", "--deploy-only")
        resumed = again.read("POST", f"/flow_runs/{patient}/resume", {})
        assert resumed["status"] == "ACCEPT", resumed
        assert again.wait(patient)["state_name"] == "Completed", again.told(patient)
    names = [state["name"] for state in again.states(patient)]
    assert (names.count("Suspended"), names.count("Completed"), "Crashed" in names) == (1, 1, False), names
    assert [it["run"] for it in account(again, "patient")["runs"]] == [patient]


def test_stopped_after_both_were_killed_nothing_is_left(stack: Stack) -> None:
    for process in processes(stack):
        process.kill()
    stack.here("ui", "--stop")
    assert processes(stack) == []
    assert stack.here("ui", "--stop") == "nothing is running for this folder\n"


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / ".dpflow").mkdir()
    with socket.create_server(("127.0.0.1", port)):
        said = Stack(tmp_path, port).here("ui", "--port", str(port), code=2)
    assert f"port {port} is in use, or you may not use it" in said
    assert "omit --port" in said
    assert background.all_of(tmp_path / ".dpflow" / "ui") == []


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_a_number_that_is_no_port_is_refused(tmp_path: Path, port: str) -> None:
    assert "--port" in Stack(tmp_path, 1).here("ui", "--port", port, code=2)


def test_a_damaged_registry_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    damaged = tmp_path / ".dpflow" / "registry" / "visits.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{", encoding="utf-8")
    assert "dpflow register visits --remove" in Stack(tmp_path, free_port()).here("ui", code=2)
    assert not (tmp_path / ".dpflow" / "ui").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ui"], 2, "open the account that pays first"),
        (["serve"], 2, "open the account that pays first"),
        (["ui", "--stop"], 0, "nothing is running"),
    ],
    ids=["ui", "serve", "stop"],
)
def test_where_no_account_was_opened_nothing_is_started_or_created(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    assert words in Stack(tmp_path, free_port()).here(*arguments, code=code)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_start_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / ".dpflow").mkdir()
    broken = Stack(tmp_path, free_port(), {"PREFECT_SERVER_DATABASE_CONNECTION_URL": "nonsense://"})
    assert "the Prefect server did not start" in broken.dpflow("ui", "--port", str(broken.port), code=1)
    assert processes(broken) == []


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / ".dpflow").mkdir()
    (tmp_path / ".dpflow" / "ui").write_text("a file", encoding="utf-8")
    assert "change to a folder of your own" in Stack(tmp_path, free_port()).here("ui", code=1)


STAND_INS = """
import os, signal
from contextlib import nullcontext
from flows.cli import ui
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as under a terminal, also if the tests run under nohup
start = ui.background.start
ui.background.start = lambda _arguments, **options: start(["-c", "import time; time.sleep(600)"], **options)
ui._wait_for_worker = lambda _now: None

class Late:
    def __del__(self):
        os.kill(os.getpid(), {number})

def both_run(*_, **__):
    {interrupt}
    return True

ui.server_answers = both_run
{planted}
ui._start(None)
"""
"""A start of programs that do nothing, which is interrupted when both of them run."""

AT_ONCE, IN_A_DESTRUCTOR = "os.kill(os.getpid(), {number})", "Late()"
UNTOUCHED = "ui._signals = lambda _: nullcontext()"
"""Planted: signals do what they do to any program."""


@contextmanager
def interrupted(place: Path, number: signal.Signals, interrupt: str, *, planted: str = "") -> Iterator[Stack]:
    """Interrupt the start of server and worker, and end afterwards what it has left behind."""
    (place / ".dpflow").mkdir()
    starting = Stack(place, 0)
    interrupt = interrupt.format(number=int(number))
    program = STAND_INS.format(number=int(number), interrupt=interrupt, planted=planted)
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=place, env=starting.environment, capture_output=True, check=False
    )
    assert ended.returncode, "the start was not interrupted"
    try:
        yield starting
    finally:
        background.end(processes(starting), patience=0)


@pytest.mark.parametrize(
    ("number", "interrupt"),
    [(signal.SIGTERM, AT_ONCE), (signal.SIGHUP, AT_ONCE), (signal.SIGTERM, IN_A_DESTRUCTOR)],
    ids=["terminated", "terminal closed", "in a destructor, where Python drops exceptions"],
)
def test_a_start_that_is_interrupted_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, interrupt: str
) -> None:
    with interrupted(tmp_path, number, interrupt) as starting:
        assert processes(starting) == []


def test_a_start_that_does_not_look_after_signals_leaves_server_and_worker(tmp_path: Path) -> None:
    with interrupted(tmp_path, signal.SIGTERM, AT_ONCE, planted=UNTOUCHED) as starting:
        assert len(processes(starting)) == 2
