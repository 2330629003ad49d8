"""Open a session: reserve its budget. A share of it is for the release that the session begins with, which `starting` buys.

A session is a run of the ledger whose reservation stays open. Its claim names the run of the release that it began with. Nothing here reads
the table: if the first release is to go on from an earlier one, the opener declares that the table is the same, as a spec does (docs/decisions/0072).
"""

import logging
from typing import Any

from dpcore.answers.release import Release, open_release_with
from dpcore.errors import UsageError
from dpcore.ledger import Account, Ledger, Run, RunState
from dpcore.places import places_of_spec
from dpcore.privacy.accounting import budget_of, epsilon_of
from dpcore.release.integrity import one_line
from dpcore.release.withdrawal import recorded_manifest
from dpcore.reporting.formatting import at_most
from dpcore.reporting.lineage import published_by
from dpcore.reporting.session_claims import Claim, sessions
from dpcore.runs.paying import amount_to_reserve, check_remaining, paying_account
from dpcore.spec import Declaration
from dpcore.spec.load import declare
from dpcore.spec.prior import PriorSpec
from dpcore.spec.release import PmwSpec
from dpcore.strategies import strategy_for
from dpcore.tables.ingest import check_key

progress = logging.getLogger("dpcore.progress")

FIRST_SHARE = 0.9
"""The share of a session's budget that buys its first release.

A release answers questions about all columns at once, and a purchase hardly more than its own. So buying pays only for what the release
knows too little about (docs/decisions/0062).
"""


def joined(ledger: Ledger, declaration: Declaration, session: str | None) -> Run:
    """Return a session's run: the newest open one of a spec, or the one with this id."""
    meaning = meaning_of(declaration)
    known = {
        run.id: run for run, claim in sessions(ledger, declaration.spec.dataset).items() if claim.digest == meaning
    }
    if session is not None:
        if session not in known:
            raise UsageError(
                f"there is no session {session} of this spec as it is now; see: dpflow session show {declaration.path}. A session of an "
                f"earlier version of the spec is ended with: dpflow ledger settle {session}"
            )
        return known[session]
    still_open = [run for run in known.values() if run.state is RunState.OPEN]
    if not still_open:
        raise UsageError(f"no session of this spec is open; open one with: dpflow session open {declaration.path}")
    return max(still_open, key=lambda run: run.first)


def meaning_of(declaration: Declaration) -> str:
    """Return a hash of a spec's meaning that does not depend on its epsilon and its prior: a session may have others."""
    return _with(declaration, prior=None, privacy=declaration.spec.privacy.model_copy(update={"epsilon": 1.0})).digest


def check_session(declaration: Declaration) -> None:
    """Raise if no session can be opened on a spec. Read and spend nothing."""
    if declaration.spec.blocks is not None:
        raise UsageError(
            "a session reads the whole table, but the spec has `blocks`; use a spec and an account without"
        )
    if isinstance(declaration.strategy, PmwSpec):
        raise UsageError("a session cannot go on from a release by strategy pmw; use mwem or adaptive in the spec")


def with_epsilon(declaration: Declaration, epsilon: float) -> Declaration:
    """Return the declaration with another budget."""
    return _with(declaration, privacy=declaration.spec.privacy.model_copy(update={"epsilon": epsilon}))


def with_unchanged_table(declaration: Declaration) -> Declaration:
    """Return the declaration of a table that is the same as for the dataset's newest release, as if its spec had declared that."""
    if declaration.dependencies:
        raise UsageError(
            "`unchanged` cannot be used with `depends`, which each release learns anew; list the pairs with `possible` in the spec, or open "
            "the session without `unchanged`"
        )
    return _with(declaration, prior=PriorSpec(release="latest", unchanged=True))


def _with(declaration: Declaration, **parts: Any) -> Declaration:
    """Return the declaration of a spec with other parts."""
    changed = declaration.spec.model_copy(update=parts)
    return declare(changed, universe=declaration.universe, path=declaration.path)


def reserve_session(ledger: Ledger, declaration: Declaration, *, session: str, share: float = FIRST_SHARE) -> Run:
    """Reserve the budget of a new session: the spec's epsilon, of which its first release gets a share.

    Raises:
        BudgetRefused: If the account cannot pay. Nothing was reserved.
    """
    check_session(declaration)
    if not 0 < share < 1:
        raise UsageError(f"the share of a first release must be above 0 and below 1; the default is {FIRST_SHARE}")
    account, privacy = paying_account(ledger, declaration), declaration.spec.privacy
    _, amount = budget_of(privacy.epsilon, delta=privacy.delta, currency=account.currency)
    check_remaining(account, declaration, amount=amount, remaining=ledger.balance(account.name).remaining)
    epsilon, first = _first_budget(declaration, account, int(amount * share))
    amount_to_reserve(
        with_epsilon(declaration, epsilon), strategy_for(declaration), currency=account.currency
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
    withdrawn = ledger.withdrawals(account)
    made = [run for run in ledger.runs(account) if run.release is not None and run.id not in withdrawn]
    if not made or published_by(made[-1].claim):  # measurements of several runs cannot be taken over
        return ""
    return f"; if the table is still that of release {made[-1].release}, open it with --unchanged, and both count"


def _first_budget(declaration: Declaration, account: Account, most: int) -> tuple[float, int]:
    """Return an epsilon for a first release, and its amount, which is at most `most` and hardly less."""
    delta = declaration.spec.privacy.delta
    epsilon = epsilon_of(most, currency=account.currency, delta=delta)
    while (amount := budget_of(epsilon, delta=delta, currency=account.currency)[1]) > most:
        epsilon *= 1 - 1e-13
    return epsilon, amount


def bought_first(ledger: Ledger, session: Run) -> Run | None:
    """Return the run that buys a session's first release; None if it was not reserved yet."""
    claim = Claim.read(session.claim)
    if claim is None:
        return None
    return next((run for run in ledger.runs(session.account) if run.id == claim.first), None)


def first_release(ledger: Ledger, declaration: Declaration, session: Run) -> Release:
    """Return the release that a session begins with. Spend nothing: a session that was not opened to its end is refused."""
    claim = Claim.read(session.claim)
    if claim is None:
        raise UsageError(f"run {session.id} is not a session; see the sessions with: dpflow session show SPEC")
    made = next((run for run in ledger.runs(session.account) if run.id == claim.first), None)
    options = f"{declaration.path} --session {session.id}"
    if session.state is not RunState.SETTLED and (made is None or made.state is not RunState.SETTLED):
        raise UsageError(
            f"session {session.id} was not opened to its end; finish opening it with: dpflow session open {options}"
        )
    if made is None or made.release is None:
        raise UsageError(
            f"run {claim.first} has ended without the release that session {session.id} needs; close the session with: "
            f"dpflow session close {options}, and open another"
        )
    folder = declaration.output_folder / made.release
    release = open_release_with(recorded_manifest(ledger, made, folder), folder)
    first_run(ledger, session, release)
    return release


def first_run(ledger: Ledger, session: Run, release: Release) -> Run:
    """Return the run of the release that a session began with, by the session's claim. Raise if this is another release."""
    claim = Claim.read(session.claim)
    if claim is None or release.manifest["privacy"]["run"] != claim.first:
        raise UsageError(
            f"{one_line(release.folder)} is not the release that session {session.id} began with; see: dpflow ledger verify"
        )
    return ledger.run(claim.first)


def limited_by(declaration: Declaration, release: Release) -> Declaration:
    """Return the declaration with the limit on rows per unit that a release has."""
    return declaration.limited(int(release.manifest["privacy"]["max_rows_per_unit"]))
