"""A run of a release, from a declared table to a published one: what each of its steps does. `dpcore.runs.steps` has their order."""

import hashlib
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from dpcore.curator.curator import Curator
from dpcore.errors import DpflowError, RowsUnexpected, UsageError
from dpcore.ledger import Account, Lease, Ledger, Run, open_ledger
from dpcore.measurements import Measurement, Selection
from dpcore.places import places_of_spec
from dpcore.private import Private
from dpcore.release import SyntheticRows, check_owner, check_writable, claim_folder, publish, release_id
from dpcore.reporting.formatting import at_most
from dpcore.reporting.outcome import Outcome, Report, Round, without
from dpcore.runs.block_reservation import day_to_read, reserve_run
from dpcore.runs.discovery import Discovery
from dpcore.runs.expected_rows import STEP, NoisyTotal, open_universe, unexpected_sentence, weak_check_warning
from dpcore.runs.publication import Material, Payer, Publication, draft_of
from dpcore.runs.reading import Reading, Table
from dpcore.runs.reservation import amount_to_reserve, claim_of, paying_account, total_noise
from dpcore.runs.rounds import Exhausted, Plan, Rounds
from dpcore.runs.stages import Found, Granted, Stages, made
from dpcore.spec import Declaration
from dpcore.strategies import Strategy, strategy_for
from dpcore.tables.cluster import Connect, connected
from dpcore.tables.engines import engine_for
from dpcore.tables.ingest import Source

progress = logging.getLogger("dpcore.progress")


class Synthesis:
    """One run of a release. Nothing is read or spent by making one.

    `declaration` is what the spec declares, and stays so; each stage of the run has a plan of its own.
    """

    def __init__(  # noqa: PLR0913  what a driver may decide about a run
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
        places = places_of_spec(declaration.path)
        with ExitStack() as opened:
            self.ledger: Ledger = opened.enter_context(open_ledger(places=places))
            self.ledger.require_current()
            check_owner(self.ledger, self.declaration.output_folder)
            self.account: Account = paying_account(self.ledger, self.declaration)
            if resume and run_id not in {run.id for run in self.ledger.runs(self.account.name)}:
                raise UsageError(
                    f"account {self.account.name} has no run {run_id} to resume; see `dpflow ledger show`, or run without --resume"
                )
            self._stages = Stages(Plan(declaration, strategy_for(declaration)))
            self.curator = Curator(
                ledger=self.ledger,
                run_id=run_id,
                protection=self.declaration.protection,
                currency=self.account.currency,
            )
            opened.pop_all()  # from here on `close` closes it
        self._table = Table(source, engine, private=places.private)
        self._rounds: Rounds | None = None
        self._published: Publication | None = None
        self._counted: Private | None = None
        self._total: tuple[Measurement, ...] = ()

    def requested(self) -> int:
        """Return the amount that the run may spend; one that is too small for what would be measured is refused."""
        return amount_to_reserve(self.declaration, self._stages.declared.strategy, currency=self.account.currency)

    def reserve(self) -> Run:
        """Set the whole budget of the run aside and take the run to work on it, or refuse.

        A run that is started again finds its reservation; one that another worker may be at work on is left to that worker.
        """
        amount, spec = self.requested(), self.declaration.spec
        run = reserve_run(
            self.ledger,
            self.declaration,
            run_id=self.run_id,
            account=self.account,
            amount=amount,
            claim=claim_of(self.declaration),
            as_of=self.as_of,
        )
        if self.settled and run.release is None:
            if self.expects_rows and self.curator.answered(STEP):
                self._buy_total(self.declaration, lease=None)  # a retry of a run that was stopped says so again
            raise UsageError(
                f"run {self.run_id} was ended before it had a release, and takes no more operations; start a new run"
            )
        plan, blocks = self._stages.declared, self.blocks
        if blocks is not None:
            covering = self.declaration.covering(blocks)
            plan = Plan(covering, strategy_for(covering))
        reading = None if self.settled else self._taken(plan.declaration, amount)
        before = without(run, self.ledger.balance(self.account.name, blocks=blocks), weight=self.account.weight)
        payer = Payer(ledger=self.ledger, account=self.account, run_id=self.run_id, blocks=blocks, before=before)
        self._stages.grant(Granted(plan, payer, reading))
        progress.info(
            "run %s: reserved epsilon %s of account %s in ledger %s…",
            *(self.run_id, at_most(spec.privacy.epsilon), self.account.name, self.ledger.identity()[:16]),
        )
        return run

    def _taken(self, declaration: Declaration, amount: int) -> Reading:
        """Take the run to work on it, with a declaration of what it was granted."""
        lease = self.ledger.lease(self.run_id)
        self._claim_output(lease)
        expected = declaration.spec.privacy.expect_rows
        if expected is not None:
            noise = total_noise(declaration, currency=self.account.currency, amount=amount)
            if warning := weak_check_warning(expected, noise=noise):
                progress.warning("warning: %s", warning)
        return Reading(declaration, table=self._table, ledger=self.ledger, lease=lease, blocks=self.blocks)

    def _claim_output(self, lease: Lease) -> None:
        """Write down that this ledger owns the output folder; if another was quicker, the reservation is given back."""
        try:
            claim_folder(self.ledger, self.declaration.output_folder)
        except DpflowError:
            if not self.ledger.run(self.run_id).spent:
                self.ledger.refund(self.run_id, lease=lease)
            raise

    @property
    def blocks(self) -> tuple[str, ...] | None:
        """The names of the blocks that the run was granted; None: the whole table is one."""
        return None if self.declaration.calendar is None else self.ledger.blocks_of(self.run_id)

    @property
    def settled(self) -> bool:
        """Whether the run is finished already, so that it is only replayed from its transcript."""
        return self.ledger.run(self.run_id).state == "settled"

    @property
    def strategy(self) -> Strategy:
        """The strategy of the present plan."""
        return self._stages.plan.strategy

    @property
    def _lease(self) -> Lease | None:
        """The right to work on the run; None: the run is settled, and only replayed."""
        return self._stages.granted.lease

    @property
    def expects_rows(self) -> bool:
        """Whether the spec says how many rows should count."""
        return self.declaration.spec.privacy.expect_rows is not None

    def check_rows(self) -> None:
        """Buy the noisy total before anything else, and end the run if it lies outside of what the spec expects.

        The decision follows from the noisy total alone. Values that are yet to be found in the data count as if they were declared.

        Raises:
            RowsUnexpected: The run is settled without a release; what it did not spend is back in the account.
        """
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
        measured = self.curator.measure_cell(STEP, (), None, share=declaration.checking)
        total, expected = NoisyTotal.of([measured]), declaration.spec.privacy.expect_rows
        if expected is not None and total.is_outside(expected):
            self.ledger.settle(self.run_id, release=None, lease=lease)
            raise RowsUnexpected(unexpected_sentence(declaration, total, expected=expected))
        progress.info("the noisy total is %d rows, as expected", round(total.rows))
        return measured

    @property
    def discovers(self) -> bool:
        """Whether the spec leaves something to be found in the data."""
        return bool(self._stages.plan.declaration.descents())

    def discover(self) -> None:
        """Buy what the spec leaves to be found in the data; the strategy is then made for what was found."""
        granted = self._stages.granted
        discovery = Discovery(granted.plan.declaration, currency=self.account.currency)
        discovery.descend(self.curator, count=granted.count, lease=granted.lease)
        declaration = discovery.declaration()
        findings = discovery.findings(self.curator, reserved=self.ledger.run(self.run_id).reserved)
        self._stages.find(Found(Plan(declaration, strategy_for(declaration)), findings))
        progress.info("found %s", ", ".join(finding.words for finding in findings))

    def ingest(self) -> Private | None:
        """Read and encode the table; None if the run is only replayed.

        If its header is refused, the reservation is given back; from the first row on, a failure keeps it.
        """
        if self._counted is not None:
            return self._counted
        reading = self._stages.granted.reading
        return None if reading is None else reading.records(self._stages.plan.declaration.universe)

    def histogram(self, records: Private | None) -> None:
        """Count the records over the universe and hand the counts to the curator; nobody else gets them."""
        reading = self._stages.granted.reading
        if records is not None and records is self._counted:
            self._counted = None  # checking the total has read and counted them already
        elif records is not None and reading is not None:
            counted = reading.count_records(records, self._stages.plan.declaration.universe)
            self.curator.receive(counted, lease=reading.lease)

    def begin(self) -> None:
        """Buy the measurements that the first model is made of."""
        self._rounds = Rounds(self._stages.plan, curator=self.curator, reserved=self.ledger.run(self.run_id).reserved)
        self._rounds.begin()

    @property
    def _learning(self) -> Rounds:
        return made(self._rounds, "there is no model yet; begin first")

    def select(self, number: int) -> Selection | Exhausted:
        """Select what the model gets most wrong."""
        return self._learning.select(number)

    def measure(self, number: int, selection: Selection | Exhausted) -> Measurement | Exhausted:
        """Measure what was selected."""
        return self._learning.measure(number, selection)

    def update(self, number: int, measurement: Measurement | Exhausted) -> None:
        """Correct the model by what was measured; with nothing left to measure by, the rounds end here."""
        self._learning.update(number, measurement)

    @property
    def rounds(self) -> Sequence[Round]:
        """The rounds that are done."""
        return self._learning.done

    @property
    def seconds_left(self) -> int:
        """How long the rounds that are left will take, by those that are done."""
        return self._learning.seconds_left

    def sample(self) -> SyntheticRows:
        """Make the final model and say which rows are drawn from it, by a public seed: post-processing.

        The rows are drawn chunk by chunk while they are written, so that memory does not depend on how many there are.
        """
        self._table.engine.close()  # all that was to be measured has been
        self.strategy.conclude()
        wanted = self.declaration.spec.output.rows
        count = max(0, round(self.strategy.total)) if wanted == "noisy" else wanted
        model, seed = self.strategy.model, self._seed("rows")
        return SyntheticRows(count, chunks=lambda: model.row_chunks(count, rng=np.random.default_rng(seed)))

    def publish(self, rows: SyntheticRows) -> Path:
        """Write the release, and let it appear at once; a worker that has lost its run publishes nothing."""
        self.ledger.confirm()
        payer, lease = self._stages.granted.payer, self._lease
        stages = self._stages
        material = Material(plan=stages.plan, rounds=self.rounds, total=self._total, findings=stages.findings)
        draft = draft_of(material, rows, payer=payer, curator=self.curator, lease=lease, seed=self._seed("values"))
        if lease is not None:  # a run that is only replayed changes nothing
            claim_folder(self.ledger, self.declaration.output_folder)
        published = publish(
            draft,
            recorded=self.ledger.manifests_of(self.run_id),
            known=[release_id(run.id, opened_at=run.opened_at) for run in self.ledger.runs(draft.statement.account)],
            in_chain=self.ledger.has_event,
            confirm=self.ledger.confirm,
        )
        self._published = Publication(published=published, draft=draft, payer=payer, curator=self.curator, lease=lease)
        return published.folder

    def settle(self) -> Outcome:
        """Give back what was reserved and not spent, and say what the run left."""
        return made(self._published, "nothing was published yet; publish before settling").settle()

    def report(self) -> Report:
        """Tell what the settled run did, from its release and its ledger."""
        return made(self._published, "nothing was published yet; publish and settle before reporting").report()

    def close(self) -> None:
        """Close the cluster, if there is one, and the ledger's connection."""
        try:
            self._table.engine.close()
        finally:
            self.ledger.close()

    def _seed(self, purpose: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{purpose}:{self.run_id}".encode()).digest()[:8])
