"""Automations of the Prefect server: detect dead runs, resume crashed ones, and notify when a budget runs low.

An automation is identified by its name, so deploying it again updates it. Automations apply only to runs with our tag.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.automations import (
    AutomationCore,
    ChangeFlowRunState,
    DoNothing,
    EventTrigger,
    Posture,
    SendNotification,
)
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound

from dpcore.errors import UsageError
from flows.deploy.deployments import TAG
from flows.pages.announcements import PASSED
from flows.server.settings import HEARTBEAT_SECONDS

SILENCE_SECONDS = 4 * HEARTBEAT_SECONDS
"""How long a run may be silent before it counts as dead."""

DEAD = "Dead"
"""The name of the state of a silent run for the moment between being detected and being set to Crashed."""

CRASHED_SECONDS = 10
"""How long a run stays crashed before it is resumed. Prefect allows no less."""

MOST_STARTS = 10
"""How often a run is started before a crash ends it for good."""

LOST_SECONDS = 600
"""How long a run may take from being picked up by a worker to its start. A cluster may have to pull an image first."""

OURS = {"prefect.resource.id": f"prefect.tag.{TAG}", "prefect.resource.role": "tag"}
"""The related resource by which events of our runs are recognized."""

HOW_TO_NOTIFY = (
    "nobody is notified when an account passes 80 % of its budget; to be notified, create a notification block in the Prefect UI "
    "under Blocks, then run: dpflow serve --deploy-only --notify BLOCK_TYPE/BLOCK_NAME"
)


def automate(*, notify: str | None) -> bool:
    """Create or update all automations on the configured server. Return whether anybody is notified of a budget that runs low.

    Args:
        notify: The notification block to send through, as `TYPE/NAME`. Without one, an existing notification stays as it is.
    """
    with get_client(sync_client=True) as client:
        notification = _notification(client, notify) if notify else None
        for automation in (_silent_runs(), _dead_runs(), _crashed_runs(), _lost_runs()):
            _put(client, automation)
        of_budget = _put(client, _account_passed(notification), keep_actions=notification is None)
    return any(isinstance(action, SendNotification) for action in of_budget.actions)


def _silent_runs() -> AutomationCore:
    """Detect runs that died with a killed worker by their missing heartbeats, since they can't report it themselves.

    Events do not prove that a run is still running: a heartbeat may arrive after the event of its suspension. So the action is to
    pause the run. The server allows that only for a run that is running at that moment, and rejects it for one that waits for approval,
    was paused by a person, is scheduled or has ended.

    A crash is not among the expected events. The automation for crashed runs handles it, and the run sends events again once it is
    resumed.
    """
    said = (
        "Running",
        "heartbeat",
        "Completed",
        "Failed",
        "Refused",
        "Cancelling",
        "Cancelled",
        "Suspended",
        "Resuming",
        "Paused",
        "AwaitingRetry",
    )
    return AutomationCore(
        name="dpflow: silent runs are dead",
        tags=[TAG],
        description=f"A running run that sends no heartbeat for {SILENCE_SECONDS} seconds has died with its worker.",
        trigger=_silence(after=("Running", "heartbeat"), expect=said, seconds=SILENCE_SECONDS),
        actions=[
            ChangeFlowRunState(
                state=StateType.PAUSED,
                name=DEAD,
                message=f"No heartbeat for {SILENCE_SECONDS} seconds: the worker and the run were killed or lost the server.",
            )
        ],
    )


def _dead_runs() -> AutomationCore:
    """Set a run that was detected as dead to Crashed, as if its worker had reported the crash."""
    return AutomationCore(
        name="dpflow: dead runs are crashed",
        tags=[TAG],
        description="A run that died with its worker counts as crashed.",
        trigger=_event(f"prefect.flow-run.{DEAD}", of="prefect.flow-run.*", match_related=OURS),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message="The run died with its worker.")],
    )


def _crashed_runs() -> AutomationCore:
    """Resume a crashed run, unless it keeps crashing. A crash charges nothing twice, because committed measurements are replayed.

    The server counts the starts of a run. A run that crashed before its first start is not retried, because its worker is broken.
    The trigger waits until a run has stayed crashed for a moment, because Prefect's worker may report the same crash twice.
    """
    counts = [str(count) for count in range(1, MOST_STARTS)]
    return AutomationCore(
        name="dpflow: crashed runs go on",
        tags=[TAG],
        description=f"A crashed run is scheduled again and continues from its transcript, up to {MOST_STARTS} starts.",
        trigger=_silence(
            after=("Crashed",), expect=("*",), seconds=CRASHED_SECONDS, match={"prefect.run-count": counts}
        ),
        actions=[_again("Crashed; continues from its transcript, which holds everything measured so far.")],
    )


def _lost_runs() -> AutomationCore:
    """Schedule a run again whose worker was killed between picking it up and starting it. Such a run never sends heartbeats."""
    return AutomationCore(
        name="dpflow: lost runs are scheduled again",
        tags=[TAG],
        description=f"A run that a worker picked up but did not start within {LOST_SECONDS // 60} minutes was lost with the worker.",
        trigger=_silence(after=("Pending", "Submitting"), expect=("*",), seconds=LOST_SECONDS),
        actions=[_again(f"Picked up by a worker that did not start it within {LOST_SECONDS // 60} minutes.")],
    )


def _silence(
    *, after: Iterable[str], expect: Iterable[str], seconds: int, match: Mapping[str, list[str]] | None = None
) -> EventTrigger:
    """Return a trigger that fires when, after one of some events of our runs, none of the expected events follows in time."""
    return EventTrigger(
        posture=Posture.Proactive,
        after={f"prefect.flow-run.{word}" for word in after},
        expect={f"prefect.flow-run.{word}" for word in expect},
        match={"prefect.resource.id": "prefect.flow-run.*", **(match or {})},
        match_related=OURS,
        for_each={"prefect.resource.id"},
        threshold=1,
        within=timedelta(seconds=seconds),
    )


def _event(name: str, *, of: str, **related: Any) -> EventTrigger:
    """Return a trigger that fires at each event of a name, of resources like this one."""
    return EventTrigger(
        posture=Posture.Reactive,
        expect={name},
        match={"prefect.resource.id": of},
        for_each={"prefect.resource.id"},
        threshold=1,
        **related,
    )


def _again(message: str) -> ChangeFlowRunState:
    return ChangeFlowRunState(state=StateType.SCHEDULED, name="AwaitingRetry", message=message)


def _account_passed(notification: SendNotification | None) -> AutomationCore:
    return AutomationCore(
        name="dpflow: an account passes 80 %",
        tags=[TAG],
        description="Notifies once when 80 % of an account's budget is used.",
        trigger=_event(PASSED, of="dpflow.account.*"),
        actions=[notification or DoNothing()],
    )


def _notification(client: SyncPrefectClient, notify: str) -> SendNotification:
    return SendNotification(
        block_document_id=_block(client, notify),
        subject="dpflow: {{ event.resource.name }} has passed 80 % of its budget",
        body=(
            "{{ event.payload.percent }} % of the budget of account {{ event.resource.name }} is spent or reserved. "
            "`dpflow ledger show {{ event.resource.name }}` shows which runs used it. The ledger refuses runs that the account can't pay for."
        ),
    )


def _block(client: SyncPrefectClient, notify: str) -> UUID:
    kind, _, name = notify.partition("/")
    try:
        return client.read_block_document_by_name(name, kind).id
    except ObjectNotFound:
        raise UsageError(
            f"the Prefect server has no block {notify}; create it in the UI under Blocks, and pass it as TYPE/NAME, "
            "such as slack-webhook/steward"
        ) from None


def _put(client: SyncPrefectClient, automation: AutomationCore, *, keep_actions: bool = False) -> AutomationCore:
    """Create an automation, or update the one of this name. One that a person has disabled in the UI stays disabled."""
    before = client.read_automations_by_name(automation.name)
    if not before:
        client.create_automation(automation)
        return automation
    first, *doubles = sorted(before, key=lambda automation: str(automation.id))
    for double in doubles:  # two commands at the same moment may both have created it
        client.delete_automation(double.id)
    unchanged = {"enabled": first.enabled} | ({"actions": first.actions} if keep_actions else {})
    updated = _explicit(automation.model_copy(update=unchanged))
    if updated != _explicit(first):  # an update makes the server forget the events seen so far
        client.update_automation(first.id, updated)
    return updated


def _explicit(automation: AutomationCore) -> AutomationCore:
    """Return an automation with every value set explicitly, because an update sends only those. It must not contain an owner."""
    return AutomationCore.model_validate(automation.model_dump(exclude={"id", "created", "updated", "owner_resource"}))
