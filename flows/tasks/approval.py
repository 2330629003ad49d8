"""Suspend a run above its account's threshold until the steward resumes it in the Prefect UI. Nothing is reserved meanwhile.

Approval is read from the run's state history, never inferred from the run being executed again: a run that timed out or was
cancelled can be retried, and then asks again.
"""

import logging
from collections.abc import Sequence

from prefect import get_client
from prefect.client.schemas import State
from prefect.exceptions import Pause
from prefect.states import Suspended

from dpcore.errors import UsageError
from dpcore.runs.steps import check_run
from dpcore.spec import Declaration
from dpcore.steward.approvals import Approval, approval_for, check_approved, request
from flows.tasks.refusals import deployed_run

progress = logging.getLogger("dpcore.progress")

KEY = "approval"
"""Prefix of our pause keys. Anybody may suspend a run for other reasons, under other keys."""


def await_approval(declaration: Declaration, *, approved: bool) -> None:
    """Return if the run needs no approval or has it. Otherwise suspend a deployed run until it is resumed, and reject any other run.

    A suspended run ends its process. When it is resumed, it starts over under the same id and calls this function again.

    Args:
        declaration: The declaration of the run.
        approved: Whether the steward called the flow, from Python or a command line, and approves the run. Ignored for deployed runs.

    Raises:
        UsageError: The run needs approval, but comes from no deployment, so it can't be suspended.
        BudgetRefused: The account can't pay for the run anyway.
        Pause: The run is suspended.
    """
    policy, run = approval_for(declaration), deployed_run()
    if policy is None or run is None:
        check_approved(declaration, approved=approved)
        return
    with get_client(sync_client=True) as client:
        earlier = client.read_flow_run_states(run.id)
        if _granted(earlier, declaration):
            return
        # Nobody is asked to approve a run that the account can't pay for.
        check_run(declaration, resume=None, run_id=str(run.id))
        # Prefect's own function is not used: it takes no message and, when the server does not suspend the run, returns as if the
        # run had been resumed.
        key = f"{KEY}-{len(_asked(earlier)) + 1}-{declaration.digest}"
        words = _question(declaration, policy)
        progress.info("%s", words)
        suspended: State[None] = Suspended(timeout_seconds=policy.within_seconds, pause_key=key, message=words)
        state = client.set_flow_run_state(run.id, suspended).state
        if state and state.is_paused():
            raise Pause(state=state)
        # Another process that executes this run has asked meanwhile, and may have been answered.
        if not _granted(client.read_flow_run_states(run.id), declaration):
            raise UsageError(
                f"{words}. The run could not be suspended to wait for that, and nothing was reserved; check its state, then retry it"
            )


def _granted(states: Sequence[State], declaration: Declaration) -> bool:
    """Return whether the newest question was about exactly this declaration, and was answered by resuming the run.

    The parameters of a run can be changed while it waits and afterwards. That makes it a different declaration.
    """
    asked = _asked(states)
    if not asked:
        return False
    question, answer = asked[-1], states[asked[-1] + 1 :]
    about = (states[question].state_details.pause_key or "").rpartition("-")[2]
    return about == declaration.digest and bool(answer) and answer[0].is_scheduled() and answer[0].name == "Resuming"


def _asked(states: Sequence[State]) -> list[int]:
    """Return the positions in a run's state history at which it was suspended for approval."""
    return [
        number
        for number, state in enumerate(states)
        if state.is_paused() and (state.state_details.pause_key or "").startswith(f"{KEY}-")
    ]


def _question(declaration: Declaration, policy: Approval) -> str:
    answer = f"it continues if the steward resumes it within {_duration(policy)}, and nothing is reserved until then"
    return f"{request(declaration, policy)}: {answer}"


def _duration(policy: Approval) -> str:
    """Format how long the steward has to answer, in the largest unit of time that is exact."""
    seconds = policy.within_seconds
    size, unit = next((size, unit) for size, unit in ((3600, "h"), (60, "min"), (1, "s")) if seconds % size == 0)
    return f"{seconds // size} {unit}"
