"""The steps of a run, in order: the one list from which both drivers take them, `synthesize` here and the Prefect flow.

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
from dpcore.reporting.outcome import Outcome
from dpcore.runs.reservation import blocks_to_read, check_payable
from dpcore.runs.rounds import Exhausted
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import Declaration, load_spec


@dataclass(frozen=True)
class Done:
    """A step is done. The next step takes this token, so that a driver can show their order."""


PUBLIC = (Selection, Measurement, Exhausted, Outcome)
"""The results of steps that a driver gets to see. For any other result it gets a token."""


@dataclass(frozen=True)
class Step:
    """A step of a run.

    Attributes:
        name: Its name, as a task of Prefect has it.
        act: Takes the step. In a round it is given the number of the round, and the result of the step before.
        asked_for: Returns whether the spec of a run asks for it.
    """

    name: str
    act: Callable[..., Any]
    asked_for: Callable[[Synthesis], bool] = lambda _: True

    def __call__(self, run_id: str, *arguments: Any) -> Any:
        """Take the step of an open run, after the step whose result is given last. Return a public value."""
        result = self.act(opened(run_id), *arguments)
        return result if isinstance(result, PUBLIC) else Done()


RESERVE = Step("reserve", lambda run, _: run.reserve())
LEARNING = (
    Step("choose-limit", lambda run, _: run.choose_limit(), lambda run: run.lacks_limit),
    Step("check-rows", lambda run, _: run.check_rows(), lambda run: run.checks_rows),
    Step("learn-sizes", lambda run, _: run.learn_sizes(), lambda run: run.groups_rows),
    Step("discover", lambda run, _: run.discover(), lambda run: run.discovers),
    Step("ingest", lambda run, _: run.ingest()),
    Step("histogram", lambda run, _: run.histogram()),
    Step("begin", lambda run, _: run.begin()),
)
ROUND = (
    Step("select", lambda run, number, _: run.rounds.select(number)),
    Step("measure", lambda run, number, selection: run.rounds.measure(number, selection)),
    Step("update", lambda run, number, measurement: run.rounds.update(number, measurement)),
)
RELEASING = (
    Step("sample", lambda run, _: run.sample()),
    Step("publish", lambda run, _: run.publish()),
)
SETTLE = Step("settle", lambda run, _: run.settle())


def in_order(
    run: Synthesis,
    take: Callable[..., Any] = Step.__call__,
    *,
    after_learning: Callable[[], None] = lambda: None,
) -> Outcome:
    """Take all steps of an open run, and so make its release. What an earlier attempt paid for is replayed from the transcript.

    Args:
        run: A run that `open_run` has opened.
        take: Takes a step: it is called with the step and its arguments.
        after_learning: Called after the first model and after each round, for a driver that shows progress.
    """
    done = take(RESERVE, run.run_id, None)
    if not run.published:
        for step in LEARNING:
            if step.asked_for(run):
                done = take(step, run.run_id, done)
        after_learning()
        while number := run.rounds.next:
            for step in ROUND:
                done = take(step, run.run_id, number, done)
            after_learning()
        for step in RELEASING:
            done = take(step, run.run_id, done)
    outcome: Outcome = take(SETTLE, run.run_id, done)
    return outcome


_open_runs: dict[str, Synthesis] = {}


@contextmanager
def open_run(run: Synthesis) -> Iterator[Synthesis]:
    """Register a run so that steps find it by its id, yield it, and close it at the end.

    Raises:
        RunHeld: If the run is already open in this process.
    """
    try:
        if _open_runs.setdefault(run.run_id, run) is not run:
            raise RunHeld(f"run {run.run_id} is already open in this process; wait until it has ended")
        try:
            yield run
        finally:
            del _open_runs[run.run_id]
    finally:
        run.close()


def opened(run_id: str) -> Synthesis:
    """Return an open run by its id.

    Raises:
        UsageError: If the run is not open in this process.
    """
    try:
        return _open_runs[run_id]
    except KeyError:
        raise UsageError(f"run {run_id} is not open in this process; call its steps inside `open_run`") from None


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
        with open_run(run):
            return in_order(run)


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
        if resume is None and run_id not in {reserved.id for reserved in run.ledger.runs(run.account.name)}:
            names = blocks_to_read(run.ledger, declaration, as_of=run.as_of)
            check_payable(run.ledger, declaration, account=run.account, amount=amount, names=names)
    finally:
        run.close()
