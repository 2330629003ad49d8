"""What must hold after a soak, whatever was killed in it: no run lost, no charge lost or doubled, each release just as it was paid for."""

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpcore.errors import DpflowError
from dpcore.ledger import Ledger, Operation, OperationState, RunState, open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.runs.early import LOSSES_STEP
from dpcore.steward.verify import verify_ledger
from dpcore.strategies.strategy import column_step, step_name

COMPLETED, REFUSED = "Completed", "Refused"


class Rule(StrEnum):
    """What can be broken."""

    LOST = "a run is lost"
    ENDED = "a run ended neither completed nor refused"
    VERIFY = "the ledger does not verify"
    RELEASE = "a completed run has not one release and one settled run in the ledger"
    REFUSAL = "a refused run left something, or there was room for it"
    STEPS = "a step has not one committed operation"
    MEASURED = "a release does not hold what the ledger sold"
    BALANCE = "more was spent than reserved, or reserved than the account has"
    LEFTOVER = "a release was left half written"


@dataclass(frozen=True)
class Finding:
    """A rule that is broken, and where."""

    rule: Rule
    what: str


@dataclass(frozen=True)
class Soaked:
    """What a soak left behind.

    `ends` has the name of the last state of each run that the server knows, by id; `asked` is how many were asked for.
    """

    releases: Path
    ledger: str
    account: str
    ends: Mapping[str, str | None]
    asked: int


def broken(soaked: Soaked) -> list[Finding]:
    """Return all that is wrong; nothing is changed."""
    with open_ledger(soaked.ledger) as ledger:
        manifests = _manifests(soaked.releases)
        return [
            *_lost(soaked),
            *_verified(soaked),
            *_ended(soaked, ledger, manifests),
            *_steps(soaked, ledger, manifests),
            *_balanced(soaked, ledger),
            *_measured(ledger, manifests),
            *(Finding(Rule.LEFTOVER, path.name) for path in soaked.releases.glob("**/.partial-*")),
        ]


def _lost(soaked: Soaked) -> Iterator[Finding]:
    if len(soaked.ends) != soaked.asked:
        yield Finding(Rule.LOST, f"{soaked.asked} runs were asked for, {len(soaked.ends)} are accounted for")
    for run, end in soaked.ends.items():
        if end not in {COMPLETED, REFUSED}:
            yield Finding(Rule.ENDED, f"{run}: {end}")


def _verified(soaked: Soaked) -> Iterator[Finding]:
    try:
        with _ledger_at(soaked.ledger):
            verify_ledger(releases=[soaked.releases] if soaked.releases.exists() else [])
    except DpflowError as error:
        yield Finding(Rule.VERIFY, str(error))


def _manifests(releases: Path) -> dict[str, list[Path]]:
    """Return the manifests below a folder by the run that they name; one that does not read is for `verify` to find."""
    found = defaultdict(list)
    for path in sorted(releases.glob("**/manifest.json")):
        try:
            found[str(_read(path)["privacy"]["run"])].append(path)
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _ended(soaked: Soaked, ledger: Ledger, manifests: Mapping[str, list[Path]]) -> Iterator[Finding]:
    runs = {run.id: run for run in ledger.runs(soaked.account)}
    for run, end in soaked.ends.items():
        names = [path.parent.name for path in manifests.get(run, [])]
        known = runs.get(run)
        if end == COMPLETED and (known is None or known.state is not RunState.SETTLED or names != [known.release]):
            yield Finding(Rule.RELEASE, f"{run}: {names}, in the ledger {known and (known.state, known.release)}")
        if end == REFUSED and (known or names):
            yield Finding(Rule.REFUSAL, f"{run}: {names}, in the ledger {known and (known.state, known.release)}")
    for run in sorted((runs.keys() | manifests.keys()) - soaked.ends.keys()):
        yield Finding(Rule.LOST, f"{run} has a release or a reservation, and no end")
    each = max((run.reserved for run in runs.values()), default=0)
    remaining = ledger.balance(soaked.account).remaining
    if REFUSED in soaked.ends.values() and remaining >= each:
        yield Finding(Rule.REFUSAL, f"{remaining} remains, and a run takes {each}")


def _steps(soaked: Soaked, ledger: Ledger, manifests: Mapping[str, list[Path]]) -> Iterator[Finding]:
    attempts: dict[str, Counter[str]] = defaultdict(Counter)
    committed: dict[str, Counter[str]] = defaultdict(Counter)
    with ledger.scanning() as scan:
        for row in scan.attempts():
            attempts[row.run][row.step] += 1
            committed[row.run][row.step] += row.state == OperationState.COMMITTED
    for run in (run for run, end in soaked.ends.items() if end == COMPLETED):
        wanted = [step for path in manifests.get(run, []) for step in _plan(_read(path))]
        done = [step for step in wanted if committed[run][step] == 1]
        # Interruptions may use up what the last step needs; then it was paid for and has no output, or was left out.
        short = attempts[run].total() > len(done) and done == wanted[:-1]
        if (done != wanted and not short) or committed[run].total() != len(done):
            yield Finding(Rule.STEPS, f"{run}: {dict(committed[run])} of {wanted}")


def _plan(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Go through the steps that a run of a release's spec pays for."""
    spec = manifest["spec"]
    yield LOSSES_STEP
    for axis, name in enumerate(spec["universe"]):
        yield column_step(axis, name)
    for number in range(1, spec["strategy"]["rounds"] + 1):
        yield from (step_name(number, "select"), step_name(number, "measure"))


def _balanced(soaked: Soaked, ledger: Ledger) -> Iterator[Finding]:
    runs, balance = ledger.runs(soaked.account), ledger.balance(soaked.account)
    paid: Counter[str] = Counter()
    with ledger.scanning() as scan:
        for row in scan.charges():
            paid[row.run] += row.amount
    for run in runs:
        if not paid[run.id] == run.spent <= run.reserved:
            yield Finding(Rule.BALANCE, f"{run.id}: {paid[run.id]} paid, {run.spent} spent of {run.reserved}")
    held = sum(run.remaining for run in runs)
    if not (sum(run.spent for run in runs) == balance.spent <= balance.cap and balance.remaining >= 0 == held):
        yield Finding(Rule.BALANCE, f"{balance}, with {held} still held")


def _measured(ledger: Ledger, manifests: Mapping[str, list[Path]]) -> Iterator[Finding]:
    for run, paths in manifests.items():
        for path in paths:
            try:
                problem = _difference(path.parent, _transcript(ledger, run))
            except (DpflowError, OSError, ValueError, KeyError, TypeError) as error:
                problem = f"does not read: {type(error).__name__}"
            if problem:
                yield Finding(Rule.MEASURED, f"{run}: {problem}")


def _transcript(ledger: Ledger, run: str) -> dict[str, Measurement]:
    def measured(done: Operation) -> Measurement:
        return Measurement.from_bytes(done.output or b"", step=done.step)

    return {
        done.step: measured(done)
        for done in ledger.transcript(run)
        if not done.step.endswith("/select") and done.step != LOSSES_STEP
    }


def _difference(release: Path, sold: Mapping[str, Measurement]) -> str | None:
    """Return how a release differs from the measurements in the ledger, value for value, and from its own manifest."""
    manifest = _read(release / "manifest.json")
    for file in manifest["files"]:
        if hashlib.sha256((release / file["path"]).read_bytes()).hexdigest() != file["sha256"]:
            return f"{file['path']} is not the file that the manifest lists"
    published: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in pq.read_table(release / "measurements.parquet").to_pylist():
        published[row["step"]].append(row)
    if list(published) != list(sold):
        return f"published {list(published)}, sold {list(sold)}"
    names = list(manifest["spec"]["universe"])
    for step, measurement in sold.items():
        columns = [names[axis] for axis in measurement.axes]
        wanted = [(columns, count, measurement.noise.hex()) for count in measurement.values.ravel().tolist()]
        found = [(it["attributes"], it["noisy_count"], it["noise_standard_deviation"].hex()) for it in published[step]]
        if found != wanted:
            return f"step {step} has other values"
    return None


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


@contextmanager
def _ledger_at(url: str) -> Iterator[None]:
    """Let `verify` find the ledger where every command looks for it."""
    before = os.environ.get("DPFLOW_LEDGER_URL")
    os.environ["DPFLOW_LEDGER_URL"] = url
    try:
        yield
    finally:
        if before is None:
            del os.environ["DPFLOW_LEDGER_URL"]
        else:
            os.environ["DPFLOW_LEDGER_URL"] = before
