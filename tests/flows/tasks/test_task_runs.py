"""Steps as the server records them: like any task run, and in time even if the server was away."""

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect import task
from prefect.context import FlowRunContext
from prefect.exceptions import Pause
from prefect.runtime import flow_run
from prefect.states import Suspended

from dpcore.errors import SourceError
from flows.tasks import sender
from flows.tasks.guard import private_flow, step
from flows.tasks.sender import Sender, To
from flows.tasks.task_runs import current_task_run
from tests.flows.conftest import DATABASE, Search
from tests.flows.stack import wait_for

ENDS: dict[str, BaseException | None] = {
    "COMPLETED": None,
    "FAILED": SourceError("the table can't be read; look at it"),
    "CRASHED": KeyboardInterrupt(),
}


@task
def ordinary() -> None:
    """What Prefect makes of a call by itself."""


def end(kind: str) -> None:
    logging.getLogger("dpcore.progress").info("ends as %s", kind)
    if error := ENDS[kind]:
        raise error


@private_flow(name="stepping")
def stepping(kind: str) -> str:
    ordinary()
    try:
        step("round-001/end", end)(kind)
    except SourceError:
        return str(flow_run.id)
    return str(flow_run.id)


def rows(question: str, *values: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(question, values)]


@pytest.mark.prefect
def test_a_step_is_recorded_like_an_ordinary_task(stored: Search) -> None:
    run = stepping("COMPLETED")
    assert stored(run)
    recorded = rows("SELECT * FROM task_run WHERE flow_run_id = ? ORDER BY start_time", run)
    usual, ours = recorded
    assert (ours["name"], ours["task_key"], ours["state_type"]) == ("round-001/end", "end", "COMPLETED")
    # Of ours there is no version of a function's code, which Prefect knows by its text, and no input.
    assert {name for name in usual if (usual[name] is None) != (ours[name] is None)} <= {"task_version"}
    alike = ("run_count", "flow_run_run_count", "state_name", "tags", "task_inputs", "cache_key", "flow_run_id")
    assert [usual[name] for name in alike] == [ours[name] for name in alike]
    assert usual["end_time"] <= ours["start_time"] <= ours["end_time"]
    entered = [
        [
            state["type"]
            for state in rows("SELECT type FROM task_run_state WHERE task_run_id = ? ORDER BY timestamp", it)
        ]
        for it in (usual["id"], ours["id"])
    ]
    assert entered == [["PENDING", "RUNNING", "COMPLETED"], ["RUNNING", "COMPLETED"]]


@pytest.mark.prefect
@pytest.mark.parametrize("kind", ["FAILED", "CRASHED"])
def test_how_a_step_ended_is_its_state_and_what_it_said_is_in_its_log(kind: str, stored: Search) -> None:
    try:
        run = stepping(kind)
    except KeyboardInterrupt:
        run = rows("SELECT id FROM flow_run ORDER BY created DESC LIMIT 1")[0]["id"]
    assert stored(f"ends as {kind}")
    (ours,) = rows("SELECT * FROM task_run WHERE flow_run_id = ? AND task_key = 'end'", run)
    (line,) = rows("SELECT * FROM log WHERE task_run_id = ?", ours["id"])
    assert ours["state_type"] == kind
    assert (line["message"], line["flow_run_id"]) == (f"ends as {kind}", run)
    (message,) = (
        state["message"]
        for state in rows("SELECT message FROM task_run_state WHERE task_run_id = ? AND type = ?", ours["id"], kind)
    )
    assert ("the table can't be read" if kind == "FAILED" else "KeyboardInterrupt") in message


@pytest.mark.prefect
def test_a_suspended_run_takes_no_further_step() -> None:
    done = []

    @private_flow(name="suspending")
    def suspending() -> None:
        step("first", done.append)(1)
        current = FlowRunContext.get()
        assert current is not None
        current.flow_run_suspension_request.mark_requested(Suspended())
        step("second", done.append)(2)

    with pytest.raises(Pause):
        suspending()
    assert done == [1]
    assert current_task_run() is None


class Server:
    """Takes what is sent to it, or fails, as long as it is told to."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, list[dict[str, Any]]]] = []
        self.away = threading.Event()
        self.asked = threading.Event()

    def request(self, method: str, path: str, *, json: list[dict[str, Any]]) -> None:
        if self.away.is_set():
            self.asked.set()
            raise httpx.ConnectError("nobody there")
        self.taken.append((path, json))


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sender send almost at once."""
    monkeypatch.setattr(sender, "EVERY_SECONDS", 0.01)


def test_many_are_sent_at_once_each_kind_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "AT_ONCE", 3)
    server = Server()
    sending = Sender(server)  # type: ignore[arg-type]
    for number in range(5):
        sending.send(To.EVENTS, {"number": number})
    sending.send(To.LOG, {"number": 5})
    sending.close()
    sent = [(path, [item["number"] for item in items]) for path, items in server.taken]
    assert sent == [("/events", [0, 1, 2]), ("/events", [3, 4]), ("/logs/", [5])]


@pytest.mark.usefixtures("often")
def test_a_server_that_was_away_is_told_later(steward: Path) -> None:
    server = Server()
    server.away.set()
    sending = Sender(server)  # type: ignore[arg-type]
    sending.send(To.EVENTS, {"number": 1})
    assert server.asked.wait(10)
    sending.send(To.EVENTS, {"number": 2})
    server.away.clear()
    wait_for(lambda: server.taken, "what was kept", seconds=10)
    sending.close()
    assert [item["number"] for _, items in server.taken for item in items] == [1, 2]
    assert steward.read_text().count("telling the Prefect server") == 1


@pytest.mark.usefixtures("often")
def test_a_server_that_stays_away_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MOST_WAITING", 2)
    server = Server()
    server.away.set()
    sending = Sender(server)  # type: ignore[arg-type]
    for number in range(3):
        sending.send(To.EVENTS, {"number": number})
    assert server.asked.wait(10)
    sending.close()
    assert [len(waiting) for waiting in sending._waiting.values()] == [2, 0]
    assert not sending._thread.is_alive()
