"""What is deployed to a Prefect server: a release for each registered spec, the account pages and the nightly audit of the ledger.

Prefect loads a flow by the name of its module, so no folder of the machine that deploys is stored anywhere. A deployment is
ours by its tag: one whose spec is registered no more is removed, and what others have deployed is left alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Cron, Schedule
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.callables import ParameterSchema, parameter_schema

from dpcore.registry import Registered, all_registered
from flows.budget import budget
from flows.pool import ensure_queue
from flows.synthesize import synthesize
from flows.verify import verify

FLOWS: Mapping[str, Flow[..., Any]] = {flow.name: flow for flow in (synthesize, budget, verify)}
"""The flows there are, by name. A worker executes these and no others, whatever a server says."""

TAG = "dpflow"
SLUG = "cron"
"""The name of a deployment's schedule: by it the schedule is changed and not doubled when it is deployed again."""

ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)
"""The next run waits for the last one. So do the runs of other deployments that the same account pays for: they share a queue, from
which workers take one at a time. Both are comfort: what guards the account is the ledger."""

ENGINE = "python3 -P -m flows.execute"
"""What Prefect's own workers are to start for a run. Ours starts the same, and does not ask a deployment for it."""

BUDGET_CRON = "*/15 * * * *"
VERIFY_CRON = "30 2 * * *"
TIMEZONE = "UTC"


class _Closed(ParameterSchema):
    """The form's schema, with which the server refuses a field that is not in it; else such a run would start, and fail."""

    additionalProperties: bool  # noqa: N815  JSON Schema's name


@dataclass(frozen=True)
class Deployed:
    """What a server has after a deployment, each as `flow/name`."""

    present: tuple[str, ...]
    removed: tuple[str, ...]


def deploy(pool: str) -> Deployed:
    """Deploy everything to the configured server, for the workers of a pool, and remove what is registered no more."""
    wanted = {deployment.full_name: deployment for deployment in deployments(pool)}
    with get_client(sync_client=True) as client:
        found = {_full_name(client, response): response for response in _ours(client)}
        for name, deployment in wanted.items():
            if deployment.work_queue_name:
                ensure_queue(client, pool, deployment.work_queue_name)
            _apply(client, deployment, found.get(name))
        gone = tuple(sorted(set(found) - set(wanted)))
        for name in gone:
            client.delete_deployment(found[name].id)
    return Deployed(present=tuple(sorted(wanted)), removed=gone)


def deployments(pool: str) -> Iterator[RunnerDeployment]:
    """Return all that is to be deployed."""
    for entry in all_registered():
        yield _release(entry, pool)
    yield _deployment(
        budget,
        pool=pool,
        name="budget",
        description="Keeps the page of each account up to date, and tells when one has passed 80 % of its budget.",
        schedules=[Cron(BUDGET_CRON, timezone=TIMEZONE, slug=SLUG)],
    )
    yield _deployment(
        verify,
        pool=pool,
        name="verify",
        description="Audits the ledger every night: each charge, each release, and the chain that holds them together.",
        schedules=[Cron(VERIFY_CRON, timezone=TIMEZONE, slug=SLUG)],
    )


def entrypoint(flow: Flow[..., Any]) -> str:
    """Return the name by which Prefect loads one of our flows."""
    return f"{flow.__module__}.{flow.fn.__name__}"


def _release(entry: Registered, pool: str) -> RunnerDeployment:
    return _deployment(
        synthesize,
        pool=pool,
        name=entry.name,
        description=f"A synthetic release, paid for by the account {entry.account}. The ledger refuses what can't be paid.",
        tags=[entry.account],
        queue=entry.account,
        parameters={"release": entry.name},
        schedules=[Cron(entry.cron, timezone=entry.timezone, slug=SLUG)] if entry.cron else [],
    )


def _deployment(  # noqa: PLR0913  as many as a deployment has
    flow: Flow[..., Any],
    *,
    pool: str,
    name: str,
    description: str,
    schedules: list[Schedule],
    tags: Iterable[str] = (),
    queue: str | None = None,
    parameters: dict[str, Any] | None = None,
) -> RunnerDeployment:
    deployment = RunnerDeployment.from_flow(
        flow,
        name=name,
        description=description,
        tags=list(dict.fromkeys([TAG, *tags])),
        parameters=parameters,
        schedules=schedules,
        concurrency_limit=ONE_AT_A_TIME,
        work_pool_name=pool,
        work_queue_name=queue,
        job_variables={"command": ENGINE},
        # Else Prefect would look for a repository in the working folder, and store its address and the last commit.
        version_type="prefect:simple",
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    schema = parameter_schema(flow).model_dump(exclude_unset=True)
    deployment._parameter_openapi_schema = _Closed(**schema, additionalProperties=False)  # noqa: SLF001  as Prefect's own command does
    return deployment


def _ours(client: SyncPrefectClient) -> list[DeploymentResponse]:
    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    page, found = 200, []
    while batch := client.read_deployments(deployment_filter=ours, limit=page, offset=len(found)):
        found += batch
    return found


def _full_name(client: SyncPrefectClient, deployment: DeploymentResponse) -> str:
    return f"{client.read_flow(deployment.flow_id).name}/{deployment.name}"


def _apply(client: SyncPrefectClient, deployment: RunnerDeployment, before: DeploymentResponse | None) -> None:
    """Create one, or update it; what a person has paused, switched off or added as a schedule in the UI stays so."""
    if before is not None:
        off = {schedule.slug for schedule in before.schedules if not schedule.active}
        ours = [
            schedule.model_copy(update={"active": schedule.slug not in off}) for schedule in deployment.schedules or []
        ]
        for schedule in before.schedules:
            if schedule.slug == SLUG and not ours:
                client.delete_deployment_schedule(before.id, schedule.id)
        theirs = [_again(schedule) for schedule in before.schedules if schedule.slug != SLUG]
        deployment.schedules = [*ours, *theirs]
        deployment.paused = before.paused
    deployment.apply()


def _again(schedule: DeploymentSchedule) -> DeploymentScheduleCreate:
    return DeploymentScheduleCreate(
        schedule=schedule.schedule, active=schedule.active, parameters=schedule.parameters, slug=schedule.slug
    )
