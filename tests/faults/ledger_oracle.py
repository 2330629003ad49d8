"""Holds a ledger against the journals of those who used it: what they drew is paid, and what they were told is there."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any

from benchmarks.ledger_scenario import DRAWN, Job, Line
from dpcore.ledger import WHOLE, EventKind, Ledger, RunState

Bodies = Mapping[tuple[str, str, str | None], Sequence[Mapping[str, Any]]]
"""What the chain tells, by the kind of event, the account and the run."""


class Fault(StrEnum):
    """What can be wrong with a ledger after a death."""

    LOST = "lost"
    """A call returned, and what it did is not there."""
    UNCOVERED = "uncovered"
    """Noise was drawn that nobody paid."""
    DUPLICATE = "duplicates"
    """A step has two outputs."""
    OVERPAID = "overpaid"
    """A step was paid more often than it was begun."""
    UNVERIFIED = "unverified"
    """The ledger contradicts itself, says `verify`."""
    BROKEN = "broken"
    """The work could not be taken up again, or did not end as it should."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    fault: Fault
    what: str


def examine(ledger: Ledger, lines: Collection[Line]) -> Iterator[Finding]:
    """Hold a ledger against all that was told before it was opened."""
    events = _by_kind(ledger)
    yield from _uncovered(ledger, events, [line for line in lines if line["what"] == DRAWN])
    for line in lines:
        if line["what"] != DRAWN and not _told(events, line["what"], line, line["details"]):
            yield Finding(Fault.LOST, f"{line['what']} of {line['run'] or line['account']}: {line['details']}")
    yield from _outputs(ledger, events, [line for line in lines if line["what"] == EventKind.COMMITTED])


def examine_end(ledger: Ledger, jobs: Iterable[Job], *, deaths: int, workers: int) -> Iterator[Finding]:
    """Hold a ledger against what was planned, after all work came to its end, though each worker died so many times."""
    attempts = Counter(
        (event.run, event.details["step"]) for event in ledger.history(None) if event.kind is EventKind.CHARGED
    )
    planned = 0
    for job in jobs:
        run = ledger.run(job.run)
        if (run.state, run.release) != (RunState.SETTLED, job.release):
            yield Finding(Fault.BROKEN, f"run {job.run} is {run.state} with release {run.release} at the end")
        if sorted(found.step for found in ledger.transcript(job.run)) != sorted(step.name for step in job.steps):
            yield Finding(Fault.BROKEN, f"run {job.run} has other steps than planned at the end")
        for step in job.steps:
            planned += 1 + step.abandoned
            if attempts[job.run, step.name] > 1 + step.abandoned + deaths:
                yield Finding(
                    Fault.OVERPAID, f"step {step.name} of {job.run} was paid {attempts[job.run, step.name]} times"
                )
    if attempts.total() > planned + deaths * workers:
        yield Finding(
            Fault.OVERPAID, f"{attempts.total()} attempts for {planned} planned ones and {deaths * workers} deaths"
        )


def _by_kind(ledger: Ledger) -> Bodies:
    bodies: dict[tuple[str, str, str | None], list[Mapping[str, Any]]] = defaultdict(list)
    for event in ledger.history(None):
        bodies[event.kind, event.account, event.run].append(event.details)
    return bodies


def _told(events: Bodies, kind: str, line: Line, details: Mapping[str, object]) -> bool:
    """Say whether the chain has an event with these details, among others."""
    bodies = events.get((kind, line["account"], line["run"]), ())
    return any(all(body.get(key) == value for key, value in details.items()) for body in bodies)


def _uncovered(ledger: Ledger, events: Bodies, drawn: Collection[Line]) -> Iterator[Finding]:
    """Find draws that no event tells of, and sums of draws above what a run or a block has spent."""
    by_run: Counter[tuple[str, str]] = Counter()
    by_block: Counter[tuple[str, str]] = Counter()
    for line in drawn:
        account, run, amount = line["account"], line["run"], line["details"]["amount"]
        if not _told(events, EventKind.CHARGED, line, line["details"]):
            yield Finding(
                Fault.UNCOVERED, f"attempt {line['details']['attempt']} of {line['details']['step']} of {run}"
            )
        by_run[account, run] += amount
        granted = events.get((EventKind.RESERVED, account, run), ({"blocks": None},))[-1]["blocks"]
        for block in granted or [WHOLE]:
            by_block[account, block] += amount
    for account in ledger.accounts():
        runs = {run.id: run.spent for run in ledger.runs(account.name)}
        blocks = {block.name: balance.spent for block, balance in ledger.blocks(account.name)}
        for sums, spent, weight in ((by_run, runs, 1), (by_block, blocks, account.weight)):
            for (payer, name), amount in sums.items():
                if payer == account.name and weight * amount > spent.get(name, 0):
                    yield Finding(Fault.UNCOVERED, f"{weight * amount} drawn from {name} of {payer}, and fewer spent")


def _outputs(ledger: Ledger, events: Bodies, committed: Collection[Line]) -> Iterator[Finding]:
    """Find outputs that are not there as they were committed, and steps that have two."""
    for (kind, _, run), bodies in events.items():
        if kind == EventKind.COMMITTED and run is not None:
            steps = Counter(body["step"] for body in bodies) | Counter(found.step for found in ledger.transcript(run))
            yield from (Finding(Fault.DUPLICATE, f"step {step} of {run}") for step, times in steps.items() if times > 1)
    told: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in committed:
        told[line["run"], line["details"]["step"]].add(line["details"]["sha256"])
    for (run, step), digests in told.items():
        if len(digests) > 1:
            yield Finding(Fault.DUPLICATE, f"step {step} of {run} was committed with {len(digests)} outputs")
        found = ledger.operation(run, step)
        if found is None or found.output is None or {sha256(found.output).hexdigest(), found.sha256} != digests:
            yield Finding(Fault.LOST, f"the output of step {step} of {run}")
