"""The steps of a run, from a declared table to a published release. Two drivers call them: `synthesize` here, and the Prefect flow."""

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpcore.curator.curator import Curator
from dpcore.descent import Finding
from dpcore.errors import DpflowError, RowsUnexpected, SourceBroken, SourceError, UsageError
from dpcore.ledger import Account, Balance, Lease, Ledger, Run, open_ledger
from dpcore.measurements import Measurement, Selection
from dpcore.places import places_of_spec, using
from dpcore.privacy.accounting import UNIT, sampler_delta
from dpcore.private import Private
from dpcore.release import (
    MANIFEST,
    Draft,
    Published,
    SyntheticRows,
    adopt_folder,
    check_owner,
    check_writable,
    claim_folder,
    publish,
    release_id,
    state,
    state_blocks,
)
from dpcore.reporting.formatting import at_most, new_block_epsilon, next_epsilon
from dpcore.reporting.outcome import Outcome, Report, Round, distance, noise_floor, without
from dpcore.reporting.promises import release_promise
from dpcore.runs.block_reservation import blocks_to_read, check_payable, day_to_read, reserve_run
from dpcore.runs.discovery import Discovery
from dpcore.runs.expected_rows import STEP, NoisyTotal, small_total_warning, unexpected_sentence, weak_check_warning
from dpcore.runs.reservation import paying_account, total_noise, units_to_reserve
from dpcore.spec import Declaration, load_spec
from dpcore.strategies import Strategy, step_name, strategy_for
from dpcore.tables.cluster import Connect, connected
from dpcore.tables.engine import Engine
from dpcore.tables.engines import engine_for
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, Versioned, fingerprint_key
from dpcore.tables.ingest.window import Window
from dpcore.tables.sources.source import check_columns, check_types
from dpcore.universe import Categorical, Outside, Universe

progress = logging.getLogger("dpcore.progress")

PLAN_VERSION = 5  # part of every claim: a run is never resumed under rules other than those it was reserved for


class Synthesis:
    """One run of a release: holds what its steps hand on to each other. Nothing is read or spent by making one."""

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
        self.source = (
            Source.of(table)
            if table is not None
            else Source.locate(declaration.spec.source, base=declaration.path.parent)
        )
        self._engine: Engine = engine_for(declaration.spec.engine, source=self.source, connect=connect)
        check_writable(self.declaration.output_folder)
        self._places = places_of_spec(declaration.path)
        with ExitStack() as opened:
            self.ledger: Ledger = opened.enter_context(open_ledger(places=self._places))
            self.ledger.require_current()
            check_owner(self.ledger, self.declaration.output_folder)
            self.account: Account = paying_account(self.ledger, self.declaration)
            if resume and run_id not in {run.id for run in self.ledger.runs(self.account.name)}:
                raise UsageError(
                    f"account {self.account.name} has no run {run_id} to resume; see `dpflow ledger show`, or run without --resume"
                )
            self.strategy: Strategy = strategy_for(self.declaration)
            self.curator = Curator(
                ledger=self.ledger,
                run_id=run_id,
                protection=self.declaration.protection,
                currency=self.account.currency,
            )
            opened.pop_all()  # from here on `close` closes it
        self._lease: Lease | None = None
        self._published: Published | None = None
        self._rows = 0
        self._begun = 0.0
        self._before: Balance | None = None
        self._declared: Declaration | None = None
        self._version: str | None = None
        self._findings: tuple[Finding, ...] = ()
        self._counted: Private | None = None
        self._total: tuple[Measurement, ...] = ()
        self._warnings: tuple[str, ...] = ()
        self.rounds: list[Round] = []

    def requested(self) -> int:
        """Return what the run may spend, in units; an amount too small for what would be measured is refused."""
        return units_to_reserve(self.declaration, self.strategy, currency=self.account.currency)

    def reserve(self) -> Run:
        """Set the whole budget of the run aside and take the run to work on it, or refuse.

        A run that is started again finds its reservation; one that another worker may be at work on is left to that worker.
        """
        units, spec = self.requested(), self.declaration.spec
        # The order of the columns is no part of what a spec means, but measurements know columns by their place.
        order = json.dumps(self.declaration.universe.names)
        claim = hashlib.sha256(f"{PLAN_VERSION}:{self.declaration.digest}:{order}".encode()).hexdigest()
        run = reserve_run(
            self.ledger,
            self.declaration,
            run_id=self.run_id,
            account=self.account,
            units=units,
            claim=claim,
            as_of=self.as_of,
        )
        if self.settled and run.release is None:
            if self.expects_rows and self.curator.answered(STEP):
                self.check_rows()  # a retry of a run that was stopped says so again
            raise UsageError(
                f"run {self.run_id} was ended before it had a release, and takes no more operations; start a new run"
            )
        if self.blocks is not None:
            self.declaration = self.declaration.covering(self.blocks)
            self.strategy = strategy_for(self.declaration)
        self._declared = self.declaration
        if not self.settled:
            self._lease = self.ledger.lease(self.run_id)
            self._claim_output(self._lease)
            self._warn_of_a_weak_check(units)
        self._before = without(run, self._balance(), weight=self.account.weight)
        progress.info(
            "run %s: reserved epsilon %s of account %s in ledger %s…",
            *(self.run_id, at_most(spec.privacy.epsilon), self.account.name, self.ledger.identity()[:16]),
        )
        return run

    def _claim_output(self, lease: Lease) -> None:
        """Write down that this ledger owns the output folder; if another was quicker, the reservation is given back."""
        try:
            claim_folder(self.ledger, self.declaration.output_folder)
        except DpflowError:
            if not self.ledger.run(self.run_id).spent:
                self.ledger.release_run(self.run_id, lease=lease)
            raise

    @property
    def blocks(self) -> tuple[str, ...] | None:
        """The names of the blocks that the run was granted; None: the whole table is one."""
        return None if self.declaration.calendar is None else self.ledger.blocks_of(self.run_id)

    @property
    def window(self) -> Window | None:
        """The rows that the run reads, which are those of its blocks; None: all."""
        calendar, blocks = self.declaration.calendar, self.blocks
        return None if calendar is None or blocks is None else Window.of(calendar, blocks)

    def _balance(self) -> Balance:
        """Return the account's balance, where it is kept by block that of the most used of the run's own."""
        return self.ledger.balance(self.account.name, blocks=self.blocks)

    @property
    def settled(self) -> bool:
        """Whether the run is finished already, so that it is only replayed from its transcript."""
        return self.ledger.run(self.run_id).state == "settled"

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
        expected = self.declaration.spec.privacy.expect_rows
        if expected is None:
            return
        if self._lease is not None and not self.curator.answered(STEP):
            if self.discovers:
                self.curator.receive(self._count(self._open_universe(), lease=self._lease), lease=self._lease)
            else:
                records = self.ingest()
                self.histogram(records)
                self._counted = records
        measured = self.curator.measure_cell(STEP, (), None, share=self.declaration.checking)
        total = NoisyTotal.of([measured])
        if total.is_outside(expected):
            self.ledger.settle(self.run_id, release=None, lease=self._lease)
            raise RowsUnexpected(unexpected_sentence(self.declaration, total, expected=expected))
        self._total = (measured,)
        progress.info("the noisy total is %d rows, as expected", round(total.rows))

    def _open_universe(self) -> Universe:
        """Return the universe with a place for every value of the columns whose values are yet to be found."""
        found_later = self.declaration.descents()
        attributes = {
            name: Categorical(("any",), missing=each.missing, nulls=each.nulls, outside=Outside.OTHER)
            if name in found_later and isinstance(each, Categorical)
            else each
            for name, each in self.declaration.universe.attributes.items()
        }
        return Universe(attributes)

    def _warn_of_a_weak_check(self, units: int) -> None:
        expected = self.declaration.spec.privacy.expect_rows
        if expected is not None:
            noise = total_noise(self.declaration, currency=self.account.currency, units=units)
            if warning := weak_check_warning(expected, noise=noise):
                progress.warning("warning: %s", warning)

    @property
    def discovers(self) -> bool:
        """Whether the spec leaves something to be found in the data."""
        return bool(self.declaration.descents())

    def discover(self) -> None:
        """Buy what the spec leaves to be found in the data; the strategy is then made for what was found."""
        lease, discovery = self._lease, Discovery(self.declaration, currency=self.account.currency)
        discovery.descend(self.curator, count=None if lease is None else partial(self._count, lease=lease), lease=lease)
        self.declaration = discovery.declaration()
        self.strategy = strategy_for(self.declaration)
        self._findings = discovery.findings(self.curator, reserved=self.ledger.run(self.run_id).reserved)
        progress.info("found %s", ", ".join(finding.words for finding in self._findings))

    def _count(self, universe: Universe, *, lease: Lease) -> Histogram:
        """Read some columns and count them over a universe of their own."""
        return self._engine.count(self._read(universe, lease=lease), universe)

    def ingest(self) -> Private | None:
        """Read and encode the table. If its header is refused, the reservation is given back; from the first row on, a failure keeps it."""
        if self._counted is not None:
            return self._counted
        return None if self._lease is None else self._read(self.declaration.universe, lease=self._lease)

    def _read(self, universe: Universe, *, lease: Lease) -> Private:
        coding = Coding(universe=universe, protection=self.declaration.protection, window=self.window)
        try:
            self._engine.connect()
            self._check_headers(coding)
        except SourceError as error:
            if self._may_refund(error, lease=lease):
                self.ledger.release_run(self.run_id, lease=lease)
                raise
            failure = error
        else:
            try:
                return self._read_rows(coding, lease=lease)
            except SourceError as error:
                failure = error
        if self.ledger.run(self.run_id).spent:
            raise failure
        raise SourceBroken(
            f"{failure}; the reservation is kept, since values may have decided this: with the spec as it is, mend the source or the disk and "
            f"use --resume {self.run_id}, or let the steward give it back with `dpflow ledger release {self.run_id}`"
        )

    def _check_headers(self, coding: Coding) -> None:
        """Refuse, before a row is read or anything is bought, what no row can decide: names and types of the declared columns."""
        whole = replace(coding, universe=self._whole.universe)
        check_columns(self.source, columns=whole.columns)
        check_types(self.source, reads=whole.reads)

    def _read_rows(self, coding: Coding, *, lease: Lease) -> Versioned:
        """Read the rows, and bind the run to their version before anything is measured of them."""
        fingerprint = Fingerprint.of_run(self.run_id, key=fingerprint_key(self._places.private))
        draws = Draws.fresh(unit_key=fingerprint.unit_key())
        undecided = self._whole.descents()
        if undecided and self._version is None:
            # each reading codes other cells, so that none of them has the version of what all of them may read
            whole = replace(coding, universe=self._whole.universe)
            self._bind(
                self._engine.version(self.source, coding=whole, undecided=undecided, fingerprint=fingerprint),
                lease=lease,
            )
        records = self._engine.read(self.source, coding=coding, draws=draws, fingerprint=fingerprint)
        if not undecided:
            self._bind(records.version, lease=lease)
        return records

    def _bind(self, version: str | None, *, lease: Lease) -> None:
        if version is None:
            raise UsageError("the table was read without a version; read it with a fingerprint")
        self.ledger.record_data_version(lease, version)
        self._version = version

    @property
    def _whole(self) -> Declaration:
        """The declaration as it was when the run reserved, before anything was found."""
        return self._declared or self.declaration

    def _may_refund(self, error: SourceError, *, lease: Lease) -> bool:
        """Tell whether no row can have decided a failure, and nothing was spent; what an earlier worker on the run has met, nobody knows."""
        no_rows = not isinstance(error, SourceBroken) and lease.fence == 1 and self._version is None
        return no_rows and not self.ledger.run(self.run_id).spent

    def histogram(self, records: Private | None) -> None:
        """Count the records over the universe and hand the counts to the curator; nobody else gets them."""
        if records is not None and records is self._counted:
            self._counted = None  # checking the total has read and counted them already
        elif records is not None and self._lease is not None:
            self.curator.receive(self._engine.count(records, self.declaration.universe), lease=self._lease)

    def begin(self) -> None:
        """Buy the measurements that the first model is made of."""
        self.strategy.begin(self.curator)
        self._begun = time.monotonic()
        progress.info("first model from %d measurements", len(self.strategy.measurements))

    def select(self, number: int) -> Selection | None:
        """Select what the model gets most wrong; None if interruptions have used up what a selection needs."""
        if self.curator.exhausted(step_name(number, "select"), answers=self._answers_left(number)):
            return None
        return self.strategy.select(self.curator, number)

    def measure(self, number: int, selection: Selection | None) -> Measurement | None:
        """Measure what was selected; None if interruptions have used up what a measurement needs."""
        if selection is None:
            return None
        if self.curator.exhausted(step_name(number, "measure"), answers=self._answers_left(number) - 1):
            return None
        return self.strategy.measure(self.curator, number, selection)

    def _answers_left(self, number: int) -> int:
        """Return how many answers there are from the selection of a round on."""
        return 2 * (self.strategy.rounds - number + 1)

    def update(self, number: int, measurement: Measurement | None) -> None:
        """Correct the model by what was measured; with nothing left to measure by, the rounds end here."""
        if measurement is None:
            self.strategy.finished = True
            progress.info("round %d/%d: left out, interruptions have used up its budget", number, self.strategy.rounds)
            return
        before = distance(self.strategy.model, measurement)
        self.strategy.update(number, measurement)
        reserved, names = self.ledger.run(self.run_id).reserved, self.declaration.universe.names
        done = Round(
            number=number,
            columns=self.strategy.resolutions.named(measurement.axes, names),
            cells=measurement.values.size,
            noise=measurement.noise,
            before=before,
            after=distance(self.strategy.model, measurement),
            noise_floor=noise_floor(self.strategy.model, measurement),
            spent=self.curator.paid / reserved,
        )
        self.rounds.append(done)
        progress.info(
            "round %d/%d: %s, noise %.1f, spent %.0f %%, about %d s left",
            *(number, self.strategy.rounds, " x ".join(done.columns), done.noise, 100 * done.spent, self.seconds_left),
        )

    @property
    def seconds_left(self) -> int:
        """How long the rounds that are left will take, by those that are done."""
        done = len(self.rounds)
        left = 0 if self.strategy.finished or not done else self.strategy.rounds - self.rounds[-1].number
        return round((time.monotonic() - self._begun) / max(done, 1) * left)

    def sample(self) -> SyntheticRows:
        """Make the final model and say which rows are drawn from it, by a public seed: post-processing.

        The rows are drawn chunk by chunk while they are written, so that memory does not depend on how many there are.
        """
        self._engine.close()  # all that was to be measured has been
        self.strategy.conclude()
        wanted = self.declaration.spec.output.rows
        count = max(0, round(self.strategy.total)) if wanted == "noisy" else wanted
        model, seed = self.strategy.model, self._seed("rows")
        return SyntheticRows(count, chunks=lambda: model.row_chunks(count, rng=np.random.default_rng(seed)))

    def publish(self, rows: SyntheticRows) -> Path:
        """Write the release, and let it appear at once; a worker that has lost its run publishes nothing."""
        self.ledger.confirm()
        run = self.ledger.run(self.run_id) if self._lease is None else self.ledger.leased(self._lease)
        self._rows = rows.count
        self._warnings = tuple(self._warn())
        draft = Draft(
            declaration=self.declaration,
            rows=rows,
            measurements=[*self._total, *self.strategy.measurements],
            resolutions=self.strategy.resolutions,
            rounds=self.rounds,
            statement=state(
                self.declaration,
                account=self.account,
                run=run,
                ledger=self.ledger.identity(),
                head=self.ledger.head(),
                draws=self.curator.draws,
                blocks=state_blocks(self.ledger, self.declaration, run=run),
            ),
            name=release_id(self.run_id, opened_at=run.opened_at),
            seed=self._seed("values"),
            findings=self._findings,
            warnings=self._warnings,
        )
        if self._lease is not None:  # a run that is only replayed changes nothing
            claim_folder(self.ledger, self.declaration.output_folder)
        self._published = publish(
            draft,
            recorded=self.ledger.manifests_of(self.run_id),
            in_chain=self.ledger.has_event,
            confirm=self.ledger.confirm,
        )
        return self._published.folder

    def _warn(self) -> Iterator[str]:
        """Yield what a reader of the release should know, from noisy values and the spec alone."""
        if warning := small_total_warning(self.declaration, NoisyTotal.of(self.strategy.measurements)):
            yield warning
        for finding in self._findings:
            if not finding.found:
                yield (
                    f"no value of `{finding.column}` stood out of the noise, so that all of them are `other`; give its `discover` a larger `share`, "
                    "or list the values"
                )

    def settle(self) -> Outcome:
        """Give back what was reserved and not spent, and say what the run left."""
        published = self._published
        if published is None:
            raise UsageError("nothing was published yet; publish before settling")
        release = published.folder
        # Of a run that was settled before, only what was really written again goes on record.
        record = self._lease is not None or published.appeared
        self.ledger.settle(
            self.run_id,
            release=release.name,
            lease=self._lease,
            manifest=str(release.resolve() / MANIFEST) if record else None,
            manifest_sha256=published.manifest_sha256 if record else None,
        )
        for warning in self._warnings:
            progress.warning("warning: %s", warning)
        return self._outcome(release)

    def _outcome(self, release: Path) -> Outcome:
        account, run = self.ledger.account(self.account.name), self.ledger.run(self.run_id)
        balance, delta = self._balance(), self.declaration.spec.privacy.delta
        promise = release_promise(account, run, delta=delta)
        return Outcome(
            run=self.run_id,
            release=_shown(release),
            rows=self._rows,
            account=account.name,
            currency=account.currency.value,
            epsilon=promise.epsilon,
            delta=promise.delta,
            sampler_delta=sampler_delta(self.curator.draws, epsilon=promise.epsilon),
            reserved=run.reserved / UNIT,
            spent=run.spent / UNIT,
            remaining=balance.remaining / UNIT,
            remaining_epsilon=next_epsilon(account, balance.remaining),
            blocks=self.blocks,
            new_block_epsilon=new_block_epsilon(account),
            warnings=self._warnings,
        )

    def report(self) -> Report:
        """Tell what the settled run did, from its release and its ledger."""
        if self._published is None or self._before is None:
            raise UsageError("nothing was published yet; publish and settle before reporting")
        manifest = json.loads((self._published.folder / MANIFEST).read_text(encoding="utf-8"))
        return Report(
            outcome=self._outcome(self._published.folder),
            account=self.account,
            before=self._before,
            after=self._balance(),
            overall=self.ledger.balance(self.account.name),
            rounds=tuple(self.rounds),
            privacy=manifest["privacy"],
            columns=manifest["columns"],
            files=manifest["files"],
        )

    def close(self) -> None:
        """Close the cluster, if there is one, and the ledger's connection."""
        try:
            self._engine.close()
        finally:
            self.ledger.close()

    def _seed(self, purpose: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{purpose}:{self.run_id}".encode()).digest()[:8])


def synthesize(
    spec: str | Path, *, run_id: str | None = None, resume: bool = False, as_of: date | None = None, table: Any = None
) -> Outcome:
    """Make a release from a spec, without Prefect.

    Args:
        spec: The spec's path.
        run_id: The run's own name; a new one unless given.
        resume: Whether `run_id` names a run that was started before.
        as_of: With `blocks`, the day as of which blocks are complete; today in UTC unless given.
        table: The raw table, of pandas, polars or Arrow, in place of the spec's `source`, which may then be left out.
    """
    declaration = load_spec(spec, with_table=table is not None)
    with using(places_of_spec(declaration.path)):
        run = Synthesis(declaration, run_id=run_id or str(uuid.uuid4()), resume=resume, as_of=as_of, table=table)
        return _all_steps(run)


def _all_steps(run: Synthesis) -> Outcome:
    try:
        run.reserve()
        if run.expects_rows:
            run.check_rows()
        if run.discovers:
            run.discover()
        run.histogram(run.ingest())
        run.begin()
        for number in range(1, run.strategy.rounds + 1):
            if run.strategy.finished:
                break
            run.update(number, run.measure(number, run.select(number)))
        run.publish(run.sample())
        return run.settle()
    finally:
        run.close()


def check_run(declaration: Declaration, *, resume: str | None, as_of: date | None = None) -> None:
    """Refuse at once what a run would refuse: a wrong spec, a wrong account, too little budget. Nothing is read, changed or spent.

    For drivers that take long to start. The ledger decides again, for good, when the run reserves.
    """
    run = Synthesis(declaration, run_id=resume or "unnamed", resume=resume is not None, as_of=as_of)
    try:
        units = run.requested()
        if resume is None:
            names = blocks_to_read(run.ledger, declaration, as_of=run.as_of)
            check_payable(run.ledger, declaration, account=run.account, units=units, names=names)
    finally:
        run.close()


def adopt_output(declaration: Declaration, *, reason: str) -> bool:
    """Let the ledger of a spec take over an output folder that belongs to another one, on record; return whether it was needed.

    Only the steward may do so.
    """
    with open_ledger(places=places_of_spec(declaration.path)) as ledger:
        paying_account(ledger, declaration)
        return adopt_folder(ledger, declaration.output_folder, reason=reason)


def _shown(path: Path) -> str:
    """Return the path as a person would write it: from the working folder if it lies below it."""
    here, whole = Path.cwd().resolve(), path.resolve()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)
