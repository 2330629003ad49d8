"""A run of a release: the methods that take its steps. `dpcore.runs.steps` defines their order."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import date
from typing import Any

from dpcore.curator.curator import Curator
from dpcore.errors import DpflowError, TableChanged, UsageError
from dpcore.ledger import Account, Ledger, Run
from dpcore.object_store import AnyPath
from dpcore.privacy.accounting import Currency
from dpcore.release import (
    Persons,
    SyntheticRows,
    check_owner,
    check_writable,
    claim_folder,
    public_seed,
    publish,
    published_before,
    require_rewritable,
    retain_declared,
)
from dpcore.release.signing import signing_key
from dpcore.reporting.formatting import at_most
from dpcore.reporting.outcome import Outcome, Report, without
from dpcore.runs.beginning import Beginning
from dpcore.runs.discovery import Discovery
from dpcore.runs.draft import draft_of
from dpcore.runs.early import LIMIT, LOSSES, PERSONS, SIZES_STEPS, TOTAL, functions_of
from dpcore.runs.expected_rows import weak_check_warning
from dpcore.runs.paying import amount_to_reserve, checks_losses, claim_of, ledger_of, paying_account, total_noise
from dpcore.runs.planning.grounds import GUESS, approximate_rows
from dpcore.runs.planning.limits import rows_kept
from dpcore.runs.planning.plan import warning_before
from dpcore.runs.publication import Payer, Publication
from dpcore.runs.reading import Reading, Table
from dpcore.runs.reservation import day_to_read, reserve_run
from dpcore.runs.rounds import Rounds
from dpcore.runs.stages import Stage, made
from dpcore.spec import Declaration
from dpcore.spec.shares import Early
from dpcore.strategies import Strategy, strategy_for
from dpcore.tables.cluster import Connect, connected
from dpcore.tables.ingest import check_key

progress = logging.getLogger("dpcore.progress")

_reserved: ContextVar[list[str] | None] = ContextVar("reserved", default=None)


@contextmanager
def noting_reserved() -> Iterator[list[str]]:
    """Collect the ids of the runs that reserve their budget inside the context, so that a command can name the run it has left open."""
    noted: list[str] = []
    token = _reserved.set(noted)
    try:
        yield noted
    finally:
        _reserved.reset(token)


class Synthesis:
    """One run of a release. Creating one reads and spends nothing.

    `declaration` never changes; each step of the run extends `stage`.
    """

    def __init__(  # noqa: PLR0913  all options of a run
        self,
        declaration: Declaration,
        *,
        run_id: str,
        resume: bool,
        as_of: date | None = None,
        table: Any = None,
        connect: Connect = connected,
    ) -> None:
        self.declaration = declaration
        self.run_id = run_id
        self.as_of = day_to_read(declaration, as_of)
        self._table = Table.of(declaration, table, connect=connect)
        check_writable(self.declaration.output_folder)
        signing_key()  # raises now, before anything is paid for, and not when the release is written
        with ExitStack() as opened:
            self.ledger: Ledger = opened.enter_context(ledger_of(declaration))
            self.ledger.require_current()
            check_owner(self.ledger, self.declaration.output_folder)
            self.account: Account = paying_account(self.ledger, self.declaration)
            if resume and run_id not in {run.id for run in self.ledger.runs(self.account.name)}:
                raise UsageError(
                    f"account {self.account.name} has no run {run_id} to resume; see `dpflow ledger show`, or run without --resume"
                )
            self._beginning = Beginning(declaration, ledger=self.ledger, account=self.account, run_id=run_id)
            self.declaration = declaration = self._beginning.declaration
            self._declared = strategy_for(declaration)
            self.stage = Stage(
                declaration,
                self._declared,
                findings=self._beginning.findings,
                chosen_limit=self._beginning.chosen_limit,
            )
            self.curator = Curator(
                ledger=self.ledger,
                run_id=run_id,
                protection=self.declaration.protection,
                currency=self.account.currency,
            )
            opened.pop_all()  # from here on, `close` closes the ledger

    def requested(self) -> int:
        """Return the amount the run may spend. Raise if it is too small for the planned measurements."""
        return amount_to_reserve(self.declaration, self._declared, currency=self.account.currency)

    def check_key(self) -> None:
        """Raise if the private folder holds no usable key of the data's version. A settled run is only replayed and needs none."""
        if not any(run.id == self.run_id and run.state == "settled" for run in self.ledger.runs(self.account.name)):
            check_key(self._table.private)

    def reserve(self) -> Run:
        """Reserve the whole budget of the run and take its lease, or raise.

        A restarted run finds its reservation. If another worker may hold the run, this raises and leaves the run to that worker.
        """
        amount = self.requested()
        self.check_key()
        self._beginning.read()
        run = reserve_run(
            self.ledger,
            self.declaration,
            run_id=self.run_id,
            account=self.account,
            amount=amount,
            claim=self._beginning.bound(claim_of(self.declaration)),
            as_of=self.as_of,
        )
        if (noted := _reserved.get()) is not None:
            noted.append(self.run_id)
        blocks = self.blocks
        before = without(run, self.ledger.balance(self.account.name, blocks=blocks), weight=self.account.weight)
        payer = Payer(ledger=self.ledger, account=self.account, run_id=self.run_id, blocks=blocks, before=before)
        stage = replace(self.stage, payer=payer)
        if blocks is not None:
            stage = stage.planned(self.declaration.covering(blocks))
        if self.settled and run.release is None:
            for measurement in (LIMIT, LOSSES, TOTAL):  # a retry of a stopped run raises the same error again
                if all(map(self.curator.answered, measurement.steps)):
                    stage = measurement.take(stage, self.curator)
            raise UsageError(f"run {self.run_id} was ended without a release and cannot be continued; start a new run")
        require_rewritable(self.ledger, run)
        self.stage = stage if self.settled else replace(stage, reading=self._reading(stage.declaration))
        if self._beginning.is_over:  # what a settled run has started from may be gone, so it is not replayed
            release = self.declaration.output_folder / str(run.release)
            published = published_before(release, recorded=self.ledger.manifests_of(self.run_id), run=self.run_id)
            self.stage = replace(self.stage, publication=Publication(published=published, payer=payer, lease=None))
        progress.info(
            "run %s: reserved epsilon %s of account %s in ledger %s…",
            self.run_id,
            at_most(self.declaration.spec.privacy.epsilon),
            self.account.name,
            self.ledger.identity()[:16],
        )
        return run

    def _reading(self, declaration: Declaration) -> Reading:
        """Take the run's lease and its output folder, and return a reader of the granted rows.

        If another ledger owns the folder, or the start is gone, and nothing was charged yet, the reservation is refunded.
        """
        lease = self.ledger.lease(self.run_id)
        try:
            claim_folder(self.ledger, self.declaration.output_folder)
            self._beginning.require_still_there()
        except DpflowError:
            if not self.ledger.run(self.run_id).spent:
                self.ledger.refund(self.run_id, lease=lease)
            raise
        if not declaration.lacks_limit:
            self._warn(declaration)
        return Reading(declaration, table=self._table, ledger=self.ledger, lease=lease, blocks=self.blocks)

    def _warn(self, declaration: Declaration, *, counted: int | None = None) -> None:
        """Warn if most of what was asked for would be poor, or if the noise of the total is too large for the check of the expected rows."""
        amount, currency = self.ledger.run(self.run_id).reserved, self.account.currency
        if warning := warning_before(declaration, currency=currency, amount=amount, counted=counted):
            progress.warning("warning: %s; `dpflow plan` names the changes that would help most", warning)
        expected = declaration.spec.privacy.expect_rows
        if expected is not None:
            noise = total_noise(declaration, currency=currency, amount=amount)
            if warning := weak_check_warning(expected, noise=noise):
                progress.warning("warning: %s", warning)

    @property
    def published(self) -> bool:
        """Whether the release is in its place, so that only settling is left."""
        return self.stage.publication is not None

    @property
    def blocks(self) -> tuple[str, ...] | None:
        """The names of the granted blocks; None if the whole table is one block."""
        return None if self.declaration.calendar is None else self.ledger.blocks_of(self.run_id)

    @property
    def settled(self) -> bool:
        """Whether the run is settled, so that it is only replayed from its transcript."""
        return self.ledger.run(self.run_id).state == "settled"

    @property
    def strategy(self) -> Strategy:
        """The strategy of the current plan."""
        return self.stage.strategy

    @property
    def lacks_limit(self) -> bool:
        """Whether the spec leaves the limit on rows per unit to be chosen."""
        return self.stage.declaration.lacks_limit

    def choose_limit(self) -> None:
        """Buy a noisy histogram of the rows per unit before anything else, and choose by it how many of them count."""
        self.stage = stage = LIMIT.take(self.stage, self.curator)
        chosen = made(stage.chosen_limit, "the limit was not chosen")
        single, unit = chosen.rows == 1, stage.declaration.protection.unit
        counts = f"row{'' if single else 's'} of each {unit} {'counts' if single else 'count'}"
        if chosen.sizes is not None and stage.paid_by.account.currency is not Currency.PURE:
            counts = f"is the norm of the counts of each {unit}"
        progress.info("at most %s %s, %s", f"{chosen.rows:,}", counts, chosen.words)
        if chosen.sizes is not None:
            progress.info("counts are corrected to those of all rows, by %d classes of sizes", chosen.sizes.classes)
        if stage.reading is not None:
            self._warn(stage.declaration, counted=rows_kept(chosen))

    @property
    def checks_rows(self) -> bool:
        """Whether the run measures how many rows are lost, or how many there are."""
        return self._checks_losses or bool(self.declaration.early[Early.TOTAL])

    @property
    def _checks_losses(self) -> bool:
        return checks_losses(self.declaration, currency=self.account.currency, amount=self.requested())

    def check_rows(self) -> None:
        """Buy which columns drop rows, and the noisy total if the spec expects one. End the run if too many are lost, or the total is another.

        Raises:
            RowsUnexpected: If so. The run is settled without a release, and the unspent budget is refunded.
        """
        if self._checks_losses:
            self.stage = LOSSES.take(self.stage, self.curator)
        if self.declaration.early[Early.TOTAL]:
            self.stage = TOTAL.take(self.stage, self.curator)

    @property
    def groups_rows(self) -> bool:
        """Whether the rows of one synthetic person are kept together."""
        return self.declaration.spec.persons is not None

    def learn_sizes(self) -> None:
        """Buy noisy numbers of persons, by how many of their rows count, unless that is one."""
        if self.stage.declaration.protection.rows_per_unit > 1:
            self.stage = PERSONS.take(self.stage, self.curator)

    @property
    def discovers(self) -> bool:
        """Whether the spec leaves values to be discovered in the data."""
        return bool(self.stage.declaration.descents())

    def discover(self) -> None:
        """Discover the values that the spec does not declare, and make the strategy for them."""
        stage = self.stage
        discovery = Discovery(stage.declaration, currency=self.account.currency)
        discovery.descend(self.curator, count=None if stage.reading is None else stage.reading.count, lease=stage.lease)
        findings = discovery.findings(self.curator, reserved=stage.run.reserved)
        discovered = replace(stage, findings=findings, early_counts=discovery.early_counts())
        self.stage = discovered.planned(discovery.declaration())
        progress.info("found %s", ", ".join(finding.words for finding in findings))

    def ingest(self) -> None:
        """Read and encode the table, unless the run is only replayed."""
        self.stage = self.stage.ingested()

    def histogram(self) -> None:
        """Count the records over the universe and hand the counts to the curator, and to nobody else."""
        stage = self.stage
        if stage.reading is not None and stage.records is not None and not stage.counted:
            self.curator.receive(stage.histogram(), lease=stage.reading.lease)
        self.stage = replace(stage, records=None)

    def begin(self) -> None:
        """Learn the functions of dependencies, and buy the measurements for the first model.

        Raises:
            TableChanged: If they contradict an earlier release of the same table. The run is settled, and the unspent budget is refunded.
        """
        stage = self.stage
        if stage.declaration.dependencies:
            stage = functions_of(stage.declaration).take(stage, self.curator)
        self._beginning.give_to(stage.strategy, stage.declaration.universe)
        rounds = Rounds(stage.declaration, stage.strategy, curator=self.curator, reserved=stage.run.reserved)
        try:
            rounds.begin()
        except TableChanged:
            stage.end()
            raise self._beginning.contradicted() from None
        self.stage = replace(stage, rounds=rounds)
        # Warn before the rounds if far fewer rows count than the first warning had guessed, and most would be poor.
        guessed, source = approximate_rows(self.declaration, None)
        counted = max(1, round(self.strategy.total))
        if source == GUESS and not self.declaration.early[Early.LIMIT] and 2 * counted < guessed and not self.settled:
            self._warn(stage.declaration, counted=counted)

    @property
    def rounds(self) -> Rounds:
        """The model and its rounds.

        Raises:
            UsageError: If they have not begun.
        """
        return made(self.stage.rounds, "there is no model yet; begin first")

    def sample(self) -> None:
        """Make the final model, from which the rows are drawn with a public seed. This is post-processing.

        The rows are drawn chunk by chunk while they are written, so memory does not depend on their number.
        """
        self._table.engine.close()  # all measurements are done
        if unmeasured := self.rounds.unmeasured_pairs():
            progress.info(
                "%d pairs of columns were never measured together: answers about them are guesses", len(unmeasured)
            )
        self.rounds.countdown.begin("last fit", "fitting the model to all measurements")
        self.strategy.conclude()
        model, declaration = self.strategy.model, self.stage.declaration
        rows = SyntheticRows.drawn_from(model, declaration, run=self.run_id, persons=self._persons())
        self.stage = replace(self.stage, rows=rows)

    def _persons(self) -> Persons | None:
        """Return how the rows are divided into persons, if the spec keeps their rows together."""
        persons = self.declaration.spec.persons
        if persons is None:
            return None
        paid = self.curator.price(step for step in SIZES_STEPS if self.curator.answered(step))
        spent = paid / self.stage.run.reserved
        return Persons(
            persons.rows_of, persons.constant, self.stage.sizes, spent=spent, seed=public_seed("persons", self.run_id)
        )

    def publish(self) -> AnyPath:
        """Write the release and publish it atomically. A worker that has lost its lease publishes nothing."""
        stage, rounds = self.stage, self.rounds
        rows = made(stage.rows, "there are no rows to publish yet; sample before publishing")
        self.ledger.confirm()
        stage.renew_lease()
        draft = draft_of(stage, rounds, rows, beginning=self._beginning, curator=self.curator)
        rounds.countdown.begin("rows", f"drawing {rows.count:,} rows")
        published = publish(draft, ledger=self.ledger, lease=stage.lease)
        self.stage = replace(
            stage, publication=Publication(published=published, payer=stage.paid_by, lease=stage.lease)
        )
        return published.folder

    def settle(self) -> Outcome:
        """Refund the unspent budget, and return the outcome of the run."""
        outcome = made(self.stage.publication, "nothing was published yet; publish before settling").settle()
        retain_declared(self.ledger, self.account.name, self.declaration)
        return outcome

    def report(self) -> Report:
        """Return the report of the settled run, from its ledger and the manifest as it was written."""
        return made(self.stage.publication, "nothing was published yet; publish and settle before reporting").report()

    def close(self) -> None:
        """Close the cluster, if there is one, and the ledger's connection."""
        try:
            self._table.engine.close()
        finally:
            self.ledger.close()
