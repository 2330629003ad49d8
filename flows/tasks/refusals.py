"""End a refused deployed run in the state `Refused`, with the reason as its message and without a traceback."""

from typing import Any, NoReturn

from prefect import get_client
from prefect.client.schemas import FlowRun, State
from prefect.context import FlowRunContext
from prefect.exceptions import Abort
from prefect.states import Failed

from dpcore.errors import BudgetRefused, DpflowError, RowsUnexpected, UsageError

NAME = "Refused"
EXIT_CODES = {UsageError.exit_code, BudgetRefused.exit_code}


def deployed_run() -> FlowRun | None:
    """Return the current flow run if it comes from a deployment. A flow that was called, even by a deployed flow, does not."""
    current = FlowRunContext.get()
    run = current.flow_run if current else None
    return run if run is not None and run.deployment_id is not None else None


def ends_refused(error: DpflowError) -> bool:
    """Return whether an error is a refusal that no caller can catch, because a worker started the run."""
    refused = error.exit_code in EXIT_CODES or isinstance(error, RowsUnexpected)
    return refused and deployed_run() is not None


def refused_state(error: DpflowError, *, data: Any = None) -> State[Any]:
    """Return the state of a refused flow run or task run."""
    return Failed(name=NAME, message=str(error), data=data)


def end_refused(error: DpflowError) -> NoReturn:
    """End the current flow run in the state `Refused`, and leave its process.

    A flow that raises, or returns a failed state, gets a traceback in its log. So the state is set here, and Prefect's signal for an
    aborted run ends the flow without one.

    Raises:
        Abort: Always.
    """
    run = deployed_run()
    if run is None:
        raise error
    with get_client(sync_client=True) as client:
        stop = Abort(NAME)
        stop.state = client.set_flow_run_state(run.id, refused_state(error)).state  # type: ignore[attr-defined]  # as Pause has it
    raise stop
