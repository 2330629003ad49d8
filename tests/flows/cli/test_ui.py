"""What `dpflow ui` survives, on an installation of this file's own: others share the session's, where nothing may be killed."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
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
from tests.flows.server.gated import VARIABLE
from tests.flows.stack import Stack, kept_stack, wait_for
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
GATE = "gate"
GATED = """
import sys
if "flows.worker.execute" in sys.orig_argv:
    import tests.flows.server.gated
"""
SILENT = "dpflow: silent runs are dead"
CRASHED = "dpflow: crashed runs go on"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """An installation that has made its own database, and whose runs stop at a gate unless it is open."""
    place = tmp_path_factory.mktemp("ui")
    (place / "sitecustomize.py").write_text(GATED, encoding="utf-8")
    more = {"PYTHONPATH": os.pathsep.join([str(place), str(ROOT)]), VARIABLE: str(place / "own" / GATE)}
    for made in kept_stack(place / "own", more=more):
        (made.folder / GATE).mkdir()
        made.ui()
        yield made


def processes(own: Stack) -> list[psutil.Process]:
    return background.all_of(own.folder / ".dpflow" / "ui")


def pids(own: Stack) -> tuple[int, int]:
    """The numbers of server and worker."""
    note = json.loads((own.folder / ".dpflow" / "ui" / "running.json").read_text(encoding="utf-8"))
    return note["server"]["pid"], note["worker"]["pid"]


def online(own: Stack, pid: int) -> bool:
    workers = own.read("POST", "/work_pools/dpflow/workers/filter", {})
    return any(it["name"].endswith(f" {pid}") and it["status"] == "ONLINE" for it in workers)


def automation(own: Stack, name: str) -> dict[str, Any]:
    (found,) = [it for it in own.read("POST", "/automations/filter", {}) if it["name"] == name]
    return found


def switch(own: Stack, name: str, *, enabled: bool) -> None:
    own.read("PATCH", f"/automations/{automation(own, name)['id']}", {"enabled": enabled})


def shorten(own: Stack, automation: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return an automation, such as it is sent to the server, that waits for the shortest time that Prefect allows."""
    fields = (
        "name",
        "description",
        "enabled",
        "tags",
        "trigger",
        "actions",
        "actions_on_trigger",
        "actions_on_resolve",
    )
    trigger = automation["trigger"] | {"within": 10} | changes
    return {name: automation[name] for name in fields} | {"trigger": trigger}


def beat(own: Stack, *runs: str) -> None:
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
    own.read("POST", "/events", events)


def refused_actions(own: Stack, run: str) -> int:
    """Count how often an automation wanted to change a run and the server did not let it."""
    wanted = {"filter": {"event": {"name": ["prefect.automation.action.failed"]}}, "limit": 50}
    return sum(run in str(event["related"]) for event in own.read("POST", "/events/filter", wanted)["events"])


def in_the_middle(own: Stack) -> str:
    """Start a run, and return its id once it has measured something and stands before the gate."""
    gate = own.folder / GATE
    (gate / "open").unlink(missing_ok=True)
    before = set(gate.iterdir())
    run_id = own.start()
    wait_for(lambda: set(gate.iterdir()) - before, "a run at the gate", tell=lambda: own.told(run_id))
    assert own.run(run_id)["state_type"] == "RUNNING", own.told(run_id)
    return run_id


def open_gate(own: Stack) -> None:
    (own.folder / GATE / "open").touch()


def test_started_twice_it_says_where_it_runs(own: Stack) -> None:
    before = pids(own)
    said = own.ui()
    assert own.page in said
    assert "runs already" in said
    assert "ignored" not in said + own.dpflow("ui")
    assert f"--port 1 was ignored, because the server already runs on {own.port}" in own.dpflow("ui", "--port", "1")
    assert pids(own) == before


def test_a_cancelled_run_whose_process_is_dead_holds_up_its_account_for_a_minute(own: Stack) -> None:
    services = own.read("GET", "/admin/settings")["server"]["services"]
    assert services["cancellation_cleanup"]["cancelling_timeout_seconds"] == CANCELLING_SECONDS == 60


def test_a_run_that_was_interrupted_by_a_stop_goes_on_after_the_next_start(own: Stack) -> None:
    # On a busy machine the server's own rule for crashed runs may be quicker than the worker, whose words are wanted here.
    switch(own, CRASHED, enabled=False)
    run_id = in_the_middle(own)
    assert own.stop() == "stopped\n"
    assert processes(own) == []
    open_gate(own)
    own.ui()
    run = own.wait(run_id, until=lambda run: run["state_type"] == "COMPLETED")
    assert run["run_count"] == 2, own.told(run_id)
    states = {state["name"]: state["message"] for state in own.states(run_id)}
    assert states["Crashed"] == "Execution was aborted by a termination signal."
    assert "its worker was stopped" in states["AwaitingRetry"]
    assert own.release(run_id).is_dir()
    switch(own, CRASHED, enabled=True)


def test_a_run_whose_worker_was_killed_with_it_goes_on_and_pays_once(own: Stack) -> None:
    silent = automation(own, SILENT)
    own.read("PUT", f"/automations/{silent['id']}", shorten(own, silent))  # two minutes otherwise
    run_id = in_the_middle(own)
    server, _ = pids(own)
    for process in processes(own):
        if process.pid != server:
            process.kill()
    own.wait(run_id, until=lambda run: run["state_name"] == "AwaitingRetry")
    open_gate(own)
    own.ui()
    assert pids(own)[0] == server
    run = own.wait(run_id)
    assert (run["state_name"], run["run_count"]) == ("Completed", 2)
    assert own.release(run_id).is_dir()
    assert automation(own, SILENT)["trigger"]["within"] == 120
    (account,) = json.loads(own.here("ledger", "show", "visits", "--json"))["accounts"]
    (paid,) = [it for it in account["runs"] if it["run"] == run_id]
    assert 0 < paid["spent"] <= paid["reserved"]
    assert account["spent"] == pytest.approx(sum(it["spent"] for it in account["runs"]))


def test_a_run_that_waits_for_approval_outlives_every_silence_and_completes_once(own: Stack) -> None:
    """A heartbeat that arrives late makes a run count as alive, and then as silent. Only a run that is running is dead then."""
    own.register("patient")
    own.here("approval", "patient", "--above", "0.5", "--within", "24h")
    own.dpflow("serve", "--deploy-only")
    open_gate(own)
    silent = automation(own, SILENT)
    patient, victim = (own.start({"release": "patient"}, deployment="synthesize/patient") for _ in range(2))
    for run in (patient, victim):
        own.wait(run, until=lambda it: it["state_name"] == "Suspended")
    own.read("PUT", f"/automations/{silent['id']}", shorten(own, silent))
    # Planted: the rule as it would be without that condition, for one of the two runs.
    match = {"prefect.resource.id": f"prefect.flow-run.{victim}"}
    planted = shorten(own, silent, match=match) | {
        "name": "planted",
        "actions": [{"type": "change-flow-run-state", "state": "CRASHED"}],
    }
    made = own.read("POST", "/automations/", planted)["id"]
    for silences in (1, 2):
        beat(own, patient, victim)
        wait_for(lambda: refused_actions(own, patient) >= silences, "the rule for silent runs", tell=own.log)  # noqa: B023
    wait_for(lambda: "Crashed" in {state["name"] for state in own.states(victim)}, "the planted rule", tell=own.log)
    own.read("DELETE", f"/automations/{made}")
    own.read("DELETE", f"/flow_runs/{victim}")
    assert [state["name"] for state in own.states(patient)][-1] == "Suspended", own.told(patient)
    own.dpflow("serve", "--deploy-only")  # the rule as it was, for a run that takes its time
    own.read("POST", f"/flow_runs/{patient}/resume", {})
    assert own.wait(patient)["state_name"] == "Completed", own.told(patient)
    names = [state["name"] for state in own.states(patient)]
    assert (names.count("Suspended"), names.count("Completed"), "Crashed" in names) == (1, 1, False), names
    (account,) = json.loads(own.here("ledger", "show", "patient", "--json"))["accounts"]
    assert [it["run"] for it in account["runs"]] == [patient]


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


def save_webhook(own: Stack, name: str, url: str) -> None:
    """Make a notification block, as a person does in the UI."""
    kind = own.read("GET", "/block_types/slug/custom-webhook")["id"]
    (schema, *_) = own.read("POST", "/block_schemas/filter", {"block_schemas": {"block_type_id": {"any_": [kind]}}})
    form = {"subject": "{{subject}}", "body": "{{body}}"}
    data = {"name": name, "url": url, "method": "POST", "json_data": form}
    document = {"name": name, "data": data, "block_type_id": kind, "block_schema_id": schema["id"]}
    own.read("POST", "/block_documents/", document)


def test_whoever_was_named_is_notified_of_an_account_that_passes_80_percent(own: Stack) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Inbox) as inbox:
        Thread(target=inbox.serve_forever, daemon=True).start()
        save_webhook(own, "steward", f"http://127.0.0.1:{inbox.server_address[1]}/")
        assert "nobody is told" not in own.dpflow("serve", "--deploy-only", "--notify", "custom-webhook/steward")
        resource = {"prefect.resource.id": "dpflow.account.visits", "prefect.resource.name": "visits"}
        event = {"occurred": datetime.now(UTC).isoformat(), "resource": resource, "payload": {"percent": 81.5}}
        events = [
            event | {"event": name, "id": str(uuid4())} for name in ("dpflow.account.used", "dpflow.account.passed")
        ]
        own.read("POST", "/events", events)
        wait_for(lambda: Inbox.letters, "a letter")
        inbox.shutdown()
    (letter,) = Inbox.letters  # of the other event nobody is told
    assert letter["subject"] == "dpflow: visits has passed 80 % of its budget"
    assert letter["body"].startswith("81.5 % of the budget of account visits is spent or reserved.")


def test_a_killed_server_is_started_again_with_everything_deployed(own: Stack) -> None:
    (server, worker), secret = pids(own), own.password
    os.kill(server, signal.SIGKILL)
    # From now on another account could listen on the port, and the worker would take it for the server.
    wait_for(lambda: processes(own) == [], "the end of the worker")
    assert "the Prefect server of this folder has stopped" in own.log()
    own.ui()
    assert pids(own)[0] != server
    assert not psutil.pid_exists(worker)
    assert own.password != secret
    assert own.deployment("synthesize/visits")["name"] == "visits"
    assert online(own, pids(own)[1])


def test_a_worker_in_the_foreground_ends_cleanly_when_it_is_asked_to(own: Stack) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "flows", "serve"],
        cwd=own.folder,
        env=own.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as serving:
        wait_for(lambda: online(own, serving.pid) or serving.poll() is not None, "a second worker")
        serving.terminate()
        said = serving.communicate(timeout=60)[0]
    assert serving.returncode == 0, said
    assert said.endswith("the worker has stopped\n")
    assert "Traceback" not in said


def test_after_a_kill_it_has_another_port_and_a_run_that_waited_for_approval_goes_on(own: Stack) -> None:
    own.register("late")
    own.here("approval", "late", "--above", "0.5", "--within", "24h")
    own.dpflow("serve", "--deploy-only")
    open_gate(own)
    waiting = own.start({"release": "late"}, deployment="synthesize/late")
    own.wait(waiting, until=lambda run: run["state_name"] == "Suspended")
    wait_for(lambda: {it.pid for it in processes(own)} == set(pids(own)), "the end of the run's process")
    os.kill(pids(own)[0], signal.SIGKILL)
    wait_for(lambda: processes(own) == [], "the end of the worker")
    with socket.create_server(("127.0.0.1", own.port)):  # by now it may be another program's
        said = json.loads(own.dpflow("ui", "--json"))
        again = replace(own, port=int(urlsplit(said["api"]).port or 0))
        assert again.port != own.port
        assert said["page"].startswith(f"{again.page}/open/")
        # The command finds the server by the note of the folder.
        assert "deployed synthesize/late" in own.dpflow("serve", "--deploy-only")
        resumed = again.read("POST", f"/flow_runs/{waiting}/resume", {})
        assert resumed["status"] == "ACCEPT", resumed
        assert again.wait(waiting)["state_name"] == "Completed", again.told(waiting)


def test_stopped_after_both_were_killed_nothing_is_left(own: Stack) -> None:
    for process in processes(own):
        process.kill()
    own.stop()
    assert processes(own) == []
    assert own.stop() == "nothing is running for this folder\n"


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / ".dpflow").mkdir()
    with socket.create_server(("127.0.0.1", port)):
        said = Stack(tmp_path, port).dpflow("ui", "--port", str(port), code=2)
    assert f"port {port} is in use, or you may not use it" in said
    assert "omit --port" in said
    assert background.all_of(tmp_path / ".dpflow" / "ui") == []


@pytest.mark.parametrize("port", ["0", "-1", "65536", "x"])
def test_a_number_that_is_no_port_is_refused(tmp_path: Path, port: str) -> None:
    assert "--port" in Stack(tmp_path, 1).here("ui", "--port", port, code=2)


def test_a_damaged_registry_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    damaged = tmp_path / ".dpflow" / "registry" / "visits.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{", encoding="utf-8")
    assert "dpflow register visits --remove" in Stack(tmp_path, free_port()).here("ui", code=2)
    assert not (tmp_path / ".dpflow" / "ui").exists()


def test_where_no_account_was_opened_nothing_is_started_or_created(tmp_path: Path) -> None:
    assert "open the account that pays first" in Stack(tmp_path, free_port()).dpflow("ui", code=2)
    assert "open the account that pays first" in Stack(tmp_path, free_port()).dpflow("serve", code=2)
    assert "nothing is running" in Stack(tmp_path, free_port()).dpflow("ui", "--stop")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_start_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / ".dpflow").mkdir()
    broken = Stack(tmp_path, free_port(), {"PREFECT_SERVER_DATABASE_CONNECTION_URL": "nonsense://"})
    assert "the Prefect server did not start" in broken.dpflow("ui", "--port", str(broken.port), code=1)
    assert processes(broken) == []


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / ".dpflow").mkdir()
    (tmp_path / ".dpflow" / "ui").write_text("a file", encoding="utf-8")
    assert "change to a folder of your own" in Stack(tmp_path, free_port()).dpflow("ui", code=1)


UNTOUCHED = """
from contextlib import nullcontext
from flows.cli import ui
ui._signals = lambda _: nullcontext()
"""
"""Planted: signals do what they do to any program."""


def interrupted(place: Path, number: signal.Signals, *, planted: str = "") -> int:
    """Send a signal to a command that starts server and worker, once both run; return how many processes it leaves behind."""
    (place / ".dpflow").mkdir()
    starting = Stack(place, 0)
    heard = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # as under a terminal, also if the tests run under nohup
    main = f"{heard}\n{planted}\nfrom flows.cli.command import main\nmain()"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", main, "ui"],
        cwd=place,
        env=starting.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as command:
        wait_for(lambda: len(processes(starting)) >= 2 or command.poll() is not None, "server and worker")
        assert command.poll() is None
        command.send_signal(number)
        command.wait(120)
    left = len(processes(starting))
    if left:
        starting.stop()
    return left


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_start_that_is_interrupted_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    assert interrupted(tmp_path, number) == 0


def test_a_start_that_does_not_look_after_signals_leaves_server_and_worker(tmp_path: Path) -> None:
    assert interrupted(tmp_path, signal.SIGTERM, planted=UNTOUCHED) >= 2
