"""The form of one release: the values that its spec declares, and what its account can still pay for. All of it is public.

The form is part of the deployment, which the server stores. It is written when the release is deployed, and again when the balance
of the account or the registered spec has changed: at the end of each run, and by the flow `budget`.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterNextScheduledStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound

from dpcore import Account, Balance
from dpcore import private_log as stewardlog
from dpcore.errors import DpflowError
from dpcore.reporting.formatting import at_most, new_block_epsilon, next_epsilon, next_run
from dpcore.reporting.markdown import plain
from dpcore.spec import ReleaseSpec
from dpcore.spec.advice import MOST_DELTA
from dpcore.steward.approvals import approval_of
from dpcore.steward.registry import Registered, all_registered, declared
from flows.form import AS_DECLARED, MOST_EPSILON

DECLARED = {"epsilon", "delta", "rows", "workload", "strategy"}
"""The fields that show what the spec declares."""
_AS_OF = re.compile(r"as of [-0-9]+ [:0-9]+ UTC")


def filled(schema: Mapping[str, Any], entry: Registered, balance: tuple[Account, Balance] | None) -> dict[str, Any]:
    """Return the form's schema for one release.

    Args:
        schema: The schema of the flow's form, filled in before or not.
        entry: The registered release.
        balance: Its account and the balance of the account's most used block, or None if the ledger has no such account.
    """
    fields = {name: dict(field) for name, field in schema.get("properties", {}).items()}
    if "release" in fields:
        # Another release has other values and another account, so it has a form of its own.
        fields["release"]["enum"] = [entry.name]
    added = {"epsilon": list(_account_words(entry.account, balance))}
    try:
        spec = declared(entry.name, registered_only=True).spec
    except DpflowError:
        values: dict[str, Any] = {"strategy": AS_DECLARED}
        added["release"] = [
            "The spec was changed or moved after it was registered. Runs are refused until it is registered again."
        ]
    else:
        values = _values(spec)
        added |= {name: [words] for name, words in _unfillable(spec).items()}
    for name, field in fields.items():
        help_text = field.get("description", "").partition("\n\n")[0]  # without what was added before
        field["description"] = "\n\n".join([help_text, *added.get(name, [])])
        if name in DECLARED:
            field.pop("default", None)
        if name in values:
            field["default"] = values[name]
    return {**schema, "properties": fields}


def refresh_forms(account: Account, balance: Balance) -> None:
    """Write the forms of the account's releases again if something in them has changed. A failure is recorded and costs nothing else."""
    try:
        with get_client(sync_client=True) as client:
            for entry in all_registered():
                if entry.account == account.name:
                    _refresh(client, entry, (account, balance))
    except Exception as error:  # noqa: BLE001  the form says as of when it is, so an old one does no harm
        stewardlog.record(error, where="the form of a release")


def _refresh(client: SyncPrefectClient, entry: Registered, balance: tuple[Account, Balance]) -> None:
    try:
        deployment = client.read_deployment_by_name(f"synthesize/{entry.name}")
    except ObjectNotFound:
        return
    before: Mapping[str, Any] = deployment.parameter_openapi_schema or {}
    after = filled(before, entry, balance)
    if _undated(after) == _undated(before) or _is_due(client, deployment.id):
        return
    body = {"parameter_openapi_schema": after}
    client.request("PATCH", "/deployments/{id}", path_params={"id": deployment.id}, json=body)


def _is_due(client: SyncPrefectClient, deployment: UUID) -> bool:
    """Return whether a run of the deployment is about to start by its schedule.

    On any change of a deployment, Prefect deletes its scheduled runs and makes them again a few seconds later. It would miss one that is due
    in between.
    """
    soon = FlowRunFilterNextScheduledStartTime(before_=datetime.now(UTC) + timedelta(seconds=60))
    scheduled = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED]))
    return bool(
        client.read_flow_runs(
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment])),
            flow_run_filter=FlowRunFilter(state=scheduled, next_scheduled_start_time=soon),
            limit=1,
        )
    )


def _undated(schema: Mapping[str, Any]) -> str:
    return _AS_OF.sub("", repr(schema))


def _values(spec: ReleaseSpec) -> dict[str, Any]:
    """Return the declared values that a field can hold. The other fields stay empty, which also means as declared."""
    privacy, rows, marginals = spec.privacy, spec.output.rows, spec.workload.marginals
    values: dict[str, Any] = {"strategy": spec.strategy.name if spec.strategy is not None else AS_DECLARED}
    if privacy.epsilon <= MOST_EPSILON and privacy.delta <= MOST_DELTA:
        values |= {"epsilon": privacy.epsilon, "delta": privacy.delta}
    if isinstance(rows, int):
        values["rows"] = rows
    if isinstance(marginals, int):
        values["workload"] = marginals
    return values


def _unfillable(spec: ReleaseSpec) -> dict[str, str]:
    """Return words for declared values that a field can't hold."""
    marginals = spec.workload.marginals
    words = {}
    if not isinstance(spec.output.rows, int):
        words["rows"] = "The spec declares the noisy number of real rows."
    if not isinstance(marginals, int):
        words["workload"] = f"The spec declares a list of {len(marginals):,} marginals."
    return words


def _account_words(name: str, balance: tuple[Account, Balance] | None) -> Iterator[str]:
    if balance is not None:
        account, now = balance[0], datetime.now(UTC)
        epsilon = next_epsilon(account, balance[1].remaining)
        can = next_run(epsilon, new_blocks=new_block_epsilon(account), block="its most used block")
        yield f"**Account {plain(name)}** as of {now:%Y-%m-%d %H:%M} UTC: {can}."
    if (approval := approval_of(name)) is not None:
        yield f"A run above epsilon {at_most(approval.above)} waits for the steward's approval."
