"""Implement the steps of a run, from a declared table to a published release. `dpcore.runs.steps` defines their order."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from dpcore.curator.curator import Curator
from dpcore.errors import DpflowError, RowsUnexpected, TableChanged, UsageError
from dpcore.ledger import Account, Lease, Ledger, Run
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.models.persons import PersonSizes
from dpcore.object_store import AnyPath
from dpcore.places import places_of_spec
from dpcore.private import Private
from dpcore.release import (
    ChosenLimit,
    Persons,
    SyntheticRows,
    check_owner,
    check_writable,
    claim_folder,
    live_numbers,
    publish,
    published_before,
    release_before,
    require_rewritable,
    retain_declared,
)
from dpcore.release.signing import signing_key
from dpcore.reporting.formatting import at_most
from dpcore.reporting.outcome import Outcome, Report, Round, without
from dpcore.runs.beginning import Beginning
from dpcore.runs.dependencies import learn_functions
from dpcore.runs.discovery import Discovery
from dpcore.runs.expected_rows import STEP, NoisyTotal, open_universe, unexpected_sentence, weak_check_warning
from dpcore.runs.losses import STEP as LOSSES_STEP
from dpcore.runs.losses import Losses
from dpcore.runs.paying import amount_to_reserve, checks_losses, claim_of, ledger_of, paying_account, total_noise
from dpcore.runs.person_sizes import STEPS as SIZES_STEPS
from dpcore.runs.person_sizes import learn_sizes
from dpcore.runs.planning.grounds import GUESS, approximate_rows
from dpcore.runs.planning.plan import warning_before
from dpcore.runs.publication import Material, Payer, Publication, draft_of
from dpcore.runs.reading import Reading, Table
from dpcore.runs.reservation import day_to_read, reserve_run
from dpcore.runs.rounds import Exhausted, Plan, Rounds
from dpcore.runs.rows_per_unit import STEP as LIMIT_STEP
from dpcore.runs.rows_per_unit import NoisyUnits, choice_of, rows_kept
from dpcore.runs.stages import Found, Granted, Stages, made
from dpcore.spec import Declaration
from dpcore.strategies import Strategy, strategy_for
from dpcore.tables.cluster import Connect, connected
from dpcore.tables.engines import engine_for
from dpcore.tables.ingest import Source, check_key

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

    `declaration` never changes; each stage of the run has its own plan.
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
        source = (
            Source.of(table)
            if table is not None
            else Source.locate(declaration.spec.source, base=declaration.path.parent)
        )
        engine = engine_for(declaration.spec.engine, source=source, connect=connect)
        check_writable(self.declaration.output_folder)
        signing_key()  # raises now, before anything is paid for, and not when the release is written
        places = places_of_spec(declaration.path)
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
            self._stages = Stages(Plan(declaration, strategy_for(declaration)))
            self.curator = Curator(
                ledger=self.ledger,
                run_id=run_id,
                protection=self.declaration.protection,
                currency=self.account.currency,
            )
            opened.pop_all()  # from here on, `close` closes the ledger
        self._table = Table(source, engine, private=places.private)
        self._rounds: Rounds | None = None
        self._published: Publication | None = None
        self._read: Private | None = None
        self._counted: Private | None = None
        self._total: tuple[Measurement, ...] = ()
        self._sizes = PersonSizes.of_one()

    def requested(self) -> int:
        """Return the amount the run may spend. Raise if it is too small for the planned measurements."""
        return amount_to_reserve(self.declaration, self._stages.declared.strategy, currency=self.account.currency)

    def check_key(self) -> None:
        """Raise if the private folder holds no usable key of the data's version. A settled run is only replayed and needs none."""
        if not any(run.id == self.run_id and run.state == "settled" for run in self.ledger.runs(self.account.name)):
            check_key(self._table.private)

    def reserve(self) -> Run:
        """Reserve the whole budget of the run and take its lease, or raise.

        A restarted run finds its reservation. If another worker may hold the run, this raises and leaves the run to that worker.
        """
        amount, spec = self.requested(), self.declaration.spec
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
        if self.settled and run.release is None:
            stopped = self.declaration.covering(self.blocks)
            if stopped.lacks_limit and self.curator.answered(LIMIT_STEP):
                stopped = stopped.limited(self._buy_limit(stopped).rows)
            if self.curator.answered(LOSSES_STEP):  # a retry of a stopped run raises the same error again
                self._buy_losses(stopped, lease=None)
            if self.curator.answered(STEP):
                self._buy_total(stopped, lease=None)
            raise UsageError(f"run {self.run_id} was ended without a release and cannot be continued; start a new run")
        require_rewritable(self.ledger, run)
        plan, blocks = self._stages.declared, self.blocks
        if blocks is not None:
            covering = self.declaration.covering(blocks)
            plan = Plan(covering, strategy_for(covering))
        reading = None if self.settled else self._taken(plan.declaration, amount)
        before = without(run, self.ledger.balance(self.account.name, blocks=blocks), weight=self.account.weight)
        payer = Payer(ledger=self.ledger, account=self.account, run_id=self.run_id, blocks=blocks, before=before)
        self._stages.grant(Granted(plan, payer, reading))
        if self._beginning.is_over:
            self._find_published(payer, self.declaration.output_folder / str(run.release))
        progress.info(
            "run %s: reserved epsilon %s of account %s in ledger %s…",
            *(self.run_id, at_most(spec.privacy.epsilon), self.account.name, self.ledger.identity()[:16]),
        )
        return run

    def _find_published(self, payer: Payer, release: AnyPath) -> None:
        """Take the release of a settled run from its own files: what it has started from may be gone, so it is not replayed."""
        published = published_before(release, recorded=self.ledger.manifests_of(self.run_id), run=self.run_id)
        self._published = Publication(published=published, payer=payer, lease=None)

    @property
    def published(self) -> bool:
        """Whether the release is in its place, so that only settling is left."""
        return self._published is not None

    def _taken(self, declaration: Declaration, amount: int) -> Reading:
        """Take the run's lease and its output folder, and return a reader of the granted rows."""
        lease = self.ledger.lease(self.run_id)
        with self._refunding(lease):
            claim_folder(self.ledger, self.declaration.output_folder)
            self._beginning.require_still_there()
        if not declaration.lacks_limit:
            self._warn(declaration, amount)
        return Reading(declaration, table=self._table, ledger=self.ledger, lease=lease, blocks=self.blocks)

    def _warn(self, declaration: Declaration, amount: int, *, counted: int | None = None) -> None:
        """Warn if most of what was asked for would be poor, or if the noise of the total is too large for the check of the expected rows."""
        if warning := warning_before(declaration, currency=self.account.currency, amount=amount, counted=counted):
            progress.warning("warning: %s; `dpflow plan` names the changes that would help most", warning)
        expected = declaration.spec.privacy.expect_rows
        if expected is not None:
            noise = total_noise(declaration, currency=self.account.currency, amount=amount)
            if warning := weak_check_warning(expected, noise=noise):
                progress.warning("warning: %s", warning)

    @contextmanager
    def _refunding(self, lease: Lease) -> Iterator[None]:
        """If this fails and nothing was charged yet, refund the reservation: another ledger may own the folder, or the start be gone."""
        try:
            yield
        except DpflowError:
            if not self.ledger.run(self.run_id).spent:
                self.ledger.refund(self.run_id, lease=lease)
            raise

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
        return self._stages.plan.strategy

    @property
    def _lease(self) -> Lease | None:
        """The lease on the run; None if the run is settled and only replayed."""
        return self._stages.granted.lease

    @property
    def lacks_limit(self) -> bool:
        """Whether the spec leaves the limit on rows per unit to be chosen."""
        return self._stages.plan.declaration.lacks_limit

    def choose_limit(self) -> None:
        """Buy a noisy histogram of the rows per unit before anything else, and choose the limit on rows per unit by it.

        Each unit adds one to the histogram. The choice depends on the noisy counts and the spec alone. Everything that follows is bounded
        and priced by the chosen limit.
        """
        granted = self._stages.granted
        reading, declaration = granted.reading, granted.plan.declaration
        if reading is not None and not self.curator.answered(LIMIT_STEP):
            self.curator.receive(reading.tally(open_universe(declaration)), lease=reading.lease)
        chosen = self._buy_limit(declaration)
        limited = declaration.limited(chosen.rows)
        self.curator.protect(limited.protection)
        plan = Plan(limited, strategy_for(limited))
        self._stages.limit(
            replace(granted, plan=plan, reading=None if reading is None else reading.limited(limited)), chosen
        )
        one = chosen.rows == 1
        most = (
            f"{chosen.rows:,} row{'' if one else 's'} of each {limited.protection.unit} {'counts' if one else 'count'}"
        )
        progress.info("at most %s, %s", most, chosen.words)
        if reading is not None:
            self._warn(limited, self.requested(), counted=rows_kept(chosen))

    def _buy_limit(self, declaration: Declaration) -> ChosenLimit:
        units = NoisyUnits.of(self.curator.measure_marginal(LIMIT_STEP, (0,), share=declaration.limiting))
        spent = self.curator.price([LIMIT_STEP]) / self.ledger.run(self.run_id).reserved
        return choice_of(declaration, units, currency=self.account.currency, spent=spent)

    @property
    def checks_rows(self) -> bool:
        """Whether the run measures how many rows are lost, or how many there are."""
        return self._checks_losses or self._expects_rows

    @property
    def _checks_losses(self) -> bool:
        return checks_losses(self.declaration, currency=self.account.currency, amount=self.requested())

    @property
    def _expects_rows(self) -> bool:
        return self.declaration.spec.privacy.expect_rows is not None

    def check_rows(self) -> None:
        """Buy which columns drop rows, and the noisy total if the spec expects one. End the run if too many are lost, or the total is another.

        The decision depends on the noisy counts alone. Values that are not discovered yet count as if they were declared.

        Raises:
            RowsUnexpected: If so. The run is settled without a release, and the unspent budget is refunded.
        """
        if self._checks_losses:
            self._check_losses()
        if self._expects_rows:
            self._check_total()

    def _check_losses(self) -> None:
        granted = self._stages.granted
        reading, declaration = granted.reading, granted.plan.declaration
        if reading is not None and not self.curator.answered(LOSSES_STEP):
            if not self.discovers:
                self._read = self.ingest()
            fates = reading.fates(open_universe(declaration), undecided=declaration.undecided())
            self.curator.receive(fates, lease=reading.lease)
        self._buy_losses(declaration, lease=self._lease)

    def _buy_losses(self, declaration: Declaration, *, lease: Lease | None) -> None:
        share = declaration.losing / (1 - declaration.limiting)
        losses = Losses.of(self.curator.measure_marginal(LOSSES_STEP, (0,), share=share), declaration.universe)
        tolerated = declaration.tolerated
        if losses.exceed(tolerated):
            self.ledger.settle(self.run_id, release=None, lease=lease)
            raise RowsUnexpected(
                f"the run was stopped after its first measurement: {losses.sentence(declaration.universe, tolerated=tolerated)}; nothing is "
                "published, and the unspent budget was refunded; correct the spec and run again"
            )
        for warning in losses.warnings(declaration.universe, tolerated=tolerated):
            progress.warning("warning: %s", warning)
        progress.info("%s", losses.words)

    def _check_total(self) -> None:
        granted = self._stages.granted
        reading, declaration = granted.reading, granted.plan.declaration
        if reading is not None and not self.curator.answered(STEP):
            if self.discovers:
                self.curator.receive(reading.count(open_universe(declaration)), lease=reading.lease)
            else:
                records = self.ingest()
                self.histogram(records)
                self._counted = records
        self._total = (self._buy_total(declaration, lease=self._lease),)

    def _buy_total(self, declaration: Declaration, *, lease: Lease | None) -> Measurement:
        measured = self.curator.measure_cell(
            STEP, (), None, share=declaration.totalling / (1 - declaration.limiting - declaration.losing)
        )
        total, expected = NoisyTotal.of([measured]), declaration.spec.privacy.expect_rows
        if expected is not None and total.is_outside(expected):
            self.ledger.settle(self.run_id, release=None, lease=lease)
            raise RowsUnexpected(unexpected_sentence(declaration, total, expected=expected))
        progress.info("the noisy total is %d rows, as expected", round(total.rows))
        return measured

    @property
    def groups_rows(self) -> bool:
        """Whether the rows of one synthetic person are kept together."""
        return self.declaration.spec.persons is not None

    def learn_sizes(self) -> None:
        """Buy noisy numbers of persons, by how many of their rows count."""
        granted = self._stages.granted
        reading, declaration = granted.reading, granted.plan.declaration
        self._sizes = learn_sizes(declaration, self.curator, reading)
        if self._counted is not None and reading is not None:
            # The curator holds counts of persons now, instead of the rows that `check_rows` has counted.
            self.curator.receive(reading.count_records(self._counted, declaration.universe), lease=reading.lease)
        if self._sizes.limit > 1:  # otherwise nothing was measured
            progress.info("the noisy number of persons is %d", sum(self._sizes.by_class.numbers))

    @property
    def discovers(self) -> bool:
        """Whether the spec leaves values to be discovered in the data."""
        return bool(self._stages.plan.declaration.descents())

    def discover(self) -> None:
        """Discover the values that the spec does not declare, and make the strategy for them."""
        granted = self._stages.granted
        discovery = Discovery(granted.plan.declaration, currency=self.account.currency)
        discovery.descend(self.curator, count=granted.count, lease=granted.lease)
        declaration = discovery.declaration()
        findings = discovery.findings(self.curator, reserved=self.ledger.run(self.run_id).reserved)
        given = discovery.given()
        self._stages.find(Found(Plan(declaration, strategy_for(declaration, given=given)), findings, given))
        progress.info("found %s", ", ".join(finding.words for finding in findings))

    def ingest(self) -> Private | None:
        """Read and encode the table. Return None if the run is only replayed.

        A failure before the first row refunds the reservation; a later failure keeps it.
        """
        if self._counted is not None:
            return self._counted
        if self._read is not None:
            return self._read
        reading = self._stages.granted.reading
        return None if reading is None else reading.records(self._stages.plan.declaration.universe)

    def histogram(self, records: Private | None) -> None:
        """Count the records over the universe and hand the counts to the curator, and to nobody else."""
        reading, self._read = self._stages.granted.reading, None
        if records is not None and records is self._counted:
            self._counted = None  # `check_rows` has already read and counted them
        elif records is not None and reading is not None:
            counted = reading.count_records(records, self._stages.plan.declaration.universe)
            self.curator.receive(counted, lease=reading.lease)

    def begin(self) -> None:
        """Learn the functions of dependencies, and buy the measurements for the first model.

        Raises:
            TableChanged: If they contradict an earlier release of the same table. The run is settled, and the unspent budget is refunded.
        """
        if self._stages.plan.declaration.dependencies:
            self._learn_functions()
        self._beginning.give_to(self.strategy, self._stages.plan.declaration.universe)
        self._rounds = Rounds(self._stages.plan, curator=self.curator, reserved=self.ledger.run(self.run_id).reserved)
        try:
            self._rounds.begin()
        except TableChanged:
            self.ledger.settle(self.run_id, release=None, lease=self._lease)
            raise self._beginning.contradicted() from None
        self._warn_of_few_rows()

    def _warn_of_few_rows(self) -> None:
        """Warn before the rounds if far fewer rows count than the first warning had guessed, and most would be poor."""
        guessed, source = approximate_rows(self.declaration, None)
        counted = max(1, round(self.strategy.total))
        if source == GUESS and not self.declaration.limiting and 2 * counted < guessed and not self.settled:
            reserved = self.ledger.run(self.run_id).reserved
            self._warn(self._stages.plan.declaration, reserved, counted=counted)

    def _learn_functions(self) -> None:
        reserved = self.ledger.run(self.run_id).reserved
        declaration, functions = learn_functions(self._stages.plan.declaration, self.curator, reserved=reserved)
        self._stages.relate(Plan(declaration, strategy_for(declaration, given=self._stages.given)), functions)
        progress.info("learned %s", ", ".join(each.words for each in functions))

    @property
    def _learning(self) -> Rounds:
        return made(self._rounds, "there is no model yet; begin first")

    def select(self, number: int) -> Selection | Exhausted:
        """Select the marginal with the largest model error."""
        return self._learning.select(number)

    def measure(self, number: int, selection: Selection | Exhausted) -> Measurement | Exhausted:
        """Measure the selected marginal."""
        return self._learning.measure(number, selection)

    def update(self, number: int, measurement: Measurement | Exhausted) -> None:
        """Update the model with the measurement. If the budget is exhausted, end the rounds."""
        self._learning.update(number, measurement)

    @property
    def rounds(self) -> Sequence[Round]:
        """The rounds done so far."""
        return self._learning.done

    @property
    def seconds_left(self) -> int:
        """The estimated duration of the remaining rounds, and of the steps after them."""
        return self._learning.seconds_left

    def sample(self) -> SyntheticRows:
        """Make the final model and return the rows to draw from it with a public seed. This is post-processing.

        The rows are drawn chunk by chunk while they are written, so memory does not depend on their number.
        """
        self._table.engine.close()  # all measurements are done
        if unmeasured := self._learning.unmeasured_pairs():
            progress.info(
                "%d pairs of columns were never measured together: answers about them are guesses", len(unmeasured)
            )
        self._learning.countdown.begin("last fit", "fitting the model to all measurements")
        self.strategy.conclude()
        wanted = self.declaration.spec.output.rows
        count = max(0, round(self.strategy.total)) if wanted == "noisy" else wanted
        model, seed, near = self.strategy.model, self._seed("rows"), self._stages.plan.declaration.workload.marginals
        return SyntheticRows(
            count,
            chunks=lambda: model.row_chunks(count, rng=np.random.default_rng(seed), near=near),
            persons=self._persons(),
        )

    def _persons(self) -> Persons | None:
        """Return how the rows are divided into persons, if the spec keeps their rows together."""
        persons = self.declaration.spec.persons
        if persons is None:
            return None
        paid = self.curator.price(step for step in SIZES_STEPS if self.curator.answered(step))
        spent = paid / self.ledger.run(self.run_id).reserved
        return Persons(persons.rows_of, persons.constant, self._sizes, spent=spent, seed=self._seed("persons"))

    def publish(self, rows: SyntheticRows) -> AnyPath:
        """Write the release and publish it atomically. A worker that has lost its lease publishes nothing."""
        self.ledger.confirm()
        stages, granted = self._stages, self._stages.granted
        granted.renew_lease()
        material = Material(
            plan=stages.plan,
            rounds=self.rounds,
            total=self._total,
            findings=stages.findings or self._beginning.findings,
            functions=stages.functions,
            chosen_limit=stages.chosen_limit or self._beginning.chosen_limit,
            beginning=self._beginning,
        )
        draft = draft_of(
            material,
            rows,
            payer=granted.payer,
            curator=self.curator,
            lease=granted.lease,
            renew_lease=granted.renew_lease,
            seed=self._seed("values"),
            countdown=self._learning.countdown,
        )
        draft = replace(draft, before=release_before(self.ledger, self.run_id, self.declaration.output_folder))
        if granted.lease is not None:  # a run that is only replayed changes nothing
            claim_folder(self.ledger, self.declaration.output_folder)
        self._learning.countdown.begin("rows", f"drawing {rows.count:,} rows")
        published = publish(
            draft,
            recorded=self.ledger.manifests_of(self.run_id),
            numbers=lambda: live_numbers(self.ledger, self.account.name),
            in_chain=self.ledger.has_event,
            confirm=self.ledger.confirm,
        )
        self._published = Publication(published=published, payer=granted.payer, lease=granted.lease)
        return published.folder

    def settle(self) -> Outcome:
        """Refund the unspent budget, and return the outcome of the run."""
        outcome = made(self._published, "nothing was published yet; publish before settling").settle()
        retain_declared(self.ledger, self.account.name, self.declaration)
        return outcome

    def report(self) -> Report:
        """Return the report of the settled run, from its ledger and the manifest as it was written."""
        return made(self._published, "nothing was published yet; publish and settle before reporting").report()

    def close(self) -> None:
        """Close the cluster, if there is one, and the ledger's connection."""
        try:
            self._table.engine.close()
        finally:
            self.ledger.close()

    def _seed(self, purpose: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{purpose}:{self.run_id}".encode()).digest()[:8])
