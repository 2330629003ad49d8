"""Deploy to a Prefect server: releases of registered specs, dashboards, the account pages, and the nightly verification of the ledger.

Prefect loads a flow by its module name, so the server stores no path of the deploying machine. Our deployments carry a tag: those
whose spec is no longer registered are removed, and deployments without the tag are left alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentScheduleUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.schedules import Cron, Schedule

from dpcore import Account, Balance
from dpcore.errors import DpflowError
from dpcore.reporting import overview
from dpcore.steward.dashboards import RegisteredDashboard, all_dashboards
from dpcore.steward.registry import Registered, all_registered
from flows.answer import answer
from flows.budget import budget
from flows.deploy.pool import ensure_queue
from flows.form import Fill, form_schema
from flows.pages.form import filled
from flows.prefect_compat import EntrypointType, VersionType
from flows.synthesize import synthesize
from flows.verify import verify

FLOWS: Mapping[str, Flow[..., Any]] = {flow.name: flow for flow in (synthesize, budget, verify, answer)}
"""All flows by name. A worker executes only these, whatever a server says."""

TAG = "dpflow"
SLUG = "cron"
"""The name of a deployment's schedule. Deploying again updates the schedule of this name instead of adding another."""

ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)
"""Runs of a deployment wait for each other. So do the runs of other deployments on the same account: they share a queue, from which
workers take one run at a time. Both are conveniences; the ledger is what protects the account."""

AnySchedule: TypeAlias = DeploymentScheduleCreate | DeploymentScheduleUpdate | DeploymentSchedule

ENGINE = "python3 -P -m flows.worker.execute"
"""The command that Prefect's own workers start for a run. Our worker starts the same, without reading it from the deployment."""


@dataclass(frozen=True)
class Deployed:
    """The deployments that a server has, and those that were removed, each as `flow/name`."""

    present: tuple[str, ...]
    removed: tuple[str, ...]


def deploy(pool: str) -> Deployed:
    """Deploy everything to the configured server, for the workers of a pool, and remove what is no longer registered."""
    now = {deployment.full_name: deployment for deployment in deployments(pool)}
    with get_client(sync_client=True) as client:
        before = {_full_name(client, response): response for response in _ours(client)}
        for deployment in now.values():
            if deployment.work_queue_name:
                ensure_queue(client, pool, deployment.work_queue_name)
            _apply(client, deployment)
        gone = tuple(sorted(before.keys() - now.keys()))
        for name in gone:
            client.delete_deployment(before[name].id)
    return Deployed(present=tuple(sorted(now)), removed=gone)


def deployments(pool: str) -> Iterator[RunnerDeployment]:
    """Yield every deployment that the server should have."""
    balances = _balances()
    for entry in all_registered():
        yield _release(entry, pool, balances.get(entry.account))
    for dashboard in all_dashboards():
        yield _dashboard(dashboard, pool)
    yield _deployment(
        budget,
        pool=pool,
        name="budget",
        description="Keeps the page of each account up to date, and emits an event when one has passed 80 % of its budget.",
        schedules=[Cron("*/15 * * * *", timezone="UTC", slug=SLUG)],
    )
    yield _deployment(
        verify,
        pool=pool,
        name="verify",
        description="Verifies the ledger every night: each charge, each release, and the chain that holds them together.",
        schedules=[Cron("30 2 * * *", timezone="UTC", slug=SLUG)],
    )


def entrypoint(flow: Flow[..., Any]) -> str:
    """Return the name by which Prefect loads one of our flows."""
    return f"{flow.__module__}.{flow.fn.__name__}"


def _balances() -> dict[str, tuple[Account, Balance]]:
    """Return every account with the balance of its most used block. Without a ledger, forms are deployed without balances."""
    try:
        summaries = overview.look(None).accounts
    except DpflowError:
        return {}
    return {summary.account.name: (summary.account, summary.most_used[1]) for summary in summaries}


def _release(entry: Registered, pool: str, balance: tuple[Account, Balance] | None) -> RunnerDeployment:
    return _deployment(
        synthesize,
        pool=pool,
        name=entry.name,
        description=f"A synthetic release, charged to the account {entry.account}. The ledger refuses runs that the account can't pay for.",
        tags=[entry.account],
        queue=entry.account,
        parameters={"release": entry.name},
        schedules=[Cron(entry.cron, timezone=entry.timezone, slug=SLUG)] if entry.cron else [],
        fill=lambda schema: filled(schema, entry, balance),
    )


def _dashboard(entry: RegisteredDashboard, pool: str) -> RunnerDeployment:
    return _deployment(
        answer,
        pool=pool,
        name=entry.name,
        description=f"The questions of a dashboard, answered by a session of {entry.release}. What the session knows or has bought is free.",
        tags=[entry.account],
        queue=entry.account,
        parameters=entry.parameters,
        schedules=[Cron(entry.cron, timezone=entry.timezone, slug=SLUG)] if entry.cron else [],
    )


def _deployment(  # noqa: PLR0913  the fields of a deployment
    flow: Flow[..., Any],
    *,
    pool: str,
    name: str,
    description: str,
    schedules: list[Schedule],
    tags: Iterable[str] = (),
    queue: str | None = None,
    parameters: dict[str, Any] | None = None,
    fill: Fill = dict,
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
        # Otherwise Prefect would look for a git repository in the working folder, and store its URL and the last commit.
        version_type=VersionType.SIMPLE,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    deployment._parameter_openapi_schema = form_schema(flow, fill=fill)  # noqa: SLF001  as Prefect's own command does
    return deployment


def _ours(client: SyncPrefectClient) -> list[DeploymentResponse]:
    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    deployed: list[DeploymentResponse] = []
    while batch := client.read_deployments(deployment_filter=ours, limit=200, offset=len(deployed)):
        deployed += batch
    return deployed


def _full_name(client: SyncPrefectClient, deployment: DeploymentResponse) -> str:
    return f"{client.read_flow(deployment.flow_id).name}/{deployment.name}"


def _apply(client: SyncPrefectClient, deployment: RunnerDeployment) -> None:
    """Create a deployment, or set all its fields. A pause, a disabled schedule and a schedule added by a person stay as they are."""
    try:
        before = client.read_deployment_by_name(deployment.full_name)  # whatever its tags are
    except ObjectNotFound:
        own = {"flow_id": str(client.create_flow_from_name(deployment.flow_name or "")), "name": deployment.name}
        schedules = [schedule.model_dump(mode="json") for schedule in deployment.schedules or []]
        body = _fields(deployment) | own | {"schedules": schedules, "concurrency_limit": deployment.concurrency_limit}
        client.request("POST", "/deployments/", json=body)
        return
    fields = _fields(deployment) | _limit(client, deployment, before)
    client.request("PATCH", "/deployments/{id}", path_params={"id": before.id}, json=fields)
    _put_schedules(client, deployment, before)


def _fields(deployment: RunnerDeployment) -> dict[str, Any]:
    """Return every field that can be set on a deployment, except its schedules, its limit, and whether it is paused.

    Prefect's own update omits unset fields, so the server would keep whatever somebody has written there.
    """
    return {
        "version": deployment.version,
        "description": deployment.description,
        "tags": deployment.tags,
        "parameters": deployment.parameters,
        "parameter_openapi_schema": deployment._parameter_openapi_schema.model_dump(exclude_unset=True),  # noqa: SLF001  set above
        "enforce_parameter_schema": True,
        "work_pool_name": deployment.work_pool_name,
        "work_queue_name": deployment.work_queue_name,
        "job_variables": deployment.job_variables,
        "concurrency_options": deployment.concurrency_options.model_dump(mode="json")
        if deployment.concurrency_options
        else None,
        "entrypoint": deployment.entrypoint,
        "path": None,
        "pull_steps": [],
        "storage_document_id": None,
        "infrastructure_document_id": None,
    }


def _limit(client: SyncPrefectClient, deployment: RunnerDeployment, before: DeploymentResponse) -> dict[str, Any]:
    """Restore the deployment's own concurrency limit, and return the fields that make the deployment use it.

    The server names the limit after the deployment. Somebody may have changed it, or have pointed the deployment to another one.
    """
    name = f"deployment:{before.id}"
    try:
        own = client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        return {"concurrency_limit": deployment.concurrency_limit, "global_concurrency_limit_id": None}
    if (own.limit, own.active, own.slot_decay_per_second) != (deployment.concurrency_limit, True, 0):
        right = {"limit": deployment.concurrency_limit, "active": True, "slot_decay_per_second": 0}
        client.request(
            "PATCH", "/v2/concurrency_limits/{id_or_name}", path_params={"id_or_name": str(own.id)}, json=right
        )
    return {"global_concurrency_limit_id": str(own.id)}


def _put_schedules(client: SyncPrefectClient, deployment: RunnerDeployment, before: DeploymentResponse) -> None:
    """Replace our schedules if they differ. A disabled schedule stays disabled, and schedules of others stay.

    A schedule equal to ours under another name is treated as ours: left alone, it would double every run.
    """
    plans = [_plan(schedule) for schedule in deployment.schedules or []]
    there = [schedule for schedule in before.schedules if schedule.slug == SLUG or _plan(schedule) in plans]
    active = all(schedule.active for schedule in there)
    ours = [schedule.model_copy(update={"active": active}) for schedule in deployment.schedules or []]
    if [_settable(schedule) for schedule in ours] == [_settable(schedule) for schedule in there]:
        return
    for schedule in there:
        client.delete_deployment_schedule(before.id, schedule.id)
    if ours:
        body = [schedule.model_dump(mode="json") for schedule in ours]
        client.request("POST", "/deployments/{id}/schedules", path_params={"id": before.id}, json=body)


def _plan(schedule: AnySchedule) -> tuple[Any, ...]:
    """Return when a schedule creates runs, and with which parameters."""
    return schedule.schedule, schedule.parameters


def _settable(schedule: AnySchedule) -> tuple[Any, ...]:
    """Return every field that can be set on a schedule."""
    return *_plan(schedule), schedule.active, schedule.slug, schedule.max_scheduled_runs
