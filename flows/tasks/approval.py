"""A run above its account's threshold waits until the steward resumes it in the Prefect UI; nothing is reserved meanwhile.

Whether it was approved is read from the run's history of states, never from the mere fact that it runs again: a run that timed
out or was cancelled can be retried, and then asks again.
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
"""How the keys of our pauses begin; anybody may suspend a run for other reasons."""


def await_approval(declaration: Declaration, *, approved: bool) -> None:
    """Return if the run needs no approval or has it; else suspend a deployed run until it is resumed, and refuse any other.

    A suspended run ends its process. When it is resumed it begins anew under the same id, and comes here again.

    Args:
        declaration: What is to be run.
        approved: Whether the steward has called the flow, from Python or a command line, and approves it. Deployed runs have no say.

    Raises:
        UsageError: There is nobody to ask, because the run comes from no deployment.
        BudgetRefused: The account can't pay for it anyway.
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
        check_run(declaration, resume=None, run_id=str(run.id))  # nobody is asked to approve what the account can't pay
        # Suspended here and not by Prefect's own function: that has no place for words, and returns, as if the run had been
        # resumed, when the server does not suspend it.
        key = f"{KEY}-{len(_asked(earlier)) + 1}-{declaration.digest}"
        words = _question(declaration, policy)
        progress.info("%s", words)
        wanted: State[None] = Suspended(timeout_seconds=policy.within_seconds, pause_key=key, message=words)
        state = client.set_flow_run_state(run.id, wanted).state
        if state and state.is_paused():
            raise Pause(state=state)
        # Another process that works on this run has asked meanwhile, and may have been answered.
        if not _granted(client.read_flow_run_states(run.id), declaration):
            raise UsageError(f"{words}; but it could not be suspended: see what state it is in, then retry it")


def _granted(states: Sequence[State], declaration: Declaration) -> bool:
    """Tell whether the newest question was about this very declaration, and was answered by resuming the run.

    The parameters of a run can be changed while it waits and afterwards; that makes it another declaration.
    """
    asked = _asked(states)
    if not asked:
        return False
    question, answer = asked[-1], states[asked[-1] + 1 :]
    about = (states[question].state_details.pause_key or "").rpartition("-")[2]
    return about == declaration.digest and bool(answer) and answer[0].is_scheduled() and answer[0].name == "Resuming"


def _asked(states: Sequence[State]) -> list[int]:
    """Return where in a run's history it was suspended to be approved."""
    return [
        number
        for number, state in enumerate(states)
        if state.is_paused() and (state.state_details.pause_key or "").startswith(f"{KEY}-")
    ]


def _question(declaration: Declaration, policy: Approval) -> str:
    answer = f"it goes on if the steward resumes it within {_duration(policy)}, and nothing is reserved until then"
    return f"{request(declaration, policy)}: {answer}"


def _duration(policy: Approval) -> str:
    """Write how long the steward has, in the largest unit that says it exactly."""
    seconds = policy.within_seconds
    size, unit = next((size, unit) for size, unit in ((3600, "h"), (60, "min"), (1, "s")) if seconds % size == 0)
    return f"{seconds // size} {unit}"
