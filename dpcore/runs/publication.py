"""Publish a release, settle its run, and report the outcome. Everything here is computed from noisy values and the ledger."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpcore.answers.judging import judge
from dpcore.answers.release import Release
from dpcore.answers.replicates import OTHER_FITS, make_uncertainty, replicates_for
from dpcore.answers.uncertainty import Uncertainty, restored, uncertainty_table, writing_options
from dpcore.curator.curator import Curator
from dpcore.descent import Finding
from dpcore.ledger import Account, Balance, Lease, Ledger
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Workload
from dpcore.object_store import AnyPath, ObjectPath, without_links
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.release import (
    MANIFEST,
    ChosenLimit,
    Draft,
    Judgement,
    Published,
    SyntheticRows,
    release_id,
    state,
    state_blocks,
    stated_parts,
)
from dpcore.reporting.formatting import new_block_epsilon, next_epsilon
from dpcore.reporting.lineage import ledger_parts
from dpcore.reporting.outcome import Outcome, Report, Round
from dpcore.runs.beginning import Beginning
from dpcore.runs.countdown import Countdown
from dpcore.runs.empty_columns import empty_column_warnings
from dpcore.runs.expected_rows import NoisyTotal, small_total_warning
from dpcore.runs.rounds import Plan
from dpcore.universe.dependencies import LearnedFunction

progress = logging.getLogger("dpcore.progress")


@dataclass(frozen=True, kw_only=True)
class Material:
    """The results of a run: its final plan, whose strategy holds the model, its rounds, and what was bought besides them."""

    plan: Plan
    rounds: Sequence[Round]
    total: Sequence[Measurement]
    findings: tuple[Finding, ...]
    beginning: Beginning
    functions: tuple[LearnedFunction, ...] = ()
    chosen_limit: ChosenLimit | None = None

    def warnings(self) -> Iterator[str]:
        """Yield warnings for readers of the release, from noisy values and the spec alone."""
        declaration, measurements = self.plan.declaration, self.plan.strategy.measurements
        total = NoisyTotal.of(measurements)
        if warning := small_total_warning(declaration, total):
            yield warning
        discovered = [finding.column for finding in self.findings]
        empty = empty_column_warnings(declaration.universe, measurements, total=total, discovered=discovered)
        for finding in self.findings:
            if not finding.found:
                empty.pop(finding.column, None)  # this has a reason of its own
                yield (
                    f"no value of `{finding.column}` stood out of the noise, so all of them are `other`; give its `discover` a larger "
                    "`share`, or list the values"
                )
        yield from empty.values()
        yield from self.beginning.warnings(self.plan.strategy)
        for function in self.functions:
            if guessed := len(function.rows) - function.clear:
                yield (
                    f"for {guessed:,} of {len(function.rows):,} values of {', '.join(function.given)}, no `{function.determined}` stood out of the "
                    "noise clearly, so it may be a guess; give the dependency a larger `share`, or list the pairs with `possible`"
                )


@dataclass(frozen=True, kw_only=True)
class Payer:
    """The account that pays for a run, the run's blocks if the account is kept by block, and the balance before the run."""

    ledger: Ledger
    account: Account
    run_id: str
    blocks: tuple[str, ...] | None
    before: Balance

    def balance(self) -> Balance:
        """Return the account's balance; if it is kept by block, the balance of the run's most used block."""
        return self.ledger.balance(self.account.name, blocks=self.blocks)


def draft_of(  # noqa: PLR0913  all that a release is made from
    material: Material,
    rows: SyntheticRows,
    *,
    payer: Payer,
    curator: Curator,
    lease: Lease | None,
    renew_lease: Callable[[], None],
    seed: int,
    countdown: Countdown,
) -> Draft:
    """Assemble the draft of a release.

    Args:
        material: The results to publish.
        rows: The synthetic rows.
        payer: The account that paid for the run.
        curator: Knows the number of draws.
        lease: The lease on the run; None if the run is settled and only replayed.
        renew_lease: Called again and again while replicates are fitted, which may take longer than a lease.
        seed: The public seed for values within cells.
        countdown: Logs each slow step, and the seconds left.
    """
    declaration, strategy, ledger = material.plan.declaration, material.plan.strategy, payer.ledger
    run = ledger.run(payer.run_id) if lease is None else ledger.leased(lease)
    statement = state(
        declaration,
        account=payer.account,
        run=run,
        ledger=ledger.identity(),
        head=ledger.head(),
        made_from=stated_parts(
            ledger_parts(ledger, run),
            declaration,
            draws={run.id: curator.draws},
            earlier=material.beginning.earlier_parts,
        ),
        blocks=state_blocks(ledger, declaration, run=run),
        chosen_limit=material.chosen_limit,
    )
    made = _unwritten(material)
    return Draft(
        declaration=declaration,
        rows=rows,
        measurements=[*material.total, *strategy.measurements],
        resolutions=strategy.resolutions,
        rounds=material.rounds,
        statement=statement,
        name=release_id(payer.run_id, opened_at=run.opened_at),
        seed=seed,
        findings=material.findings,
        functions=material.functions,
        warnings=tuple(material.warnings()),
        uncertainty=_uncertainty(made, renew_lease, countdown),
        judge=_judge(made, declaration.workload, countdown),
        prior=material.beginning.described(strategy),
        start=strategy.start,
    )


def _unwritten(material: Material) -> Release:
    """Return the release before it is in a folder, with as much of its manifest as answers need."""
    declaration, strategy = material.plan.declaration, material.plan.strategy
    public = {
        "strategy": declaration.strategy.name,
        "spec": declaration.spec.model_dump(mode="json", include={"privacy", "strategy"}),
        "discovered": [asdict(each) for each in material.findings],
    }
    measured = tuple(strategy.measurements)
    return Release(Path(), public, declaration.universe, strategy.resolutions, measured, begun=strategy.start)


def _uncertainty(
    made: Release, renew_lease: Callable[[], None], countdown: Countdown
) -> Callable[[int], tuple[pa.Table, dict[str, Any]]]:
    """Return a function that makes the release's replicates, keeps them, and returns their table."""

    @cache
    def fits() -> Uncertainty:
        replicates = replicates_for(made)
        countdown.begin("replicates", f"fitting {replicates} replicates of the model, for the intervals of answers")

        def fitted() -> None:
            renew_lease()
            countdown.part("fit", parts=replicates + OTHER_FITS)

        return make_uncertainty(made, pause=fitted)

    def table(most_bytes: int) -> tuple[pa.Table, dict[str, Any]]:
        written = uncertainty_table(fits(), made.measurements, most_bytes=most_bytes)
        return written, writing_options(written)

    return table


def _judge(made: Release, workload: Workload, countdown: Countdown) -> Callable[[pa.Table], Judgement]:
    """Return a function that judges the release by its replicates as they are written, so that `dpflow answer` gives the same figures."""

    def judged(table: pa.Table) -> Judgement:
        countdown.begin("errors", "computing the errors of the workload's counts, and the pictures of the card")
        return judge(replace(made, known=restored(table, made.measurements)), workload)

    return judged


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A published release, and the run that made it.

    Attributes:
        published: The release as it was written.
        payer: The account that paid for the run.
        lease: The lease on the run; None if the run is settled and only replayed.
    """

    published: Published
    payer: Payer
    lease: Lease | None

    def settle(self) -> Outcome:
        """Refund the unspent budget, and return the outcome of the run."""
        folder = self.published.folder
        # For a run that was settled before, record only a release that was really written again.
        record = self.lease is not None or self.published.appeared
        self.payer.ledger.settle(
            self.payer.run_id,
            release=folder.name,
            lease=self.lease,
            manifest=str(without_links(folder) / MANIFEST) if record else None,
            manifest_sha256=self.published.manifest_sha256 if record else None,
        )
        for warning in self._warnings:
            progress.warning("warning: %s", warning)
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return the outcome of the run, from the current state of the ledger."""
        payer = self.payer
        account, run = payer.ledger.account(payer.account.name), payer.ledger.run(payer.run_id)
        balance = payer.balance()
        manifest = self.published.manifest
        privacy = manifest["privacy"]
        return Outcome(
            run=payer.run_id,
            release=_shown(self.published.folder),
            rows=manifest["rows"],
            account=account.name,
            currency=account.currency.value,
            epsilon=privacy["epsilon"],
            delta=privacy["delta"],
            sampler_delta=privacy["sampler_delta"],
            reserved=run.reserved / AMOUNT_OF_ONE,
            spent=run.spent / AMOUNT_OF_ONE,
            remaining=balance.remaining / AMOUNT_OF_ONE,
            remaining_epsilon=next_epsilon(account, balance.remaining),
            blocks=payer.blocks,
            new_block_epsilon=new_block_epsilon(account),
            warnings=self._warnings,
        )

    @property
    def _warnings(self) -> tuple[str, ...]:
        """The warnings as they were published. Some are known only once the rows are written."""
        return tuple(self.published.manifest["warnings"])

    def report(self) -> Report:
        """Return the report of the settled run, from its ledger and the manifest as it was written."""
        manifest = self.published.manifest
        return Report(
            outcome=self.outcome(),
            account=self.payer.account,
            before=self.payer.before,
            after=self.payer.balance(),
            overall=self.payer.ledger.balance(self.payer.account.name),
            rounds=tuple(Round(**each | {"columns": tuple(each["columns"])}) for each in manifest["rounds"]),
            privacy=manifest["privacy"],
            columns=manifest["columns"],
            files=manifest["files"],
            portrait=self.published.portrait,
        )


def _shown(path: AnyPath) -> str:
    """Return the path relative to the working folder if it lies below it, else the absolute path or the address."""
    here, whole = Path.cwd().resolve(), without_links(path)
    if isinstance(whole, ObjectPath) or not whole.is_relative_to(here):
        return str(whole)
    return str(whole.relative_to(here))
