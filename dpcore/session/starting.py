"""Start a session: reserve its budget, and buy its first release. If that fails, return what was not spent.

Only `Session.open` does this. Everything else uses a session that was opened to its end.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpcore.errors import DpflowError, RunHeld, SourceError, UsageError
from dpcore.ledger import Ledger, Run, RunState
from dpcore.reporting.session_claims import Claim, sessions
from dpcore.runs.steps import in_order, open_run
from dpcore.runs.synthesis import Synthesis
from dpcore.session.opening import bought_first, meaning_of, reserve_session, with_epsilon, with_unchanged_table
from dpcore.spec import Declaration
from dpcore.spec.release import NAME

progress = logging.getLogger("dpcore.progress")


@contextmanager
def started(ledger: Ledger, declaration: Declaration, session: str, *, share: float, table: Any) -> Iterator[Run]:
    """Yield the run of a session that has its first release. A session that was interrupted before is started to its end.

    If this fails, also in the caller's part, and nothing that the session needs was spent, then its budget returns to the account.
    Otherwise the error says how to go on and how to close the session.
    """
    if not re.fullmatch(NAME, session):
        raise UsageError("the id of a session has letters, digits, dots, dashes and underscores only; choose another")
    run = _begun(ledger, declaration, session)
    new = run is None
    if run is None:
        run = reserve_session(ledger, declaration, session=session, share=share)
    else:
        progress.info("session %s was reserved before, and keeps the budget that it has", session)
    try:
        _buy_first(ledger, declaration, run, table=table)
        yield run
    except RunHeld:  # another process is starting it
        raise
    except DpflowError as error:
        if not (new and _returned(ledger, run, error)) and _can_go_on(ledger, run):
            options = f"{declaration.path} --session {session}"
            told = f"{error}; session {session} stays reserved: go on with: dpflow session open {options}, or close it with: "
            error.args = (f"{told}dpflow session close {options}",)
        raise


def _begun(ledger: Ledger, declaration: Declaration, session: str) -> Run | None:
    """Return the run of a session that was reserved before under this id; None if there is none.

    Raises:
        UsageError: If that session is closed, or was opened with another spec.
    """
    known = sessions(ledger, declaration.spec.dataset).items()
    found = next(((run, claim) for run, claim in known if run.id == session), None)
    if found is None or found[0].state is RunState.REFUNDED:
        return None
    run, claim = found
    if claim.digest != meaning_of(declaration):
        raise UsageError(
            f"session {session} was opened with another spec, or with an earlier version of this one; choose another id, and end that "
            f"session with: dpflow ledger settle {session}"
        )
    if run.state is RunState.SETTLED and bought_first(ledger, run) is not None:
        raise UsageError(f"session {session} is closed; open another: dpflow session open {declaration.path}")
    return run


def _buy_first(ledger: Ledger, declaration: Declaration, session: Run, *, table: Any) -> None:
    """Make the release that a session begins with, if that was not done before.

    A killed process may have left it unfinished. What it has measured is neither charged nor drawn again.
    """
    claim, made = Claim.read(session.claim), bought_first(ledger, session)
    if claim is None or (made is not None and made.state is RunState.SETTLED):
        return
    if session.state is not RunState.OPEN:
        raise UsageError(
            f"session {session.id} was closed before it was opened to its end; open another: dpflow session open SPEC"
        )
    declared = with_unchanged_table(declaration) if claim.unchanged else declaration
    bought = with_epsilon(declared, claim.epsilon)
    with open_run(Synthesis(bought, run_id=claim.first, resume=made is not None, table=table)) as first:
        in_order(first)


def _can_go_on(ledger: Ledger, session: Run) -> bool:
    """Return whether a session is open, and its first release is there or can still be made."""
    first = bought_first(ledger, session)
    ended = first is not None and first.state is RunState.SETTLED and first.release is None
    return ledger.run(session.id).state is RunState.OPEN and not ended


def _returned(ledger: Ledger, session: Run, error: DpflowError) -> bool:
    """Return a new session's budget to its account, with that of its first run. Return whether this was possible."""
    first = bought_first(ledger, session)
    if first is not None and first.state is RunState.SETTLED and first.release is not None:
        return False
    try:
        if first is not None and first.state is RunState.OPEN:
            # Values may have caused a failure after the first row. Such a run keeps its reservation, as every run does.
            if first.spent or first.data_version is not None or isinstance(error, SourceError):
                return False
            ledger.refund(first.id, lease=ledger.lease(first.id))
        ledger.refund(session.id, lease=None)
    except DpflowError:
        return False
    return True
