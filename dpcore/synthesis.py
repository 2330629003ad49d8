"""The steps of a run, from a declared table to a published release. Two drivers call them: `synthesize` here, and the Prefect flow."""

import hashlib
import json
import logging
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from dpcore.accounting import UNIT
from dpcore.curator import Curator
from dpcore.errors import BudgetRefused, SourceError, UsageError
from dpcore.histogram import Histogram
from dpcore.ingest import Records, Source, data_version, fingerprint_key, ingest
from dpcore.ledger import Account, Balance, Lease, Ledger, Run, open_ledger
from dpcore.measurements import Measurement, Selection
from dpcore.release import Codes, Draft, check_writable, epsilon_of, publish, release_id, state
from dpcore.report import Outcome, Report, Round, distance, noise_floor, without
from dpcore.reservation import check_remaining, in_epsilon, paying_account, units_to_reserve
from dpcore.spec import Declaration, load_spec
from dpcore.stewardlog import private_folder
from dpcore.strategies import Strategy, step_name, strategy_for

progress = logging.getLogger("dpcore.progress")

PLAN_VERSION = 3  # part of every claim: a run is never resumed under rules other than those it was reserved for


class Synthesis:
    """One run of a release: holds what its steps hand on to each other. Nothing is read or spent by making one."""

    def __init__(self, declaration: Declaration, *, run_id: str, resume: bool) -> None:
        self.declaration = declaration
        self.run_id = run_id
        self.source = Source.locate(self.declaration.spec.source.path, base=self.declaration.path.parent)
        check_writable(self.declaration.output_folder)
        with ExitStack() as opened:
            self.ledger: Ledger = opened.enter_context(open_ledger())
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
        self._release: Path | None = None
        self._rows = 0
        self._begun = 0.0
        self._before: Balance | None = None
        self.rounds: list[Round] = []

    def requested(self) -> int:
        """Return what the run may spend, in units; an amount too small for what would be measured is refused."""
        return units_to_reserve(self.declaration, self.strategy, currency=self.account.currency)

    def reserve(self) -> Run:
        """Set the whole budget of the run aside and take the run to work on it, or refuse.

        A run that is started again finds its reservation; one that another worker may be at work on is left to that worker.
        """
        units, spec = self.requested(), self.declaration.spec
        claim = hashlib.sha256(f"{PLAN_VERSION}:{self.declaration.digest}".encode()).hexdigest()
        try:
            run = self.ledger.reserve(
                self.run_id,
                account=self.account.name,
                amount=units,
                claim=claim,
                analyst=spec.analyst,
                purpose=spec.purpose,
            )
        except BudgetRefused as refused:
            raise in_epsilon(refused, self.declaration, currency=self.account.currency) from None
        if self.settled and run.release is None:
            raise UsageError(
                f"run {self.run_id} was ended before it had a release, and takes no more operations; start a new run"
            )
        if not self.settled:
            self._lease = self.ledger.lease(self.run_id)
        self._before = without(run, self.ledger.balance(self.account.name))
        progress.info("run %s: reserved epsilon %g of account %s", self.run_id, spec.privacy.epsilon, self.account.name)
        return run

    @property
    def settled(self) -> bool:
        """Whether the run is finished already, so that it is only replayed from its transcript."""
        return self.ledger.run(self.run_id).state == "settled"

    def ingest(self) -> Records | None:
        """Read and encode the table. If it can't be read at all and nothing was started yet, the reservation is given back."""
        if self._lease is None:
            return None
        try:
            version = data_version(self.source, key=fingerprint_key(private_folder()))
            self.ledger.record_data_version(self._lease, version)
            return ingest(self.source, universe=self.declaration.universe, protection=self.declaration.protection)
        except SourceError:
            if self.ledger.run(self.run_id).spent == 0:
                self.ledger.release_run(self.run_id, lease=self._lease)
            raise

    def histogram(self, records: Records | None) -> None:
        """Count the records over the universe and hand the counts to the curator; nobody else gets them."""
        if records is not None and self._lease is not None:
            self.curator.receive(Histogram.count(records, self.declaration.universe), lease=self._lease)

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

    def sample(self) -> Codes:
        """Make the final model and draw the synthetic rows from it, from a public seed: post-processing."""
        self.strategy.conclude()
        wanted = self.declaration.spec.output.rows
        rows = max(0, round(self.strategy.total)) if wanted == "noisy" else wanted
        return self.strategy.model.rows(rows, rng=np.random.default_rng(self._seed("rows")))

    def publish(self, codes: Codes) -> Path:
        """Write the release, and let it appear at once; a worker that has lost its run publishes nothing."""
        run = self.ledger.run(self.run_id) if self._lease is None else self.ledger.leased(self._lease)
        self._rows = len(codes[0])
        draft = Draft(
            declaration=self.declaration,
            codes=codes,
            measurements=self.strategy.measurements,
            resolutions=self.strategy.resolutions,
            rounds=self.rounds,
            statement=state(
                self.declaration,
                account=self.account,
                run=run,
                ledger=self.ledger.identity(),
                head=self.ledger.head(),
            ),
            name=release_id(self.run_id, opened_at=run.opened_at),
            seed=self._seed("values"),
        )
        self._release = publish(draft)
        return self._release

    def settle(self) -> Outcome:
        """Give back what was reserved and not spent, and say what the run left."""
        release = self._release
        if release is None:
            raise UsageError("nothing was published yet; publish before settling")
        manifest = str(release.resolve() / "manifest.json")
        self.ledger.settle(self.run_id, release=release.name, lease=self._lease, manifest=manifest)
        return self._outcome(release)

    def _outcome(self, release: Path) -> Outcome:
        account, run = self.account, self.ledger.run(self.run_id)
        balance, delta = self.ledger.balance(account.name), self.declaration.spec.privacy.delta
        return Outcome(
            run=self.run_id,
            release=_shown(release),
            rows=self._rows,
            account=account.name,
            currency=account.currency.value,
            delta=delta,
            spent=run.spent / UNIT,
            spent_epsilon=epsilon_of(run.spent, currency=account.currency, delta=delta),
            remaining=balance.remaining / UNIT,
            remaining_epsilon=epsilon_of(balance.remaining, currency=account.currency, delta=account.delta),
        )

    def report(self) -> Report:
        """Tell what the settled run did, from its release and its ledger."""
        if self._release is None or self._before is None:
            raise UsageError("nothing was published yet; publish and settle before reporting")
        manifest = json.loads((self._release / "manifest.json").read_text(encoding="utf-8"))
        return Report(
            outcome=self._outcome(self._release),
            account=self.account,
            before=self._before,
            after=self.ledger.balance(self.account.name),
            rounds=tuple(self.rounds),
            privacy=manifest["privacy"],
            columns=manifest["columns"],
            files=manifest["files"],
        )

    def close(self) -> None:
        """Close the ledger's connection."""
        self.ledger.close()

    def _seed(self, purpose: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{purpose}:{self.run_id}".encode()).digest()[:8])


def synthesize(spec: str | Path, *, run_id: str | None = None, resume: bool = False) -> Outcome:
    """Make a release from a spec, without Prefect. With `resume`, `run_id` names a run that was started before."""
    run = Synthesis(load_spec(spec), run_id=run_id or str(uuid.uuid4()), resume=resume)
    try:
        run.reserve()
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


def check_run(declaration: Declaration, *, resume: str | None) -> None:
    """Refuse at once what a run would refuse: a wrong spec, a wrong account, too little budget. Nothing is read, changed or spent.

    For drivers that take long to start. The ledger decides again, for good, when the run reserves.
    """
    run = Synthesis(declaration, run_id=resume or "unnamed", resume=resume is not None)
    try:
        units = run.requested()
        if resume is None:
            remaining = run.ledger.balance(run.account.name).remaining
            check_remaining(run.account, declaration, units=units, remaining=remaining)
    finally:
        run.close()


def _shown(path: Path) -> str:
    """Return the path as a person would write it: from the working folder if it lies below it."""
    here, whole = Path.cwd().resolve(), path.resolve()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)
