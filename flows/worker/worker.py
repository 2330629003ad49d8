"""Our worker: Prefect's process worker, restricted so that a server only decides which of our flows to run with which parameters.

Anything else that a server sends is ignored, both here, where a process is started for each run, and in that process, which loads our
own flow. So it does not matter when somebody changes a deployment. A run with disallowed overrides could be
executed without the overrides. It is refused instead, so that people notice.
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
    """Limits how many runs are executed at a time.

    A run that is resumed or retried at once may be offered again while its last process is still exiting. Prefect's own limiter allows
    one slot for each run, and the worker would end with an error.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._taken: Counter[UUID] = Counter()

    @property
    def borrowed_tokens(self) -> int:
        """How many slots are taken. Prefect prescribes the names of this class's members."""
        return self._taken.total()

    def acquire_on_behalf_of_nowait(self, run: UUID) -> None:
        """Take a slot for a run.

        Raises:
            anyio.WouldBlock: All slots are taken.
        """
        if self._taken.total() >= self._number:
            raise anyio.WouldBlock
        self._taken[run] += 1

    def release_on_behalf_of(self, run: UUID) -> None:
        """Return a slot of a run.

        Raises:
            RuntimeError: The run has no slot.
        """
        if not self._taken[run]:
            raise RuntimeError("no slot is taken")
        self._taken -= Counter([run])


class Turns:
    """Round-robin over accounts: the next run comes from the queue from which a run was taken the longest time ago.

    Each account has a queue. Prefect gives each queue its own priority, the oldest queue the highest, and offers its runs first. With
    fewer slots than busy accounts, the runs of the newest account would wait until the others have none left.
    """

    def __init__(self) -> None:
        self._taken: list[UUID | None] = []

    def take(self, queue: UUID | None) -> None:
        """Record that a run was taken from a queue."""
        self._taken = [earlier for earlier in self._taken if earlier != queue] + [queue]

    def sort(self, offered: Iterable[WorkerFlowRunResponse]) -> list[WorkerFlowRunResponse]:
        """Return the offered runs in the order in which to take them: one of each queue, then another of each."""
        places: Counter[UUID | None] = Counter()
        keyed = []
        for offer in offered:
            queue = offer.flow_run.work_queue_id
            last = self._taken.index(queue) if queue in self._taken else -1
            keyed.append(((places[queue], last), offer))
            places[queue] += 1
        return [offer for _, offer in sorted(keyed, key=lambda it: it[0])]


class FixedJob(ProcessJobConfiguration):
    """A job configuration that ignores the pool's template and the run's job variables."""

    @classmethod
    async def resolve_for_flow_run(cls, flow_run: FlowRun, **_of_the_server: Any) -> Self:
        """Return an empty configuration. Prefect's own would also insert variables of this environment into the server's values."""
        job = cls()
        job._related_objects = {"flow-run": flow_run}  # the resources that its events refer to
        return job


class PrivateWorker(ProcessWorker):
    """Executes each run of our flows in a process of its own, and refuses all other runs."""

    job_configuration = FixedJob

    @classmethod
    def __dispatch_key__(cls) -> str:
        """Return a key of our own, so that this class does not replace Prefect's worker for pools of the same type."""
        return f"dpflow-{cls.type}"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turns = Turns()
        self._looked_at: set[UUID] = set()

    async def setup(self) -> None:
        """Set up the worker, with our own limiter."""
        await super().setup()
        if self._limit is not None:
            self._limiter = Slots(self._limit)  # type: ignore[assignment]  # has the methods that the worker calls

    async def __aenter__(self) -> Self:
        """Start, without the parts of Prefect's process worker that load pickled flows."""
        return await BaseWorker.__aenter__(self)

    async def __aexit__(self, *exc_info: object) -> None:
        """Stop."""
        await BaseWorker.__aexit__(self, *exc_info)

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,  # noqa: ARG002  as Prefect calls it
        task_status: TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Execute a run in a process, and return how the process ended."""
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
        """Submit a run. Whatever the server answers, the worker continues and gets the slot back.

        Prefect cancels a run whose deployment is gone without freeing its slot, and any other error about the deployment would end the
        worker.
        """
        try:
            await super()._submit_run(flow_run)
        except Exception:  # no answer of a server may end the worker
            self._logger.exception("The run %s could not be submitted", flow_run.id)
        else:
            if flow_run.id in self._looked_at:  # its process holds the slot, or Prefect has freed it
                return
        finally:
            self._looked_at.discard(flow_run.id)
        self._release_limit_slot(flow_run.id)
        self._submitting_flow_run_ids.discard(flow_run.id)
        if self._cancelling_observer is not None:
            self._cancelling_observer.remove_in_flight_flow_run_id(flow_run.id)

    async def _propose_pending_state(self, flow_run: FlowRun) -> bool:
        """Take a run, unless it must be refused. Prefect calls this first, and does not submit the run if it returns False."""
        self._looked_at.add(flow_run.id)
        try:
            overrides = await self._disallowed(flow_run)
            if overrides:
                await self._refuse(flow_run, overrides)
                return False
        except Exception:  # no answer of a server may end the worker
            self._logger.exception("The run %s could not be checked", flow_run.id)
            return False
        self._turns.take(flow_run.work_queue_id)
        return await super()._propose_pending_state(flow_run)

    async def _get_scheduled_flow_runs(self) -> list[WorkerFlowRunResponse]:
        """Get scheduled runs from the server, ordered so that all accounts take turns."""
        return self._turns.sort(await super()._get_scheduled_flow_runs())

    async def _disallowed(self, run: FlowRun) -> list[str]:
        deployment = await self.client.read_deployment(run.deployment_id) if run.deployment_id else None
        flow = await self.client.read_flow(run.flow_id)
        pool = await self.client.read_work_pool(self._work_pool_name)
        return disallowed_overrides(run, deployment, flow=flow.name, template=pool.base_job_template)

    async def _refuse(self, run: FlowRun, overrides: list[str]) -> None:
        refusal = UsageError(
            f"this worker runs only dpflow's own flows as dpflow deploys them, and the run asks for "
            f"{', '.join(overrides)}; remove that, then start the run again (`dpflow serve --deploy-only` deploys again)"
        )
        # A run may be offered again while the server is still recording its refusal.
        state = (await self.client.read_flow_run(run.id)).state
        if state and state.is_scheduled():
            self.get_flow_run_logger(run).error("%s", refusal)
            await self.client.set_flow_run_state(run.id, refused_state(refusal))
