"""The flow `synthesize`: turn a raw table into a published synthetic one. Each step is a Prefect task.

Prefect sees the arguments and results of tasks, so these are public: the run's id, the number of a round, noisy values, and tokens
that record which steps are done. The table, its counts and the ledger stay with the open run in this process; steps look it up by
its id.
"""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from prefect.runtime import flow_run

from dpcore import Outcome
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.places import places_of_spec, using
from dpcore.reporting.formatting import at_most
from dpcore.runs.rounds import Exhausted
from dpcore.runs.steps import LEARNING, RELEASING, RESERVE, ROUND, SETTLE, Done, Step, in_order, open_run, opened
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import Changes, Declaration, changed
from dpcore.steward.registry import SPEC_SUFFIXES, declared
from flows.form import Delta, Epsilon, Note, ReleaseName, Rows, StrategyName, WorkloadSize
from flows.pages.announcements import announce_release
from flows.pages.artifacts import Watch, publish_report
from flows.tasks.approval import await_approval
from flows.tasks.cluster import prefect_cluster
from flows.tasks.guard import PrivateTask, private_flow, private_task
from flows.tasks.retry import retry_infrastructure
from flows.tasks.untrusted import checked_trust

After = Done | Selection | Measurement | Exhausted | None
"""What a task gets from the one before, so that Prefect draws their order."""


def _task(step: Step) -> PrivateTask[..., Any]:
    def take(run_id: str, after: After) -> Any:
        return step(run_id, after)

    return private_task(name=step.name)(take)


def _task_of_round(step: Step) -> PrivateTask[..., Any]:
    def take(run_id: str, number: int, after: After) -> Any:
        return step(run_id, number, after)

    return private_task(name=step.name, task_run_name=f"round-{{number:03}}/{step.name}")(take)


TASKS = (
    {step: _task(step) for step in (RESERVE, *LEARNING)}
    | {step: _task_of_round(step) for step in ROUND}
    | {step: _task(step) for step in (*RELEASING, SETTLE)}
)


@private_task(name="report")
def report(run_id: str, outcome: Outcome, note: str) -> Outcome:
    """Write the pages of the run, and announce its release to automations."""
    finished = opened(run_id).report()
    publish_report(finished, note=note)
    announce_release(finished)
    return outcome


def _run_name() -> str:
    """Name a run after its release, or after the spec file if the release was given as a path."""
    release, epsilon = Path(flow_run.parameters["release"]), flow_run.parameters.get("epsilon")
    name = release.stem if release.suffix in SPEC_SUFFIXES else release.name
    return f"{name} at epsilon {at_most(epsilon)}" if epsilon else name


@private_flow(name="synthesize", flow_run_name=_run_name)
def synthesize(  # noqa: PLR0913, PLR0917  each is a field of the form, except those after the star
    release: ReleaseName,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rows: Rows = None,
    workload: WorkloadSize = None,
    strategy: StrategyName = None,
    note: Note = "",
    *,
    resume: str | None = None,
    as_of: date | None = None,
    approved: bool = False,
    untrusted: bool = False,
) -> dict[str, Any]:
    """Make a release: turn a private table into a synthetic one, charged to the account that its spec names.

    Args:
        release: The release to make: a spec that the steward has registered.
        epsilon: The epsilon of this release, above 0 and at most 100. Empty: as the spec declares. Half of it gives about twice the noise.
        delta: The delta of the guarantee, from 0 (pure differential privacy) to 0.001. Empty: as the spec declares.
        rows: How many synthetic rows to make, from 1 to 1,000,000,000. Empty: as the spec declares.
        workload: Keep the counts by every combination of this many columns accurate, from 1 to 8. Empty: as the spec declares.
        strategy: The algorithm that fits the model.
        note: A note for people who look at this run later, at most 500 characters. It is stored and shown, so write nothing private.
        resume: The id of an earlier run to continue. A flow run that is retried in Prefect continues by itself.
        as_of: The date as of which blocks count as complete. Empty: the date for which the run was scheduled.
        approved: Whether the caller, as the steward, approves a run above the account's threshold.
        untrusted: Whether a server submitted the run. Then `release` must be registered, and the three options above are rejected.
    """
    untrusted = checked_trust(untrusted=untrusted, resume=resume, as_of=as_of, approved=approved)
    changes = Changes(epsilon=epsilon, delta=delta, rows=rows, workload=workload, strategy=strategy)
    declaration = changed(declared(release, registered_only=untrusted), changes)
    day = _scheduled_day() if as_of is None and declaration.calendar is not None else as_of
    with using(places_of_spec(declaration.path)):
        await_approval(declaration, approved=approved)
        return retry_infrastructure(lambda: make_release(declaration, resume=resume, as_of=day, note=note)).to_json()


def make_release(declaration: Declaration, *, resume: str | None, as_of: date | None, note: str) -> Outcome:
    """Run all steps. Steps done in an earlier attempt of the run are replayed from its transcript."""
    run = Synthesis(
        declaration,
        run_id=resume or str(flow_run.id),
        resume=resume is not None,
        as_of=as_of,
        connect=prefect_cluster,
    )
    with open_run(run):
        watch = Watch(run)
        outcome = in_order(run, lambda step, *arguments: TASKS[step](*arguments), after_learning=watch.update)
        watch.finish()
        return report(run.run_id, outcome, note)


def _scheduled_day() -> date:
    """Return the date for which the run was scheduled, so that a run that starts late still reads what was complete then."""
    now = datetime.now(UTC)
    return min(flow_run.scheduled_start_time or now, now).astimezone(UTC).date()
