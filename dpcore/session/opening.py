"""Open a session: reserve its budget, and buy the release that it begins with for a share of it.

A session is a run of the ledger whose reservation stays open. Its claim names the run of the release that it began with. If the first release
is to go on from an earlier one, the opener declares that the table is the same, as a spec does (docs/decisions/0057). Only `Session.open` buys
a first release. Everything else uses a session that was opened to its end.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dpcore.answers.release import Release, open_release_with
from dpcore.errors import DpflowError, RunHeld, SourceError, UsageError
from dpcore.ledger import Account, Ledger, Run, RunState
from dpcore.places import places_of_spec
from dpcore.privacy.accounting import budget_of, epsilon_of
from dpcore.release.withdrawal import live_runs, recorded_manifest
from dpcore.reporting.formatting import at_most
from dpcore.reporting.lineage import published_by
from dpcore.reporting.session_claims import Claim, sessions
from dpcore.runs.paying import amount_to_reserve, check_remaining, paying_account
from dpcore.runs.steps import in_order, open_run
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import Declaration
from dpcore.spec.changes import Changes, changed
from dpcore.spec.declaration import declare
from dpcore.spec.parts import NAME
from dpcore.spec.prior import PriorSpec
from dpcore.strategies import strategy_for
from dpcore.tables.ingest import check_key

progress = logging.getLogger("dpcore.progress")

FIRST_SHARE = 0.9
"""The share of a session's budget that buys its first release.

A release answers questions about all columns at once, and a purchase hardly more than its own. So buying pays only for what the release
knows too little about (docs/decisions/0048).
"""


def joined(ledger: Ledger, declaration: Declaration, session: str | None) -> Run:
    """Return a session's run: the newest open one of a spec, or the one with this id."""
    of_spec = {run.id: run for run in sessions_of(ledger, declaration)}
    if session is not None:
        if session not in of_spec:
            raise UsageError(
                f"there is no session {session} of this spec as it is now; see: dpflow session show {declaration.path}. A session of an "
                f"earlier version of the spec is ended with: dpflow ledger settle {session}"
            )
        return of_spec[session]
    still_open = [run for run in of_spec.values() if run.state is RunState.OPEN]
    if not still_open:
        raise UsageError(f"no session of this spec is open; open one with: dpflow session open {declaration.path}")
    return max(still_open, key=lambda run: run.first)


def sessions_of(ledger: Ledger, declaration: Declaration) -> list[Run]:
    """Return the runs of all sessions that were opened with a spec of this meaning, oldest first."""
    meaning, of_account = meaning_of(declaration), sessions(ledger, declaration.spec.dataset)
    return [run for run, claim in of_account.items() if claim.digest == meaning]


def meaning_of(declaration: Declaration) -> str:
    """Return a hash of a spec's meaning that does not depend on its epsilon and its prior: a session may have others."""
    return _with_prior(with_epsilon(declaration, 1.0), None).digest


def with_epsilon(declaration: Declaration, epsilon: float) -> Declaration:
    """Return the declaration with another budget."""
    return changed(declaration, Changes(epsilon=epsilon))


def with_unchanged_table(declaration: Declaration) -> Declaration:
    """Return the declaration of a table that is the same as for the dataset's newest release, as if its spec had declared that."""
    if declaration.dependencies:
        raise UsageError(
            "`unchanged` cannot be used with `depends`, which each release learns anew; list the pairs with `possible` in the spec, or open "
            "the session without `unchanged`"
        )
    return _with_prior(declaration, PriorSpec(release="latest", unchanged=True))


def _with_prior(declaration: Declaration, prior: PriorSpec | None) -> Declaration:
    spec = declaration.spec.model_copy(update={"prior": prior})
    return declare(spec, universe=declaration.universe, path=declaration.path)


@contextmanager
def started(ledger: Ledger, declaration: Declaration, session: str, *, share: float, table: Any) -> Iterator[Run]:
    """Yield the run of a session that has its first release. A session that was interrupted before is started to its end.

    If this fails, also in the caller's part, and nothing that the session needs was spent, then its budget returns to the account.
    Otherwise the error says how to go on and how to close the session.
    """
    if not re.fullmatch(NAME, session):
        raise UsageError("the id of a session has letters, digits, dots, dashes and underscores only; choose another")
    interrupted = _interrupted(ledger, declaration, session)
    if interrupted is None:
        run = reserve_session(ledger, declaration, session=session, share=share)
    else:
        run = interrupted
        progress.info("session %s was reserved before, and keeps the budget that it has", session)
    try:
        _buy_first(ledger, declaration, run, table=table)
        yield run
    except RunHeld:  # another process is starting it
        raise
    except DpflowError as error:
        returned = interrupted is None and _returned(ledger, run, error)
        if not returned and _can_go_on(ledger, run):
            options = f"{declaration.path} --session {session}"
            advice = f"go on with: dpflow session open {options}, or close it with: dpflow session close {options}"
            error.args = (f"{error}; session {session} stays reserved: {advice}",)
        raise


def _interrupted(ledger: Ledger, declaration: Declaration, session: str) -> Run | None:
    """Return the run of a session that was reserved before under this id; None if there is none.

    Raises:
        UsageError: If that session is closed, or was opened with another spec.
    """
    reserved = {run.id: run for run in sessions(ledger, declaration.spec.dataset)}
    run = reserved.get(session)
    if run is None or run.state is RunState.REFUNDED:
        return None
    if session not in {of_spec.id for of_spec in sessions_of(ledger, declaration)}:
        raise UsageError(
            f"session {session} was opened with another spec, or with an earlier version of this one; choose another id, and end that "
            f"session with: dpflow ledger settle {session}"
        )
    if run.state is RunState.SETTLED and first_run(ledger, run) is not None:
        raise UsageError(f"session {session} is closed; open another: dpflow session open {declaration.path}")
    return run


def reserve_session(ledger: Ledger, declaration: Declaration, *, session: str, share: float = FIRST_SHARE) -> Run:
    """Reserve the budget of a new session: the spec's epsilon, of which its first release gets a share.

    Raises:
        BudgetRefused: If the account cannot pay. Nothing was reserved.
        UsageError: If no session can be opened on the spec, or with this share.
    """
    if declaration.spec.blocks is not None:
        raise UsageError(
            "a session reads the whole table, but the spec has `blocks`; use a spec and an account without"
        )
    strategy = strategy_for(declaration)
    if strategy.single_counts:
        name = declaration.strategy.name
        raise UsageError(f"a session cannot go on from a release by strategy {name}; use mwem or adaptive in the spec")
    if not 0 < share < 1:
        raise UsageError(f"the share of a first release must be above 0 and below 1; the default is {FIRST_SHARE}")
    account, privacy = paying_account(ledger, declaration), declaration.spec.privacy
    _, amount = budget_of(privacy.epsilon, delta=privacy.delta, currency=account.currency)
    check_remaining(account, declaration, amount=amount, remaining=ledger.balance(account.name).remaining)
    epsilon, first = _first_budget(declaration, account, int(amount * share))
    amount_to_reserve(
        with_epsilon(declaration, epsilon), strategy, currency=account.currency
    )  # raises if it is too small
    check_key(places_of_spec(declaration.path).private)
    prior = declaration.spec.prior
    claim = Claim(meaning_of(declaration), f"{session}-first", epsilon, unchanged=prior is not None and prior.unchanged)
    run = ledger.reserve(
        session,
        account=account.name,
        amount=amount - first,
        claim=claim.text,
        analyst=declaration.spec.analyst,
        purpose=declaration.spec.purpose,
    )
    progress.info(
        "session %s: reserved epsilon %s of account %s, %g %% of it for a first release%s",
        session,
        at_most(privacy.epsilon),
        account.name,
        100 * share,
        "" if claim.unchanged else _hint_at_earlier(ledger, account.name),
    )
    return run


def _hint_at_earlier(ledger: Ledger, account: str) -> str:
    """Say how an earlier release could count, if the account has one. The ledger alone decides this, and never the table."""
    published = live_runs(ledger, account)
    if not published or published_by(published[-1].claim):  # measurements of several runs cannot be taken over
        return ""
    return f"; if the table is still that of release {published[-1].release}, open it with --unchanged, and both count"


def _first_budget(declaration: Declaration, account: Account, most: int) -> tuple[float, int]:
    """Return an epsilon for a first release, and its amount, which is at most `most` and hardly less."""
    delta = declaration.spec.privacy.delta
    epsilon = epsilon_of(most, currency=account.currency, delta=delta)
    while (amount := budget_of(epsilon, delta=delta, currency=account.currency)[1]) > most:
        epsilon *= 1 - 1e-13
    return epsilon, amount


def _buy_first(ledger: Ledger, declaration: Declaration, session: Run, *, table: Any) -> None:
    """Make the release that a session begins with, if that was not done before.

    A killed process may have left it unfinished. What it has measured is neither charged nor drawn again.
    """
    claim, first = claim_of(session), first_run(ledger, session)
    if first is not None and first.state is RunState.SETTLED:
        return
    if session.state is not RunState.OPEN:
        raise UsageError(
            f"session {session.id} was closed before it was opened to its end; open another: dpflow session open SPEC"
        )
    declared = with_unchanged_table(declaration) if claim.unchanged else declaration
    bought = replace(with_epsilon(declared, claim.epsilon), kept_only=True)  # what it sells counts kept rows
    with open_run(Synthesis(bought, run_id=claim.first, resume=first is not None, table=table)) as run:
        in_order(run)


def _can_go_on(ledger: Ledger, session: Run) -> bool:
    """Return whether a session is open, and its first release is there or can still be made."""
    first = first_run(ledger, session)
    stopped = first is not None and first.state is RunState.SETTLED and first.release is None
    return ledger.run(session.id).state is RunState.OPEN and not stopped


def _returned(ledger: Ledger, session: Run, error: DpflowError) -> bool:
    """Return a new session's budget to its account, with that of its first run. Return whether this was possible."""
    first = first_run(ledger, session)
    if first is not None and first.release is not None:
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


def claim_of(session: Run) -> Claim:
    """Return what the ledger says about a session's run. Raise if it is the run of something else."""
    claim = Claim.read(session.claim)
    if claim is None:
        raise UsageError(f"run {session.id} is not a session; see the sessions with: dpflow session show SPEC")
    return claim


def first_run(ledger: Ledger, session: Run) -> Run | None:
    """Return the run that buys a session's first release; None if it was not reserved yet."""
    first = claim_of(session).first
    return next((run for run in ledger.runs(session.account) if run.id == first), None)


def first_release(ledger: Ledger, declaration: Declaration, session: Run) -> Release:
    """Return the release that a session begins with. Spend nothing: a session that was not opened to its end is refused."""
    first = first_run(ledger, session)
    options = f"{declaration.path} --session {session.id}"
    if session.state is not RunState.SETTLED and (first is None or first.state is not RunState.SETTLED):
        raise UsageError(
            f"session {session.id} was not opened to its end; finish opening it with: dpflow session open {options}"
        )
    if first is None or first.release is None:
        raise UsageError(
            f"run {claim_of(session).first} has ended without the release that session {session.id} needs; close the session with: "
            f"dpflow session close {options}, and open another"
        )
    folder = declaration.output_folder / first.release
    return open_release_with(recorded_manifest(ledger, first, folder), folder)
