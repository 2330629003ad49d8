"""Publish what a session knows as a release. It is computed from the transcript, so it costs nothing.

The release has a run of its own, which reserves the least amount there is, charges nothing and gets it back. So one session can publish at
any time, and go on. The privacy statement adds the reservations of all runs whose answers the release was made from.
"""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.answers.judging import judge
from dpcore.answers.release import Release
from dpcore.answers.uncertainty import restored, uncertainty_table, writing_options
from dpcore.errors import UsageError
from dpcore.ledger import Account, Ledger, Run, RunState
from dpcore.object_store import without_links
from dpcore.release import (
    MANIFEST,
    Draft,
    Persons,
    SyntheticRows,
    claim_folder,
    live_numbers,
    publish,
    release_before,
    release_id,
    require_rewritable,
    retain_declared,
    state,
    stated_parts,
)
from dpcore.reporting.lineage import ledger_parts, session_release_claim
from dpcore.reporting.outcome import Round
from dpcore.runs.same_table import chosen_limit_of, findings_of
from dpcore.session.knowledge import Knowledge
from dpcore.session.opening import claim_of
from dpcore.spec import Declaration
from dpcore.universe import Universe
from dpcore.universe.dependencies import LearnedFunction

LEAST = 1  # the least amount that a run can reserve


def publish_knowledge(
    knowledge: Knowledge, declaration: Declaration, *, session: Run, ledger: Ledger, account: Account
) -> dict[str, Any]:
    """Publish a release with everything that a session knows. Doing so again, after no more purchases, changes nothing."""
    count = len(knowledge.bought)
    run_id = f"{session.id}-release-{count}"
    run = ledger.reserve(
        run_id,
        account=account.name,
        amount=LEAST,
        claim=session_release_claim(session=session.id, first=claim_of(session).first, purchases=count),
        analyst=session.analyst,
        purpose=session.purpose,
    )
    require_rewritable(ledger, run)
    lease = None if run.state is RunState.SETTLED else ledger.lease(run_id)
    draft = _draft(knowledge, declaration, runs=(run, session), ledger=ledger, account=account)
    draft = replace(draft, before=release_before(ledger, run_id, declaration.output_folder))
    ledger.confirm()
    if lease is not None:
        claim_folder(ledger, declaration.output_folder)
    published = publish(
        draft,
        recorded=ledger.manifests_of(run_id),
        numbers=lambda: live_numbers(ledger, account.name),
        in_chain=ledger.has_event,
        confirm=ledger.confirm,
    )
    folder = without_links(published.folder)
    record = lease is not None or published.appeared
    ledger.settle(
        run_id,
        release=folder.name,
        lease=lease,
        manifest=str(folder / MANIFEST) if record else None,
        manifest_sha256=published.manifest_sha256 if record else None,
    )
    retain_declared(ledger, account.name, declaration)
    return {
        "run": run_id,
        "release": str(published.folder),
        "rows": draft.rows.count,
        "epsilon": draft.statement.epsilon,
    }


def _draft(
    knowledge: Knowledge, declaration: Declaration, *, runs: tuple[Run, Run], ledger: Ledger, account: Account
) -> Draft:
    run, session = runs
    release, manifest = knowledge.release, knowledge.first.manifest
    uncertainty = release.uncertainty
    if uncertainty is None:
        raise UsageError("the first release was published without its errors; make a new one, and open a session on it")
    rows = declaration.spec.output.rows
    count = max(0, round(release.model.total)) if rows == "noisy" else rows
    seed = _seed("rows", run.id)
    statement = state(
        declaration,
        account=account,
        run=run,
        ledger=ledger.identity(),
        head=ledger.head(),
        made_from=stated_parts(
            ledger_parts(ledger, run),
            declaration,
            draws={run.id: 0, session.id: sum(purchase.counts.size for purchase in knowledge.bought)},
            earlier=manifest["privacy"]["made_from"],
        ),
        chosen_limit=chosen_limit_of(knowledge.first),
    )

    def table(most_bytes: int) -> tuple[pa.Table, dict[str, Any]]:
        written = uncertainty_table(uncertainty, release.measurements, most_bytes=most_bytes)
        return written, writing_options(written)

    discovered = _discovered(declaration, release)
    return Draft(
        declaration=discovered,
        rows=SyntheticRows(
            count,
            chunks=lambda: release.model.row_chunks(
                count, rng=np.random.default_rng(seed), near=discovered.workload.marginals
            ),
            persons=Persons.told(manifest, seed=_seed("persons", run.id)),
        ),
        measurements=release.measurements,
        resolutions=release.resolutions,
        rounds=[Round(**{**stated, "columns": tuple(stated["columns"])}) for stated in manifest["rounds"]],
        statement=statement,
        name=release_id(run.id, opened_at=run.opened_at),
        seed=_seed("values", run.id),
        findings=findings_of(knowledge.first),
        functions=tuple(map(LearnedFunction.told, manifest.get("dependencies", ()))),
        warnings=tuple(manifest["warnings"]),
        uncertainty=table,
        prior=manifest.get("prior"),
        start=release.start,
        judge=lambda written: judge(
            replace(release, known=restored(written, release.measurements)), declaration.workload
        ),
    )


def _discovered(declaration: Declaration, release: Release) -> Declaration:
    """Return the declaration with the columns as the first run has found them, and the functions that it has learned."""
    names = declaration.descents()
    if names:
        declaration = declaration.discovered({name: release.universe.attributes[name] for name in names})
    return replace(declaration, universe=Universe(declaration.universe.attributes, release.universe.constraints))


def _seed(purpose: str, run_id: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{purpose}:{run_id}".encode()).digest()[:8])
