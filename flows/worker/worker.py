"""Our worker: Prefect's, for which a server decides which of our flows is run with which parameters, and nothing else.

What a server says beyond that is followed nowhere: neither here, where a process is started for each run, nor in that process,
which loads our own flow. So nothing depends on the moment at which somebody changes a deployment. A run that asks for more is
refused, and not executed as something else, but only so that people see what happens.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Self
from uuid import UUID

import anyio
from anyio.abc import TaskStatus
from prefect.client.schemas import FlowRun
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.workers.base import BaseWorker
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from dpcore.errors import UsageError
from flows.prefect_compat import FlowRunExecutionResult, ProcessHandle
from flows.tasks.refusals import refused_state
from flows.worker.overrides import disallowed_overrides
from flows.worker.supervision import supervise


class Slots:
    """How many runs may be executed at a time.

    A run that is resumed or retried at once comes again while its last process is still on its way out. Prefect's worker, which
    holds each run to have one slot, would end with an error.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._taken: Counter[UUID] = Counter()

    @property
    def borrowed_tokens(self) -> int:
        """How many are taken; this and the names below are those that Prefect asks for."""
        return self._taken.total()

    def acquire_on_behalf_of_nowait(self, run: UUID) -> None:
        """Take one for a run.

        Raises:
            anyio.WouldBlock: All are taken.
        """
        if self._taken.total() >= self._number:
            raise anyio.WouldBlock
        self._taken[run] += 1

    def release_on_behalf_of(self, run: UUID) -> None:
        """Give one of a run back.

        Raises:
            RuntimeError: It has none.
        """
        if not self._taken[run]:
            raise RuntimeError("no slot is taken")
        self._taken -= Counter([run])


class Turns:
    """Whose turn it is: that of the account, and so of the queue, from which a run was taken the longest time ago.

    Prefect gives each queue a priority of its own, the oldest queue the highest, and offers its runs first. With fewer slots than
    accounts that have something to do, those of the newest account would wait until the others have nothing left.
    """

    def __init__(self) -> None:
        self._taken: list[UUID | None] = []

    def take(self, queue: UUID | None) -> None:
        """Note that a run of a queue is taken."""
        self._taken = [other for other in self._taken if other != queue] + [queue]

    def sort(self, offered: Iterable[WorkerFlowRunResponse]) -> list[WorkerFlowRunResponse]:
        """Return what is offered in the order in which it is to be taken: one of each queue, then another of each."""
        places: Counter[UUID | None] = Counter()
        keyed = []
        for offer in offered:
            queue = offer.flow_run.work_queue_id
            last = self._taken.index(queue) if queue in self._taken else -1
            keyed.append(((places[queue], last), offer))
            places[queue] += 1
        return [offer for _, offer in sorted(keyed, key=lambda it: it[0])]


class FixedJob(ProcessJobConfiguration):
    """What Prefect makes of a pool's template and a run's job variables: here of neither."""

    @classmethod
    async def resolve_for_flow_run(cls, flow_run: FlowRun, **_of_the_server: Any) -> Self:
        """Return an empty one. Prefect's own would also fill variables of this environment into what the server names."""
        job = cls()
        job._related_objects = {"flow-run": flow_run}  # what the events about it refer to
        return job


class PrivateWorker(ProcessWorker):
    """Executes our flows in processes of their own, and refuses whatever else a server asks for."""

    job_configuration = FixedJob

    @classmethod
    def __dispatch_key__(cls) -> str:
        """Serve pools of Prefect's type without taking the place of Prefect's worker for them."""
        return f"dpflow-{cls.type}"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turns = Turns()
        self._looked_at: set[UUID] = set()

    async def setup(self) -> None:
        """Prepare, before the server is asked for runs."""
        await super().setup()
        if self._limit is not None:
            self._limiter = Slots(self._limit)  # type: ignore[assignment]  # has what the worker asks of a limiter

    async def __aenter__(self) -> Self:
        """Start, without what Prefect's worker has for flows that are sent to it as a pickle."""
        return await BaseWorker.__aenter__(self)

    async def __aexit__(self, *exc_info: object) -> None:
        """End."""
        await BaseWorker.__aexit__(self, *exc_info)

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,  # noqa: ARG002  as Prefect calls it
        task_status: TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Execute a run in a process, and return how that ended."""
        ends: list[FlowRunExecutionResult | None] = []

        async def execute(*, task_status: TaskStatus[ProcessHandle] = anyio.TASK_STATUS_IGNORED) -> None:
            ends.append(await supervise(flow_run, task_status=task_status))

        async with anyio.create_task_group() as group:
            process = await group.start(execute)
            if task_status is not None:
                task_status.started(process.pid)
        (end,) = ends
        if end is None or end.status_code is None:
            raise RuntimeError("the process of the run was lost")
        return ProcessWorkerResult(status_code=end.status_code, identifier=str(process.pid))

    async def _submit_run(self, flow_run: FlowRun) -> None:
        """Submit a run; whatever the server answers, the worker goes on and gets the slot back.

        Prefect cancels a run whose deployment is gone and keeps its slot, and any other answer about the deployment would end the worker.
        """
        try:
            await super()._submit_run(flow_run)
        except Exception:  # a worker outlives whatever a server answers
            self._logger.exception("The run %s could not be submitted", flow_run.id)
        else:
            if flow_run.id in self._looked_at:  # its process holds the slot, or Prefect has let go of it
                return
        finally:
            self._looked_at.discard(flow_run.id)
        self._release_limit_slot(flow_run.id)
        self._submitting_flow_run_ids.discard(flow_run.id)
        if self._cancelling_observer is not None:
            self._cancelling_observer.remove_in_flight_flow_run_id(flow_run.id)

    async def _propose_pending_state(self, flow_run: FlowRun) -> bool:
        """Take a run, unless it is to be refused. Prefect asks this first, and leaves the run alone if the answer is no."""
        self._looked_at.add(flow_run.id)
        try:
            overrides = await self._disallowed(flow_run)
            if overrides:
                await self._refuse(flow_run, overrides)
                return False
        except Exception:  # a worker outlives whatever a server answers
            self._logger.exception("The run %s could not be looked at", flow_run.id)
            return False
        self._turns.take(flow_run.work_queue_id)
        return await super()._propose_pending_state(flow_run)

    async def _get_scheduled_flow_runs(self) -> list[WorkerFlowRunResponse]:
        """Ask the server for runs, and take those of all accounts in turn."""
        return self._turns.sort(await super()._get_scheduled_flow_runs())

    async def _disallowed(self, run: FlowRun) -> list[str]:
        deployment = await self.client.read_deployment(run.deployment_id) if run.deployment_id else None
        flow = await self.client.read_flow(run.flow_id)
        pool = await self.client.read_work_pool(self._work_pool_name)
        return disallowed_overrides(run, deployment, flow=flow.name, template=pool.base_job_template)

    async def _refuse(self, run: FlowRun, overrides: list[str]) -> None:
        refusal = UsageError(
            f"this worker runs dpflow's own flows and nothing else that a server names, and the run asks for "
            f"{', '.join(overrides)}; take that away, then start it again (`dpflow serve --deploy-only` deploys anew)"
        )
        # A run may be offered once more while the server is noting its first refusal.
        state = (await self.client.read_flow_run(run.id)).state
        if state and state.is_scheduled():
            self.get_flow_run_logger(run).error("%s", refusal)
            await self.client.set_flow_run_state(run.id, refused_state(refusal))
