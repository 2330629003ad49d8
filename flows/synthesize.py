"""From a raw table to a published synthetic one: each step is a Prefect task, and the ledger guards them all."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from prefect.runtime import flow_run

from dpcore import Changes, Declaration, Outcome, Synthesis, changed, declared, step_name
from dpcore.places import places_of_spec, using
from dpcore.reporting.formatting import at_most
from dpcore.steward.registry import SPEC_SUFFIXES
from flows.form import Delta, Epsilon, Note, ReleaseName, Rows, StrategyName, WorkloadSize
from flows.pages.artifacts import Watch, publish_report
from flows.tasks.approval import await_approval
from flows.tasks.cluster import prefect_cluster
from flows.tasks.guard import private_flow, step
from flows.tasks.retry import retry_infrastructure
from flows.tasks.served import served

_resumed: ContextVar[str | None] = ContextVar("resumed", default=None)
_as_of: ContextVar[date | None] = ContextVar("as_of", default=None)


@contextmanager
def resuming(run_id: str | None) -> Iterator[None]:
    """Let a call of the flow go on with an earlier run of that id. A flow run that is retried in Prefect does so by itself."""
    token = _resumed.set(run_id)
    try:
        yield
    finally:
        _resumed.reset(token)


@contextmanager
def as_of_day(day: date | None) -> Iterator[None]:
    """Let a call of the flow read the blocks that were complete on a day; otherwise on the day that it was scheduled for."""
    token = _as_of.set(day)
    try:
        yield
    finally:
        _as_of.reset(token)


def _day() -> date:
    """Return the day as of which blocks are complete: a run that starts late still reads what it was scheduled for."""
    now = datetime.now(UTC)
    return _as_of.get() or min(flow_run.scheduled_start_time or now, now).astimezone(UTC).date()


def _run_name() -> str:
    """Name a run after its release; of a spec that was named by its path, after the file."""
    release, epsilon = Path(flow_run.parameters["release"]), flow_run.parameters.get("epsilon")
    name = release.stem if release.suffix in SPEC_SUFFIXES else release.name
    return f"{name} at epsilon {at_most(epsilon)}" if epsilon else name


@private_flow(name="synthesize", flow_run_name=_run_name)
def synthesize(  # noqa: PLR0913, PLR0917  each is a field of the form
    release: ReleaseName,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rows: Rows = None,
    workload: WorkloadSize = None,
    strategy: StrategyName = None,
    note: Note = "",
) -> dict[str, Any]:
    """Make a release: a private table in, a synthetic one out, paid for from the account of its spec.

    Args:
        release: Which release to make: a spec that the steward has registered.
        epsilon: What this release may spend, above 0 and at most 100. Empty: as the spec declares. Half of it gives about twice the noise.
        delta: The delta of the guarantee, from 0, which is pure differential privacy, to 0.001. Empty: as the spec declares.
        rows: How many synthetic rows to make, at least 1. Empty: as the spec declares, usually the noisy number of the real ones.
        workload: All tables of counts by so many columns should come out right, from 1 to 8. Empty: as the spec declares.
        strategy: How the model learns.
        note: A line for whoever looks at this run later, of at most 500 letters. It is stored and shown, so write nothing private.
    """
    changes = Changes(epsilon=epsilon, delta=delta, rows=rows, workload=workload, strategy=strategy)
    declaration = changed(declared(release, registered_only=served()), changes)
    with using(places_of_spec(declaration.path)):
        return _approved(declaration, note=note)


def _approved(declaration: Declaration, *, note: str) -> dict[str, Any]:
    """Make the release once the steward has approved it, where that is needed."""
    await_approval(declaration)
    resumed = _resumed.get()
    run_id = resumed or str(flow_run.id)
    return retry_infrastructure(lambda: _release(declaration, run_id, resume=resumed is not None, note=note)).to_json()


def _release(declaration: Declaration, run_id: str, *, resume: bool, note: str) -> Outcome:
    """Go through all steps; those that were done in an earlier attempt of the run are replayed from its transcript."""
    as_of = None if declaration.calendar is None else _day()
    run = Synthesis(declaration, run_id=run_id, resume=resume, as_of=as_of, connect=prefect_cluster)
    try:
        step("reserve", run.reserve)()
        if run.expects_rows:
            step("check-rows", run.check_rows)()
        if run.discovers:
            step("discover", run.discover)()
        records = step("ingest", run.ingest)()
        step("histogram", run.histogram)(records)
        step("begin", run.begin)()
        watch = Watch(run)
        for number in range(1, run.strategy.rounds + 1):
            if run.strategy.finished:
                break
            selection = step(step_name(number, "select"), run.select)(number)
            measurement = step(step_name(number, "measure"), run.measure)(number, selection)
            step(step_name(number, "update"), run.update)(number, measurement)
            watch.update()
        rows = step("sample", run.sample)()
        step("publish", run.publish)(rows)
        outcome = step("settle", run.settle)()
        step("report", publish_report)(run.report(), note=note)
    finally:
        run.close()
    return outcome
