"""A run in a process of its own, and what is done about it meanwhile: it is ended when it is cancelled, and reported when it crashes.

The process has the command and the environment that are given here, and an empty folder. A server has no say in either.
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

# -P: the folder of the run must not be taken for a place of modules
COMMAND = command_to_string([sys.executable, "-P", "-m", "flows.worker.execute"])


class _NoHooks:
    """Our flows have no hooks. Prefect would load the code that the server names now to see whether that has some."""

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
