"""A refusal ends a deployed run in a state of its own, with its sentence and no traceback; called, the flow raises it."""

import pytest
from prefect.client.schemas.objects import StateType

from dpcore.errors import BudgetRefused, DpflowError, RowsUnexpected, SourceError, UsageError
from dpcore.ledger import open_ledger
from flows.tasks.guard import private_flow, private_task
from tests.conftest import Workspace
from tests.flows.deployed import Deployed, deploy
from tests.flows.stack import wait_for

pytestmark = pytest.mark.prefect

ERRORS: dict[str, DpflowError] = {
    "usage": UsageError("this can't be done so; do it otherwise"),
    "budget": BudgetRefused("the account cannot pay; ask for less", requested=2, remaining=1),
    "rows": RowsUnexpected("the noisy total is too small; look at the formats of dates"),
    "source": SourceError("the table can't be read; look at it"),
}


def stumble(error: str) -> None:
    raise ERRORS[error]


stumble_in_a_task = private_task(name="stumble")(stumble)


@private_flow(name="stumbling")
def stumbling(release: str, *, error: str, inside: bool) -> None:
    stumble_in_a_task(error) if inside else stumble(error)


@pytest.fixture
def deployed(workspace: Workspace, prefect_server: str) -> Deployed:
    """The deployment of the workspace's spec."""
    return deploy(workspace, prefect_server)


@pytest.mark.parametrize(
    ("error", "inside"),
    [("usage", True), ("usage", False), ("source", True), ("source", False), ("budget", False), ("rows", True)],
)
def test_only_a_refusal_ends_a_deployed_run_in_a_state_of_its_own(
    workspace: Workspace, prefect_server: str, error: str, inside: bool
) -> None:
    stumbles = deploy(workspace, prefect_server, stumbling, entrypoint="unused")
    run = stumbles.start(error=error, inside=inside)
    state, log = stumbles.execute(run), stumbles.log(run)
    refused = error != "source"
    assert (state.type.value, state.name) == ("FAILED", "Refused" if refused else "Failed")
    assert (state.message == str(ERRORS[error])) is refused
    assert str(ERRORS[error]) in log
    assert ("Traceback" not in log) is refused
    assert "NoneType" not in log
    if inside:
        wait_for(
            lambda: [task for task in stumbles.tasks(run) if task.state_type == StateType.FAILED], "the task's end"
        )
        (task,) = stumbles.tasks(run)
        assert task.state_name == state.name


@pytest.mark.parametrize(("error", "inside"), [("usage", True), ("source", False)])
def test_whoever_calls_a_flow_gets_the_error_itself(error: str, inside: bool) -> None:
    with pytest.raises(type(ERRORS[error]), match=str(ERRORS[error])):
        stumbling("unused", error=error, inside=inside)


def test_a_run_that_cannot_be_paid_is_refused_in_words(workspace: Workspace, deployed: Deployed) -> None:
    workspace.open_account(epsilon=0.5)
    run = deployed.start()
    state = deployed.execute(run)
    assert state.name == "Refused"
    assert "cannot pay" in str(state.message)
    assert "Traceback" not in deployed.log(run)
    deployed.retry(run)
    assert deployed.execute(run).name == "Refused"


def test_a_run_with_too_few_rows_ends_refused_and_a_retry_says_the_same_and_spends_nothing(
    workspace: Workspace, prefect_server: str
) -> None:
    workspace.open_account()
    workspace.write_spec(("epsilon: 1.0", "expect_rows: [100000, 200000], epsilon: 1.0"))
    deployed = deploy(workspace, prefect_server)
    run = deployed.start()
    state = deployed.execute(run)
    assert state.name == "Refused"
    assert "but the spec expects 100,000 to 200,000" in str(state.message)
    with open_ledger() as ledger:
        before = ledger.head()
        assert ledger.balance("visits").reserved == 0
    deployed.retry(run)
    again = deployed.execute(run)
    assert (again.name, again.message) == (state.name, state.message)
    with open_ledger() as ledger:
        assert ledger.head() == before
