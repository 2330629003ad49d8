"""Steps as Prefect task runs. What Prefect is told of a step is put together here, and it is told nothing else.

Prefect's client tells its server of a task run by one event for each state, of which the server makes the run that the UI shows. These are
those events. A Prefect task is not called: it would have to be handed the arguments and the result, and a call takes 5 ms of CPU,
in which Prefect looks through both; there are 180 in 60 rounds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from prefect.client.schemas import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectSignal

from dpcore.errors import DpflowError
from flows.tasks import refusals
from flows.tasks.sender import To, sending

_current: ContextVar[UUID | None] = ContextVar("task_run", default=None)


@dataclass(frozen=True)
class State:
    """A state as Prefect knows them, at the moment it is entered."""

    type: str
    name: str
    message: str = ""
    id: UUID = field(default_factory=uuid4)
    entered: datetime = field(default_factory=lambda: datetime.now(UTC))


@contextmanager
def task_run(name: str) -> Iterator[None]:
    """Record what is done in this context as a task run with exactly this name, a run of the task that is its last part.

    It is running, then completed, failed, crashed or refused, by how the context is left. What is raised in it is stored and must
    be fit for that.

    Raises:
        Pause: The flow run was suspended meanwhile. Nothing was recorded.
    """
    flow = FlowRunContext.get()
    if flow:
        flow.flow_run_suspension_request.raise_if_requested()
    run = _TaskRun(name, flow.flow_run if flow else None)
    with sending() as sender:
        sender.send(To.EVENTS, run.begun())
        before = _current.set(run.id)
        try:
            yield
        except (PrefectSignal, GeneratorExit):
            raise
        except BaseException as error:
            sender.send(To.EVENTS, run.ended(_end(error)))
            raise
        else:
            sender.send(To.EVENTS, run.ended(State("COMPLETED", "Completed")))
        finally:
            _current.reset(before)


def current_task_run() -> UUID | None:
    """Return the id of the task run that is being recorded, if one is."""
    return _current.get()


def _end(error: BaseException) -> State:
    if isinstance(error, DpflowError) and refusals.ends_refused(error):
        return State("FAILED", refusals.NAME, str(error))
    if isinstance(error, Exception):
        return State("FAILED", "Failed", f"Task run encountered an exception {type(error).__name__}: {error}")
    return State("CRASHED", "Crashed", f"Execution was ended from outside: {type(error).__name__}.")


class _TaskRun:
    """A task run, and the events that tell of it."""

    def __init__(self, name: str, flow_run: FlowRun | None) -> None:
        self.id = uuid4()
        self._name = name
        self._related = _related(flow_run)
        self._created = State("PENDING", "Pending")  # as Prefect has it; nothing is waited for, so nobody is told
        self._running = State("RUNNING", "Running")
        self._record: dict[str, Any] = {
            "name": name,
            "task_key": name.rpartition("/")[2],
            # A step that is done again in a retry of the flow run is another task run.
            "dynamic_key": self.id.hex,
            "empirical_policy": {"retries": 0, "retry_delay": 0},
            "tags": [],
            "labels": {},
            "task_inputs": {},
            "run_count": 1,
            "flow_run_run_count": flow_run.run_count if flow_run else 0,
            "expected_start_time": self._created.entered.isoformat(),
            "start_time": self._running.entered.isoformat(),
            "total_run_time": 0.0,
        }

    def begun(self) -> dict[str, Any]:
        """Return the event of its begin."""
        return self._event(self._created, self._running)

    def ended(self, state: State) -> dict[str, Any]:
        """Return the event of its end."""
        self._record["end_time"] = state.entered.isoformat()
        self._record["total_run_time"] = (state.entered - self._running.entered).total_seconds()
        return self._event(self._running, state) | {"follows": str(self._running.id)}

    def _event(self, before: State, state: State) -> dict[str, Any]:
        return {
            "id": str(state.id),
            "occurred": state.entered.isoformat(),
            "event": f"prefect.task-run.{state.name}",
            "resource": {
                "prefect.resource.id": f"prefect.task-run.{self.id}",
                "prefect.resource.name": self._name,
                "prefect.run-count": "1",
                "prefect.state-message": state.message,
                "prefect.state-name": state.name,
                "prefect.state-timestamp": state.entered.isoformat(),
                "prefect.state-type": state.type,
                "prefect.orchestration": "client",
            },
            "related": self._related,
            "payload": {
                "intended": {"from": before.type, "to": state.type},
                "initial_state": _described(before),
                "validated_state": _described(state),
                "task_run": dict(self._record),
            },
        }


def _described(state: State) -> dict[str, Any]:
    return {"type": state.type, "name": state.name, "message": state.message, "state_details": {}}


def _related(flow_run: FlowRun | None) -> list[dict[str, str]]:
    """Return what an event has to do with: the flow run, by which the server knows where the task run belongs, and its tags."""
    if flow_run is None:
        return []
    run = {"id": f"prefect.flow-run.{flow_run.id}", "role": "flow-run", "name": flow_run.name}
    tags = [{"id": f"prefect.tag.{tag}", "role": "tag"} for tag in sorted(flow_run.tags)]
    return [{f"prefect.resource.{label}": value for label, value in it.items()} for it in (run, *tags)]
