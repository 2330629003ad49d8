"""What the Prefect server does by itself about our runs: it ends dead ones, lets crashed ones go on, and tells of a budget that runs out.

Each is known by its name, so that made again it is updated and not doubled. They look at runs with our tag only.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
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
"""The name of the state in which a silent run is for the moment between being noticed and being crashed."""

CRASHED_SECONDS = 10
"""How long a run stays crashed before it goes on; Prefect allows no less."""

MOST_STARTS = 10
"""How often a run is started before a further crash is its last."""

LOST_SECONDS = 600
"""How long a run may be on its way from a worker to its start; a cluster may have to fetch an image first."""

OURS = {"prefect.resource.id": f"prefect.tag.{TAG}", "prefect.resource.role": "tag"}
"""What the events of our runs are related to."""

HOW_TO_NOTIFY = (
    "nobody is told when an account passes 80 % of its budget; to be told, make a notification block in the Prefect UI under "
    "Blocks, then run: dpflow serve --deploy-only --notify BLOCK_TYPE/BLOCK_NAME"
)


def automate(*, notify: str | None) -> bool:
    """Make or update all automations on the configured server; return whether somebody is told of an account that runs out.

    Args:
        notify: The notification block to send through, as `TYPE/NAME`. Without one, whoever is told now is told from now on.
    """
    with get_client(sync_client=True) as client:
        tell = _notification(client, notify) if notify else None
        _put(client, _silent_runs())
        _put(client, _dead_runs())
        _put(client, _crashed_runs())
        _put(client, _lost_runs())
        told = _put(client, _account_passed(tell), keep_actions=tell is None)
    return any(isinstance(action, SendNotification) for action in told.actions)


def _silent_runs() -> AutomationCore:
    """Notice the runs of a killed worker, which can't report that they are gone, by their silence.

    Events do not say for certain that a run is still running: a heartbeat may arrive after the event of its suspension. So the action is
    to pause the run. The server allows that only for a run that is running at that moment, and refuses it for one that waits for
    approval, was paused by a person, is scheduled or has ended.

    A crash is not among what a run is expected to report. It is for the automation further below, and the run is heard of again when it
    goes on.
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
    """End a run that was noticed to be dead, as if its worker had reported the crash."""
    return AutomationCore(
        name="dpflow: dead runs are crashed",
        tags=[TAG],
        description="A run that died with its worker counts as crashed.",
        trigger=EventTrigger(
            posture=Posture.Reactive,
            expect={f"prefect.flow-run.{DEAD}"},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=OURS,
            for_each={"prefect.resource.id"},
            threshold=1,
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message="The run died with its worker.")],
    )


def _crashed_runs() -> AutomationCore:
    """A crash costs nothing twice, since what was measured is replayed: so a run goes on, unless it crashes again and again.

    The server counts the starts of a run. One that crashed before it was ever started is not tried again: its worker is broken.
    Only a run that stays crashed for a moment is meant, because Prefect's worker reports the same crash up to twice.
    """
    counts = [str(count) for count in range(1, MOST_STARTS)]
    return AutomationCore(
        name="dpflow: crashed runs go on",
        tags=[TAG],
        description=f"A crashed run is scheduled again and goes on from its transcript, until it was started {MOST_STARTS} times.",
        trigger=_silence(
            after=("Crashed",), expect=("*",), seconds=CRASHED_SECONDS, match={"prefect.run-count": counts}
        ),
        actions=[_again("Crashed; goes on from its transcript, in which everything that was measured is kept.")],
    )


def _lost_runs() -> AutomationCore:
    """A worker that is killed between taking a run and starting it leaves nobody behind who could be silent."""
    return AutomationCore(
        name="dpflow: lost runs are scheduled again",
        tags=[TAG],
        description=f"A run that a worker took, and did not start within {LOST_SECONDS // 60} minutes, was lost with the worker.",
        trigger=_silence(after=("Pending", "Submitting"), expect=("*",), seconds=LOST_SECONDS),
        actions=[_again(f"Taken by a worker that did not start it within {LOST_SECONDS // 60} minutes.")],
    )


def _silence(
    *, after: Iterable[str], expect: Iterable[str], seconds: int, match: Mapping[str, list[str]] | None = None
) -> EventTrigger:
    """Return the trigger of a run of ours of which, after some event, none of the expected ones follows in time."""
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


def _again(message: str) -> ChangeFlowRunState:
    return ChangeFlowRunState(state=StateType.SCHEDULED, name="AwaitingRetry", message=message)


def _account_passed(tell: SendNotification | None) -> AutomationCore:
    return AutomationCore(
        name="dpflow: an account passes 80 %",
        tags=[TAG],
        description="Tells once when 80 % of an account's budget is used.",
        trigger=EventTrigger(
            posture=Posture.Reactive,
            expect={PASSED},
            match={"prefect.resource.id": "dpflow.account.*"},
            for_each={"prefect.resource.id"},
            threshold=1,
        ),
        actions=[tell or DoNothing()],
    )


def _notification(client: SyncPrefectClient, notify: str) -> SendNotification:
    return SendNotification(
        block_document_id=_block(client, notify),
        subject="dpflow: {{ event.resource.name }} has passed 80 % of its budget",
        body=(
            "{{ event.payload.percent }} % of the budget of account {{ event.resource.name }} is spent or reserved. "
            "`dpflow ledger show {{ event.resource.name }}` shows by what; a run that can't be paid is refused."
        ),
    )


def _block(client: SyncPrefectClient, notify: str) -> UUID:
    kind, _, name = notify.partition("/")
    try:
        return client.read_block_document_by_name(name, kind).id
    except ObjectNotFound:
        raise UsageError(
            f"the Prefect server has no block {notify}; make it in the UI under Blocks, and name it as TYPE/NAME, "
            "such as slack-webhook/steward"
        ) from None


def _put(client: SyncPrefectClient, wanted: AutomationCore, *, keep_actions: bool = False) -> AutomationCore:
    """Make an automation or update the one of this name; one that a person has switched off in the UI stays off."""
    found = client.read_automations_by_name(wanted.name)
    if not found:
        client.create_automation(wanted)
        return wanted
    first, *doubles = sorted(found, key=lambda automation: str(automation.id))
    for double in doubles:  # two that were served at the same moment may both have made it
        client.delete_automation(double.id)
    kept = {"enabled": first.enabled} | ({"actions": first.actions} if keep_actions else {})
    updated = _all_set(wanted.model_copy(update=kept))
    if updated != _all_set(first):  # an update forgets which runs were heard of so far
        client.update_automation(first.id, updated)
    return updated


def _all_set(automation: AutomationCore) -> AutomationCore:
    """Return an automation with every value set expressly, because only such are sent in an update; an owner is not accepted there."""
    return AutomationCore.model_validate(automation.model_dump(exclude={"id", "created", "updated", "owner_resource"}))
