"""Steps are ordinary Prefect tasks: their settings, states, lines of the log, order in the graph, and what Prefect gets to see of them."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import Task, get_client
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import TaskRunResult
from prefect.context import FlowRunContext
from prefect.exceptions import Pause
from prefect.runtime import flow_run
from prefect.states import Suspended

import flows.answer
import flows.budget
import flows.synthesize
import flows.verify
from dpcore import Outcome
from dpcore.errors import SourceError
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.runs.steps import Done
from flows.synthesize import synthesize
from flows.tasks.guard import PrivateTask, private_flow, private_task
from tests.conftest import Workspace
from tests.flows.conftest import DATABASE, Search

TASKS = [
    *flows.synthesize.TASKS.values(),
    *(
        it
        for module in (flows.synthesize, flows.budget, flows.verify, flows.answer)
        for it in vars(module).values()
        if isinstance(it, Task)
    ),
]
ENDS: dict[str, BaseException | None] = {
    "COMPLETED": None,
    "FAILED": SourceError("the table can't be read; look at it"),
    "CRASHED": KeyboardInterrupt(),
}


@private_task(name="end", task_run_name="round-{number:03}/end")
def end(number: int, kind: str) -> None:
    try:
        int("a traceback that stays here")
    except ValueError:
        logging.getLogger("dpcore.progress").info("round %d ends as %s", number, kind, exc_info=True, stack_info=True)
    if error := ENDS[kind]:
        raise error


@private_flow(name="ending")
def ending(kind: str) -> str:
    try:
        end(7, kind)
    except SourceError:
        return str(flow_run.id)
    return str(flow_run.id)


def rows(question: str, *values: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(question, values)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_nothing_of_a_task_is_cached_retried_stored_or_printed_into_the_log(task: Task[..., Any]) -> None:
    assert isinstance(task, PrivateTask)
    assert (task.persist_result, task.cache_policy, task.cache_key_fn) == (False, NO_CACHE, None)
    assert (task.retries, task.log_prints, task.cache_result_in_memory) == (0, False, False)
    assert (task.result_storage, task.result_storage_key, task.result_serializer) == (None, None, None)
    hooks = (task.on_completion_hooks, task.on_failure_hooks, task.on_rollback_hooks, task.on_commit_hooks)
    assert not any(hooks)


def test_a_flow_has_a_task_for_each_step() -> None:
    assert [task.name for task in TASKS if task.fn.__module__ == "flows.synthesize"] == [
        *("reserve", "choose-limit", "check-rows", "learn-sizes", "discover", "ingest", "histogram", "begin"),
        *("select", "measure", "update", "sample", "publish", "settle", "report"),
    ]


@pytest.mark.prefect
@pytest.mark.parametrize("kind", list(ENDS))
def test_how_a_task_ended_is_its_state_and_what_it_said_is_in_its_log(kind: str, stored: Search) -> None:
    try:
        run = ending(kind)
    except KeyboardInterrupt:
        run = rows("SELECT id FROM flow_run ORDER BY created DESC LIMIT 1")[0]["id"]
    assert stored(f"round 7 ends as {kind}") == ["log.message"]
    (task,) = rows("SELECT * FROM task_run WHERE flow_run_id = ?", run)
    assert (task["name"], task["state_type"]) == ("round-007/end", kind)
    lines = rows("SELECT * FROM log WHERE task_run_id = ? ORDER BY timestamp", task["id"])
    assert lines[0]["message"] == f"round 7 ends as {kind}"
    assert not any("Traceback" in line["message"] or "Stack" in line["message"] for line in lines)
    assert stored("a traceback that stays here") == []


@pytest.mark.prefect
def test_a_suspended_run_takes_no_further_step() -> None:
    done: list[int] = []

    @private_task(name="note")
    def note(number: int) -> None:
        done.append(number)

    @private_flow(name="suspending")
    def suspending() -> None:
        note(1)
        current = FlowRunContext.get()
        assert current is not None
        current.flow_run_suspension_request.mark_requested(Suspended())
        note(2)

    with pytest.raises(Pause):
        suspending()
    assert done == [1]


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All arguments and results of tasks, as Prefect gets them."""
    seen: list[Any] = []
    call = Task.__call__

    def watched(self: Task[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = call(self, *args, **kwargs)
        seen.extend((*args, *kwargs.values(), result))
        return result

    monkeypatch.setattr(Task, "__call__", watched)
    return seen


def edges(run: str) -> Iterator[tuple[str, str]]:
    """Yield the edges that the UI draws for a run, some of them more than once."""
    with get_client(sync_client=True) as client:
        nodes = dict(client.request("GET", f"/flow_runs/{run}/graph-v2").json()["nodes"])
    for node in nodes.values():
        for parent in node["parents"]:
            yield nodes[parent["id"]]["label"], node["label"]


def in_a_row(names: list[str]) -> set[tuple[str, str]]:
    return set(pairwise(names))


@pytest.mark.prefect
def test_each_task_follows_the_one_before_in_the_graph_and_passes_public_values_only(
    workspace: Workspace, stored: Search, passed: list[Any]
) -> None:
    workspace.open_account()
    outcome = synthesize(str(workspace.spec))
    assert {type(value) for value in passed} == {str, int, type(None), Selection, Measurement, Done, Outcome}
    stored("all is recorded by then")
    rounds = [f"round-00{number}/{action}" for number in range(1, 5) for action in ("select", "measure", "update")]
    names = ["reserve", "check-rows", "ingest", "histogram", "begin", *rounds, "sample", "publish", "settle", "report"]
    assert set(edges(outcome["run"])) == in_a_row(names)
    with get_client(sync_client=True) as client:
        run = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(outcome["run"])]))
        tasks = {task.id: task for task in client.read_task_runs(flow_run_filter=run)}
    inputs = {
        (tasks[UUID(str(it.id))].name, task.name)
        for task in tasks.values()
        for given in task.task_inputs.values()
        for it in given
        if isinstance(it, TaskRunResult)
    }
    assert inputs == in_a_row(names)
    assert Path(outcome["release"], "manifest.json").exists()
