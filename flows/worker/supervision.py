"""Execute a run in a process of its own, end the process when the run is cancelled, and report a crash.

The command and the environment of the process are set here, and its folder is empty. A server can't change any of them.
"""

import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
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
            starter = EngineCommandStarter(
                command=COMMAND, cwd=Path(folder), control_channel=context.control_channel
            )  # its environment is this process's own, and the run's id
            executor = context.create_executor(run, starter, hook_runner=_NoHooks(), propose_submitting=False)
            return await executor.submit(task_status=task_status)


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
