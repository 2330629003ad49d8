"""Execute a run in a process of its own, end the process when the run is cancelled, and report a crash.

The command and the environment of the process are set here, and its folder is empty. A server can't change any of them.
"""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import anyio
from anyio.abc import TaskStatus
from prefect.client.orchestration import get_client
from prefect.client.schemas import FlowRun, State

from flows.prefect_compat import (
    EngineCommandStarter,
    FlowRunExecutionResult,
    FlowRunExecutorContext,
    ProcessHandle,
    StateProposer,
    command_to_string,
)
from flows.worker.shutdown import until_signalled

# -P: modules must not be loaded from the folder of the run
COMMAND = command_to_string([sys.executable, "-P", "-m", "flows.worker.execute"])


class _NoHooks:
    """Runs no hooks, since our flows have none. To find hooks, Prefect would load the code that the server names."""

    async def run_cancellation_hooks(self, flow_run: FlowRun, state: State) -> None:
        """Do nothing."""

    async def run_crashed_hooks(self, flow_run: FlowRun, state: State) -> None:
        """Do nothing."""


class _Proposer(StateProposer):
    """Reports the crash of a run, unless it is suspended: its process has nothing left to do, however it ends."""

    suspended = False

    async def propose_crashed(self, flow_run: FlowRun, message: str) -> State[Any] | None:
        """Propose that a run has crashed."""
        self.suspended = await self._is_suspended(flow_run.id)
        return None if self.suspended else await super().propose_crashed(flow_run, message)

    async def _is_suspended(self, run_id: UUID) -> bool:
        try:
            state = (await self._client.read_flow_run(run_id)).state
        except Exception:  # whatever the server answers
            self._logger.exception("The state of the run %s could not be read", run_id)
            return False
        # One that is paused within its process is lost with it.
        return state is not None and state.is_paused() and bool(state.state_details.pause_reschedule)


def cancel_only_if_asked(context: FlowRunExecutorContext) -> None:
    """Make a supervisor ignore requests to cancel a run that is not being cancelled now.

    The server sends a new supervisor all requests of the last minute again. If a run is retried soon after it was cancelled, the old request
    would end it once more.
    """
    manager, client = context._cancellation_manager, context.client  # noqa: SLF001  it has no other name

    async def cancel_by_id(run_id: UUID) -> None:
        run = await client.read_flow_run(run_id)
        if run.state is not None and run.state.is_cancelling():
            await manager.cancel(run)

    vars(manager).update(cancel_by_id=cancel_by_id)  # what Prefect calls for each request


async def supervise(
    run: FlowRun, *, task_status: TaskStatus[ProcessHandle] = anyio.TASK_STATUS_IGNORED
) -> FlowRunExecutionResult | None:
    """Execute a run in a new process and return how that ended, or None if it could not be started.

    Args:
        run: A run that is pending on the server.
        task_status: Gets the process as soon as it is started.
    """
    with TemporaryDirectory(prefix="dpflow-run-") as folder:
        async with FlowRunExecutorContext() as context:
            # The environment of the engine is this process's own, and the run's id.
            starter = EngineCommandStarter(command=COMMAND, cwd=Path(folder), control_channel=context.control_channel)
            cancel_only_if_asked(context)
            context._state_proposer = proposer = _Proposer(client=context.client)  # noqa: SLF001  the executor gets it from there
            executor = context.create_executor(run, starter, hook_runner=_NoHooks(), propose_submitting=False)
            result = await executor.submit(task_status=task_status)
            # With another code, a worker would report the crash itself.
            return replace(result, status_code=0) if result is not None and proposer.suspended else result


def main() -> None:
    """Execute the run that `PREFECT__FLOW_RUN_ID` names, in a container of its own; end with its exit code."""
    run_id, codes = UUID(os.environ["PREFECT__FLOW_RUN_ID"]), [1]

    async def work() -> None:
        async with get_client() as client:
            run = await client.read_flow_run(run_id)
        result = await supervise(run)
        if result is not None and result.status_code is not None:
            codes.append(result.status_code)

    asyncio.run(until_signalled(work()))
    sys.exit(codes[-1])


if __name__ == "__main__":
    main()
