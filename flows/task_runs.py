"""Steps as Prefect task runs: Prefect learns their names, states and times, and nothing else of them.

Prefect's own call of a task takes arguments and a result, looks through both, and opens a transaction, a result store and a client's
context for them. A step has nothing there for Prefect to see, so that only the part of its engine is used that keeps the states:
less than half of the time of a call, and 180 calls are made in 60 rounds.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import FlowRunContext, SyncClientContext, TaskRunContext
from prefect.exceptions import PrefectSignal
from prefect.logging.loggers import task_run_logger
from prefect.results import get_result_store
from prefect.states import Completed, Pending
from prefect.task_engine import SyncTaskRunEngine

from dpcore.errors import DpflowError
from flows.refusals import ends_refused, refused_state


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
    task = _task(name.rpartition("/")[2])
    run = _new(task, name)
    engine = SyncTaskRunEngine(task=task, task_run=run)
    with (
        SyncClientContext.get_or_create() as connection,
        # By it log lines and artifacts find the task run that they belong to.
        TaskRunContext(
            task=task,
            task_run=run,
            parameters={},
            result_store=get_result_store(),
            persist_result=False,
            client=connection.client,
        ),
    ):
        engine.begin_run()
        try:
            yield
        except (PrefectSignal, GeneratorExit):
            raise
        except BaseException as error:
            _end(engine, error)
            raise
        engine.set_state(Completed())


def _end(engine: SyncTaskRunEngine[[], None], error: BaseException) -> None:
    """Record that the run was refused, has failed or has crashed."""
    if isinstance(error, DpflowError) and ends_refused(error):
        engine.set_state(refused_state(error))
        return
    if engine.task_run:  # what the engine has to say about a failure belongs into the log of the run
        engine.logger = task_run_logger(engine.task_run, engine.task)  # type: ignore[assignment]  # as it does itself
    if isinstance(error, Exception):
        engine.handle_exception(error)
    else:
        engine.handle_crash(error)


@functools.cache
def _task(kind: str) -> Task[[], None]:
    """Return the one Prefect task for all steps of a kind."""

    def unseen() -> None:
        """Prefect never calls it."""

    unseen.__name__ = unseen.__qualname__ = kind
    return Task(
        unseen,
        name=kind,
        description=f"The step {kind} of a private run",
        cache_policy=NO_CACHE,
        persist_result=False,
        log_prints=False,
        retries=0,
    )


def _new(task: Task[[], None], name: str) -> TaskRun:
    flow = FlowRunContext.get()
    state: State[None] = Pending()
    run = TaskRun(
        name=name,
        flow_run_id=flow.flow_run.id if flow and flow.flow_run else None,
        task_key=task.task_key,
        dynamic_key="",
        task_version=task.version,
        expected_start_time=state.timestamp,
        state=state,
    )
    run.dynamic_key = run.id.hex  # a step that is done again in a retry of the flow run is another task run
    return run
