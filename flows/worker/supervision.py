"""A run in a process of its own, and what is done about it meanwhile: it is ended when it is cancelled, and reported when it crashes.

The process has the command and the environment that are given here, and an empty folder. A server has no say in either.
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

# -P: the folder of the run must not be taken for a place of modules
COMMAND = command_to_string([sys.executable, "-P", "-m", "flows.worker.execute"])


class _NoHooks:
    """Our flows have no hooks. Prefect would load the code that the server names now to see whether that has some."""

    async def run_cancellation_hooks(self, flow_run: FlowRun, state: State) -> None:
        """Do nothing."""

    async def run_crashed_hooks(self, flow_run: FlowRun, state: State) -> None:
        """Do nothing."""


async def supervise(
    run: FlowRun, *, task_status: TaskStatus[ProcessHandle] = anyio.TASK_STATUS_IGNORED
) -> FlowRunExecutionResult | None:
    """Execute a run in a new process and return how that ended, or None if it could not be started.

    Args:
        run: A run that the server holds to be pending.
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
