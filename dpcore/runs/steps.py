"""The steps of a run, in order. Both drivers use this list: `synthesize` here and the Prefect flow.

Steps take and return public values only: the run's id, the number of a round, noisy values, or a token for a completed step. Private values
stay with the open run in this process, where each step finds them by the run's id.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from dpcore.errors import RunHeld, UsageError
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.places import places_of_spec, using
from dpcore.private import Private
from dpcore.release import SyntheticRows
from dpcore.reporting.outcome import Outcome
from dpcore.runs.reservation import blocks_to_read, check_payable
from dpcore.runs.rounds import Exhausted
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import Declaration, load_spec


@dataclass(frozen=True)
class Reserved:
    """The budget is reserved. The fields tell which optional steps the spec asks for, and whether the release is in its place already."""

    checks_rows: bool
    discovers: bool
    chooses_limit: bool = False
    groups_rows: bool = False
    published: bool = False


@dataclass(frozen=True)
class Done:
    """A step is done. The next step takes this token, so that a driver can show their order."""


@dataclass(frozen=True)
class Learned:
    """The model is up to date. `next_round` is the number of the next round, or 0 if there is none."""

    next_round: int


Before = Reserved | Done


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The functions that a driver calls for the steps, in the order of `in_order`."""

    reserve: Callable[[str], Reserved]
    choose_limit: Callable[[str, Before], Done]
    check_rows: Callable[[str, Before], Done]
    learn_sizes: Callable[[str, Before], Done]
    discover: Callable[[str, Before], Done]
    ingest: Callable[[str, Before], Done]
    histogram: Callable[[str, Done], Done]
    begin: Callable[[str, Done], Learned]
    select: Callable[[str, int, Learned], Selection | Exhausted]
    measure: Callable[[str, int, Selection | Exhausted], Measurement | Exhausted]
    update: Callable[[str, int, Measurement | Exhausted], Learned]
    sample: Callable[[str, Learned], Done]
    publish: Callable[[str, Done], Done]
    settle: Callable[[str, Before], Outcome]


def _nothing() -> None:
    """Do nothing."""


def in_order(run_id: str, steps: Steps, *, after_learning: Callable[[], None] = _nothing) -> Outcome:
    """Run all steps of an open run and make its release. Steps that an earlier attempt paid for are replayed from the transcript.

    Args:
        run_id: The id of a run that `open_run` has opened.
        steps: The function to call for each step.
        after_learning: Called after the first model and after each round, for a driver that shows progress.
    """
    reserved = steps.reserve(run_id)
    if reserved.published:
        return steps.settle(run_id, reserved)
    done: Before = reserved
    if reserved.chooses_limit:
        done = steps.choose_limit(run_id, done)
    if reserved.checks_rows:
        done = steps.check_rows(run_id, done)
    if reserved.groups_rows:
        done = steps.learn_sizes(run_id, done)
    if reserved.discovers:
        done = steps.discover(run_id, done)
    done = steps.ingest(run_id, done)
    done = steps.histogram(run_id, done)
    learned = steps.begin(run_id, done)
    after_learning()
    while number := learned.next_round:
        selection = steps.select(run_id, number, learned)
        measurement = steps.measure(run_id, number, selection)
        learned = steps.update(run_id, number, measurement)
        after_learning()
    done = steps.sample(run_id, learned)
    done = steps.publish(run_id, done)
    return steps.settle(run_id, done)


@dataclass
class _OpenRun:
    """An open run, with the private values that one step leaves for the next."""

    synthesis: Synthesis
    records: Private | None = None
    rows: SyntheticRows | None = None


_open_runs: dict[str, _OpenRun] = {}


@contextmanager
def open_run(synthesis: Synthesis) -> Iterator[str]:
    """Register a run so that steps find it by its id, yield the id, and close the run at the end.

    Raises:
        RunHeld: If the run is already open in this process.
    """
    run_id = synthesis.run_id
    try:
        if _open_runs.setdefault(run_id, opened := _OpenRun(synthesis)) is not opened:
            raise RunHeld(f"run {run_id} is already open in this process; wait until it has ended")
        try:
            yield run_id
        finally:
            del _open_runs[run_id]
    finally:
        synthesis.close()


def _opened(run_id: str) -> _OpenRun:
    try:
        return _open_runs[run_id]
    except KeyError:
        raise UsageError(f"run {run_id} is not open in this process; call its steps inside `open_run`") from None


def opened(run_id: str) -> Synthesis:
    """Return an open run by its id.

    Raises:
        UsageError: If the run is not open in this process.
    """
    return _opened(run_id).synthesis


def reserve(run_id: str) -> Reserved:
    """Reserve the whole budget of the run, or raise."""
    run = opened(run_id)
    run.reserve()
    return Reserved(
        checks_rows=run.checks_rows,
        discovers=run.discovers,
        chooses_limit=run.lacks_limit,
        groups_rows=run.groups_rows,
        published=run.published,
    )


def choose_limit(run_id: str, _after: Before) -> Done:
    """Choose the limit on rows per unit by a noisy histogram."""
    opened(run_id).choose_limit()
    return Done()


def check_rows(run_id: str, _after: Before) -> Done:
    """Measure which columns drop rows, and how many there are if the spec expects a number; end the run if too many are lost, or it is another."""
    opened(run_id).check_rows()
    return Done()


def learn_sizes(run_id: str, _after: Before) -> Done:
    """Learn how many rows persons have, to keep the rows of synthetic persons together."""
    opened(run_id).learn_sizes()
    return Done()


def discover(run_id: str, _after: Before) -> Done:
    """Discover the values that the spec does not declare."""
    opened(run_id).discover()
    return Done()


def ingest(run_id: str, _after: Before) -> Done:
    """Read and encode the table."""
    run = _opened(run_id)
    run.records = run.synthesis.ingest()
    return Done()


def histogram(run_id: str, _after: Done) -> Done:
    """Count the records for the curator."""
    run = _opened(run_id)
    records, run.records = run.records, None
    run.synthesis.histogram(records)
    return Done()


def begin(run_id: str, _after: Done) -> Learned:
    """Buy the measurements for the first model."""
    run = opened(run_id)
    run.begin()
    return _learned(run, 0)


def select(run_id: str, number: int, _after: Learned) -> Selection | Exhausted:
    """Select the marginal with the largest model error."""
    return opened(run_id).select(number)


def measure(run_id: str, number: int, selection: Selection | Exhausted) -> Measurement | Exhausted:
    """Measure the selected marginal."""
    return opened(run_id).measure(number, selection)


def update(run_id: str, number: int, measurement: Measurement | Exhausted) -> Learned:
    """Update the model with the measurement."""
    run = opened(run_id)
    run.update(number, measurement)
    return _learned(run, number)


def _learned(run: Synthesis, number: int) -> Learned:
    over = run.strategy.finished or number >= run.strategy.rounds
    return Learned(next_round=0 if over else number + 1)


def sample(run_id: str, _after: Learned) -> Done:
    """Make the final model, and prepare the synthetic rows."""
    run = _opened(run_id)
    run.rows = run.synthesis.sample()
    return Done()


def publish(run_id: str, _after: Done) -> Done:
    """Write the release."""
    run = _opened(run_id)
    if run.rows is None:
        raise UsageError("there are no rows to publish yet; sample before publishing")
    run.synthesis.publish(run.rows)
    return Done()


def settle(run_id: str, _after: Before) -> Outcome:
    """Refund the unspent budget, and return the outcome."""
    return opened(run_id).settle()


PLAIN = Steps(
    reserve=reserve,
    choose_limit=choose_limit,
    check_rows=check_rows,
    learn_sizes=learn_sizes,
    discover=discover,
    ingest=ingest,
    histogram=histogram,
    begin=begin,
    select=select,
    measure=measure,
    update=update,
    sample=sample,
    publish=publish,
    settle=settle,
)
"""The plain steps, for a driver that does not wrap them."""


def synthesize(
    spec: str | Path, *, run_id: str | None = None, resume: bool = False, as_of: date | None = None, table: Any = None
) -> Outcome:
    """Make a release from a spec, without Prefect.

    Args:
        spec: The spec's path.
        run_id: The run's id; None for a new one.
        resume: Whether `run_id` names a run that was started before.
        as_of: With `blocks`, the day as of which blocks are complete; None for today in UTC.
        table: A pandas, polars or Arrow table to read instead of the spec's `source`, which is then optional.
    """
    declaration = load_spec(spec, with_table=table is not None)
    with using(places_of_spec(declaration.path)):
        run = Synthesis(declaration, run_id=run_id or str(uuid.uuid4()), resume=resume, as_of=as_of, table=table)
        with open_run(run) as opened_id:
            return in_order(opened_id, PLAIN)


def check_run(
    declaration: Declaration, *, resume: str | None, as_of: date | None = None, run_id: str | None = None
) -> None:
    """Raise the errors that a run would raise for its spec, its account, its budget or its private folder. Read, change and spend nothing.

    This is for drivers that take long to start. The ledger makes the final decision when the run reserves.

    Args:
        declaration: The declaration of the run.
        resume: The id of the run to resume; None for a new run.
        as_of: With `blocks`, the day as of which blocks are complete.
        run_id: The id of the run, if it has one already. If an earlier attempt has reserved its budget, the balance is not checked, and the
            prior is that of the earlier attempt.
    """
    run = Synthesis(declaration, run_id=resume or run_id or "unnamed", resume=resume is not None, as_of=as_of)
    try:
        amount = run.requested()
        run.check_key()
        if resume is None and run_id not in {each.id for each in run.ledger.runs(run.account.name)}:
            names = blocks_to_read(run.ledger, declaration, as_of=run.as_of)
            check_payable(run.ledger, declaration, account=run.account, amount=amount, names=names)
    finally:
        run.close()
