"""Above a threshold a run waits for the steward, has reserved nothing meanwhile, and never runs without having been resumed."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import get_client
from prefect.client.schemas import OrchestrationResult, State
from prefect.flow_runs import suspend_flow_run
from prefect.states import (
    AwaitingRetry,
    Cancelled,
    Cancelling,
    Completed,
    Crashed,
    Failed,
    Running,
    Scheduled,
    Suspended,
)

from dpcore import load_spec
from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.steward.approvals import require_approval
from flows.synthesize import synthesize
from flows.tasks.approval import _granted
from flows.tasks.guard import private_flow
from tests.conftest import Workspace
from tests.flows.deployed import NAME, Deployed, deploy
from tests.flows.stack import Stack

pytestmark = pytest.mark.prefect


@pytest.fixture
def deployed(workspace: Workspace, prefect_server: str) -> Deployed:
    """The deployment of the workspace's spec."""
    return deploy(workspace, prefect_server)


@pytest.fixture
def ledger(workspace: Workspace, tree_of: Callable[[Path], dict[str, bytes]]) -> Callable[[], dict[str, bytes]]:
    """Open an account whose runs wait above epsilon 0.5, and return a look at every byte of the ledger."""
    workspace.open_account()
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=7200)

    def look() -> dict[str, bytes]:
        files = tree_of(workspace.folder / ".dpflow")
        return {name: content for name, content in files.items() if "ledger" in Path(name).name}

    assert look()
    return look


def resume(run: UUID) -> OrchestrationResult[Any]:
    """Press the steward's button."""
    with get_client(sync_client=True) as client:
        return client.resume_flow_run(run)


def expire(run: UUID, deployed: Deployed) -> None:
    """Wait until a run's time is up; then let the server find out."""
    timeout = deployed.state(run).state_details.pause_timeout
    assert timeout is not None
    while datetime.now(UTC) <= timeout:
        time.sleep(0.05)
    resume(run)


def test_a_run_waits_with_nothing_reserved_and_goes_on_when_it_is_resumed(
    deployed: Deployed, ledger: Callable[[], dict[str, bytes]]
) -> None:
    before = ledger()
    run = deployed.start()
    state = deployed.execute(run)
    assert (state.type.value, state.name) == ("PAUSED", "Suspended")
    for words in ("asks for epsilon 1:", "above epsilon 0.5", "account visits", "within 2 h", "nothing is reserved"):
        assert words in str(state.message)
    assert str(state.message) in deployed.log(run)
    assert ledger() == before
    assert resume(run).status.value == "ACCEPT"
    assert resume(run).status.value == "ABORT"
    assert deployed.execute(run).name == "Completed"
    with open_ledger() as opened:
        assert [found.id for found in opened.runs("visits")] == [str(run)]
        head = opened.head()
    deployed.retry(run)
    assert deployed.execute(run).name == "Completed"
    assert deployed.states(run).count("Suspended") == 1
    with open_ledger() as opened:
        assert opened.head() == head


def test_a_run_at_the_threshold_does_not_wait(deployed: Deployed, ledger: Callable[[], dict[str, bytes]]) -> None:
    run = deployed.start(epsilon=0.5)
    assert deployed.execute(run).name == "Completed"
    assert "Suspended" not in deployed.states(run)


def test_what_the_account_cannot_pay_is_refused_before_anybody_is_asked(
    deployed: Deployed, ledger: Callable[[], dict[str, bytes]]
) -> None:
    before = ledger()
    run = deployed.start(epsilon=99.0)
    state = deployed.execute(run)
    assert state.name == "Refused"
    assert "too little" in str(state.message)
    assert "Suspended" not in deployed.states(run)
    assert ledger() == before


def test_time_that_runs_out_refuses_and_a_retry_asks_again(
    deployed: Deployed, ledger: Callable[[], dict[str, bytes]]
) -> None:
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=1)
    before = ledger()
    run = deployed.start()
    deployed.execute(run)
    for forced in (False, True):
        expire(run, deployed)
        assert deployed.state(run).name == "Failed"
        deployed.retry(run, forced=forced)
        assert deployed.execute(run).name == "Suspended"
    assert ledger() == before


@private_flow(name="naive")
def naive(release: str) -> str:
    """Ask as Prefect's documentation does."""
    suspend_flow_run(timeout=1, key="approval")
    return release


def test_a_flow_that_asks_as_usual_would_run_unapproved(workspace: Workspace, prefect_server: str) -> None:
    unsafe = deploy(workspace, prefect_server, naive, entrypoint="unused")
    run = unsafe.start()
    assert unsafe.execute(run).name == "Suspended"
    expire(run, unsafe)
    unsafe.retry(run, forced=True)
    assert unsafe.execute(run).name == "Completed"
    assert "Resuming" not in unsafe.states(run)


def test_what_was_approved_is_this_and_nothing_else(deployed: Deployed, ledger: Callable[[], dict[str, bytes]]) -> None:
    before = ledger()
    run = deployed.start(epsilon=0.6)
    assert "asks for epsilon 0.6:" in str(deployed.execute(run).message)
    edited = {"parameters": {"release": NAME, "epsilon": 9.0}}
    with get_client(sync_client=True) as client:
        assert client.request("PATCH", f"/flow_runs/{run}", json=edited).is_success
    resume(run)
    state = deployed.execute(run)
    assert state.name == "Suspended"
    assert "asks for epsilon 9:" in str(state.message)
    assert ledger() == before


def test_without_a_deployment_a_run_is_refused_unless_the_caller_approves(
    workspace: Workspace, ledger: Callable[[], dict[str, bytes]]
) -> None:
    before = ledger()
    with pytest.raises(UsageError, match="needs the steward's approval"):
        synthesize(str(workspace.spec))
    assert ledger() == before
    assert synthesize(str(workspace.spec), approved=True)["account"] == "visits"
    with pytest.raises(UsageError, match="needs the steward's approval"):
        synthesize(str(workspace.spec))


ASKED, OTHER = "approval-1-{digest}", "approval-1-of-something-else"
RESUMED: State[None] = Scheduled(name="Resuming")
BEGUN: list[State[Any]] = [Scheduled(), Running()]


def asking(key: str) -> State[Any]:
    return Suspended(timeout_seconds=60, pause_key=key)


HISTORIES: list[tuple[str, bool, list[State[Any]]]] = [
    ("is new", False, BEGUN),
    ("waits", False, [*BEGUN, asking(ASKED)]),
    ("was resumed", True, [*BEGUN, asking(ASKED), RESUMED]),
    ("was resumed and runs", True, [*BEGUN, asking(ASKED), RESUMED, Running()]),
    ("waits for a slot", True, [*BEGUN, asking(ASKED), RESUMED, Scheduled(name="AwaitingConcurrencySlot"), Running()]),
    ("crashed and is retried", True, [*BEGUN, asking(ASKED), RESUMED, Running(), Crashed(), AwaitingRetry(), Running()]),
    ("is retried when completed", True, [*BEGUN, asking(ASKED), RESUMED, Running(), Completed(), *BEGUN]),
    ("timed out and is retried", False, [*BEGUN, asking(ASKED), Failed(), AwaitingRetry(), Running()]),
    ("was cancelled and is retried", False, [*BEGUN, asking(ASKED), Cancelled(), AwaitingRetry(), Running()]),
    ("was cancelled by force", False, [*BEGUN, asking(ASKED), Cancelling(), Cancelled(), *BEGUN]),
    ("was scheduled by hand", False, [*BEGUN, asking(ASKED), Scheduled(), Running()]),
    ("was set to running by hand", False, [*BEGUN, asking(ASKED), Running()]),
    ("asked, timed out, and was resumed from another pause", False,
     [*BEGUN, asking(ASKED), Failed(), *BEGUN, asking("lunch"), RESUMED, Running()]),
    ("was resumed from another pause", False, [*BEGUN, asking("lunch"), RESUMED, Running()]),
    ("was approved for something else", False, [*BEGUN, asking(OTHER), RESUMED, Running()]),
    ("was approved, and then asked for something else", False,
     [*BEGUN, asking(ASKED), RESUMED, Running(), asking(OTHER), Failed(), *BEGUN]),
    ("was approved for something else and then for this", True,
     [*BEGUN, asking(OTHER), RESUMED, Running(), asking(ASKED), RESUMED, Running()]),
]  # fmt: skip


@pytest.mark.parametrize(("granted", "states"), [history[1:] for history in HISTORIES], ids=[it[0] for it in HISTORIES])
def test_only_a_run_that_was_resumed_is_approved(
    workspace: Workspace, granted: bool, states: Sequence[State[Any]]
) -> None:
    declaration = load_spec(workspace.spec)
    for state in states:
        if state.state_details.pause_key:
            state.state_details.pause_key = state.state_details.pause_key.format(digest=declaration.digest)
    assert _granted(states, declaration) is granted


def test_the_server_ends_a_run_that_is_not_resumed_in_time(stack: Stack) -> None:
    run = stack.start({"release": "late"}, deployment="synthesize/late")
    assert stack.wait(run)["state_name"] == "Failed", stack.told(run)
    assert "Suspended" in [state["name"] for state in stack.states(run)]
    assert stack.states(run)[-1]["message"] == "The flow was paused and never resumed."
    (account,) = json.loads(stack.here("ledger", "show", "late", "--json"))["accounts"]
    assert account["runs"] == []
