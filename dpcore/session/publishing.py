"""Publish what a session knows as a release. It is computed from the transcript, so it costs nothing.

The release has a run of its own, which reserves the least amount there is, charges nothing and gets it back. So one session can publish at
any time, and go on. The privacy statement adds the reservations of all runs whose answers the release was made from.
"""

from dataclasses import replace
from typing import Any

from dpcore.answers.judging import judge
from dpcore.answers.release import Release
from dpcore.answers.uncertainty import restored, uncertainty_table
from dpcore.errors import UsageError
from dpcore.ledger import Account, Ledger, Run, RunState
from dpcore.release import (
    Draft,
    Persons,
    SyntheticRows,
    public_seed,
    publish,
    release_id,
    require_rewritable,
    retain_declared,
    settle,
    state,
)
from dpcore.reporting.lineage import session_release_claim
from dpcore.reporting.outcome import rounds_in
from dpcore.runs.same_table import chosen_limit_of, findings_of
from dpcore.session.knowledge import Knowledge
from dpcore.session.opening import claim_of
from dpcore.spec import Declaration
from dpcore.universe import Universe
from dpcore.universe.dependencies import LearnedFunction


def publish_knowledge(
    knowledge: Knowledge, declaration: Declaration, *, session: Run, ledger: Ledger, account: Account
) -> dict[str, Any]:
    """Publish a release with everything that a session knows. Doing so again, after no more purchases, changes nothing."""
    count = len(knowledge.bought)
    run_id = f"{session.id}-release-{count}"
    run = ledger.reserve(
        run_id,
        account=account.name,
        amount=1,  # the least that a run can reserve
        claim=session_release_claim(session=session.id, first=claim_of(session).first, purchases=count),
        analyst=session.analyst,
        purpose=session.purpose,
    )
    require_rewritable(ledger, run)
    lease = None if run.state is RunState.SETTLED else ledger.lease(run_id)
    draft = _draft(knowledge, declaration, runs=(run, session), ledger=ledger)
    ledger.confirm()
    published = publish(draft, ledger=ledger, lease=lease)
    settle(published, ledger=ledger, lease=lease)
    retain_declared(ledger, account.name, declaration)
    return {
        "run": run_id,
        "release": str(published.folder),
        "rows": draft.rows.count,
        "epsilon": draft.statement.epsilon,
    }


def _draft(knowledge: Knowledge, declaration: Declaration, *, runs: tuple[Run, Run], ledger: Ledger) -> Draft:
    run, session = runs
    release, manifest = knowledge.release, knowledge.first.manifest
    uncertainty = release.uncertainty
    if uncertainty is None:
        raise UsageError("the first release was published without its errors; make a new one, and open a session on it")
    statement = state(
        declaration,
        ledger=ledger,
        run=run,
        draws={run.id: 0, session.id: sum(purchase.counts.size for purchase in knowledge.bought)},
        earlier=manifest["privacy"]["made_from"],
        chosen_limit=chosen_limit_of(knowledge.first),
    )

    discovered = _discovered(declaration, release)
    persons = Persons.read(manifest, seed=public_seed("persons", run.id))
    return Draft(
        declaration=discovered,
        rows=SyntheticRows.drawn_from(release.model, discovered, run=run.id, persons=persons),
        measurements=release.measurements,
        resolutions=release.resolutions,
        rounds=rounds_in(manifest),
        statement=statement,
        name=release_id(run.id, opened_at=run.opened_at),
        seed=public_seed("values", run.id),
        findings=findings_of(knowledge.first),
        functions=tuple(map(LearnedFunction.told, manifest.get("dependencies", ()))),
        warnings=tuple(manifest["warnings"]),
        uncertainty=lambda most_bytes: uncertainty_table(uncertainty, release.measurements, most_bytes=most_bytes),
        prior=manifest.get("prior"),
        start=release.start,
        judge=lambda written: judge(replace(release, unwritten_uncertainty=restored(written, release.measurements))),
    )


def _discovered(declaration: Declaration, release: Release) -> Declaration:
    """Return the declaration with the columns as the first run has found them, and the functions that it has learned."""
    names = declaration.descents()
    if names:
        declaration = declaration.discovered({name: release.universe.attributes[name] for name in names})
    return replace(declaration, universe=Universe(declaration.universe.attributes, release.universe.constraints))
