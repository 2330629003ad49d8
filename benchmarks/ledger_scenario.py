"""A scenario that uses every verb of the ledger protocol and can be resumed after a crash at any point.

The process keeps its own journal outside the ledger: a line before each draw, and one after each call that returned. The ledger is
afterwards compared with that journal.
"""

import json
import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpcore.ledger import AllowanceKind, EventKind, Ledger, RunState
from dpcore.ledger.sqlite.outputs import LARGEST_IN_ROW
from dpcore.mechanisms import DiscreteGaussian, from_description
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Sensitivity

Line = dict[str, Any]
DRAWN = "drawn"
"""The journal's entry for the one event that a ledger cannot see: noise was drawn."""

CAP, RAISED = 10**9, 2 * 10**9
MONTHS = tuple(f"2026-{month:02}" for month in range(1, 7))
MECHANISM = DiscreteGaussian(scale=1e5, sensitivity=Sensitivity(l1=1, l2_squared=1, linf=1)).describe()
"""A mechanism whose price is at most the amount of any step."""
VERSION = f"sha256:{'5' * 64}"


@dataclass(frozen=True)
class Step:
    """One measurement. `abandoned` attempts are charged and drawn, but never committed, before the one that is committed."""

    name: str
    amount: int
    size: int = 200
    abandoned: int = 0


@dataclass(frozen=True)
class Job:
    """One run with all its steps."""

    run: str
    account: str
    steps: tuple[Step, ...]
    blocks: tuple[str, ...] | None = None
    analyst: str | None = None
    purpose: str | None = None
    release: str | None = None
    spare: int = 2
    """How many times each step can be paid, in case its worker crashes."""

    @property
    def amount(self) -> int:
        """The amount that the run reserves."""
        return sum(step.amount * (self.spare + step.abandoned) for step in self.steps)


JOBS = (
    Job(
        "visits-1",
        "visits",
        (Step("age", 1_000), Step("sex", 700, abandoned=1), Step("map", 2_000, size=LARGEST_IN_ROW + 1)),
        blocks=MONTHS[:3],
        analyst="maria",
        purpose="quarterly",
        release="visits/1",
    ),
    Job("visits-2", "visits", (Step("age", 900),), blocks=MONTHS[2:4], analyst="maria", purpose="quarterly"),
    Job("survey-1", "survey", (Step("mood", 300),), release="survey/1"),
)


class Journal:
    """An append-only file. Each line is on disk before `tell` returns."""

    def __init__(self, path: Path) -> None:
        self.lines = read_journal(path)
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def tell(self, what: str, *, account: str, run: str | None, **details: object) -> None:
        """Record an event."""
        line = {"what": what, "account": account, "run": run, "details": details}
        os.write(self._file, f"{json.dumps(line)}\n".encode())
        os.fdatasync(self._file)
        self.lines.append(line)

    def tells(self, what: str, *, run: str, **details: object) -> bool:
        """Return whether a matching line exists, from this process or an earlier one."""
        return any(
            line["what"] == what and line["run"] == run and all(line["details"][key] == details[key] for key in details)
            for line in reversed(self.lines)
        )


def read_journal(path: Path) -> list[Line]:
    """Return the complete lines of a journal. Text after the last newline was being written at the crash."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def play(ledger: Ledger, journal: Journal) -> None:
    """Play the whole scenario, or the rest of it after a crash."""
    open_accounts(ledger, journal)
    visits, again, survey = JOBS
    work(ledger, journal, visits)
    if ledger.account("visits").cap < RAISED:
        ledger.raise_cap("visits", cap=RAISED, epsilon=2.0, reason="a second year")
    journal.tell(EventKind.CAP_RAISED, account="visits", run=None, cap=RAISED)
    if not journal.tells(EventKind.REFUNDED, run=again.run):
        withdraw(ledger, journal, again)
    work(ledger, journal, again)
    work(ledger, journal, survey)
    ledger.close_account("survey", reason="all is measured")
    journal.tell(EventKind.ACCOUNT_CLOSED, account="survey", run=None)


def open_accounts(ledger: Ledger, journal: Journal) -> None:
    """Open both accounts: one with monthly blocks, where replacing a person changes two blocks, and one without blocks."""
    known = {account.name for account in ledger.accounts()}
    declared: dict[str, dict[str, Any]] = {
        "visits": {"neighbours": Neighbours.REPLACE_ONE, "blocks_by": "month of visit_date"},
        "survey": {"neighbours": Neighbours.ADD_REMOVE},
    }
    for name, terms in declared.items():
        if name not in known:
            ledger.open_account(name, currency=Currency.ZCDP, cap=CAP, epsilon=1.0, delta=1e-9, unit="person", **terms)
        journal.tell(EventKind.ACCOUNT_OPENED, account=name, run=None, cap=CAP)
    if not ledger.blocks("visits"):
        ledger.open_blocks("visits", MONTHS)
    journal.tell(EventKind.BLOCKS_OPENED, account="visits", run=None, blocks=list(MONTHS))
    ledger.seal_blocks("visits", MONTHS[:4])
    journal.tell(EventKind.BLOCKS_SEALED, account="visits", run=None, blocks=list(MONTHS[:4]))
    for kind, name in ((AllowanceKind.ANALYST, "maria"), (AllowanceKind.PURPOSE, "quarterly")):
        ledger.allow("visits", kind=kind, name=name, cap=CAP // 2, epsilon=0.5, reason="agreed")
        journal.tell(EventKind.ALLOWED, account="visits", run=None, kind=kind, name=name)


def work(ledger: Ledger, journal: Journal, job: Job) -> None:
    """Reserve, measure and settle. Committed steps are neither charged nor drawn again."""
    if reserve(ledger, journal, job) is RunState.SETTLED:
        return
    lease = ledger.lease(job.run)
    journal.tell(EventKind.LEASED, account=job.account, run=job.run, fence=lease.fence)
    ledger.record_data_version(lease, VERSION)
    journal.tell(EventKind.DATA_VERSION, account=job.account, run=job.run, version=VERSION)
    for step in job.steps:
        if ledger.operation(job.run, step.name) is not None:
            continue
        abandoned = 0 if journal.tells(DRAWN, run=job.run, step=step.name) else step.abandoned
        for commits in (*[False] * abandoned, True):
            operation = ledger.charge(lease, step=step.name, amount=step.amount, mechanism=MECHANISM)
            attempt = {"account": job.account, "run": job.run, "step": step.name, "attempt": operation.attempt}
            journal.tell(DRAWN, **attempt, amount=step.amount)
            output = draw(job.run, step, attempt=operation.attempt)
            if commits:
                ledger.commit(operation, output)
                journal.tell(EventKind.COMMITTED, **attempt, sha256=sha256(output).hexdigest())
    ledger.settle(job.run, release=job.release, lease=lease, manifest=None)
    journal.tell(EventKind.SETTLED, account=job.account, run=job.run, release=job.release)


def withdraw(ledger: Ledger, journal: Journal, job: Job) -> None:
    """Reserve, and refund the whole reservation."""
    reserve(ledger, journal, job)
    lease = ledger.lease(job.run)
    journal.tell(EventKind.LEASED, account=job.account, run=job.run, fence=lease.fence)
    ledger.refund(job.run, lease=lease)
    journal.tell(EventKind.REFUNDED, account=job.account, run=job.run, returned=job.amount)


def reserve(ledger: Ledger, journal: Journal, job: Job) -> RunState:
    """Reserve the amount that the job may need, unless it is already reserved."""
    blocks: Iterable[str] | None = job.blocks
    who = {"analyst": job.analyst, "purpose": job.purpose}
    run = ledger.reserve(job.run, account=job.account, amount=job.amount, claim="scenario", blocks=blocks, **who)
    blocks = blocks and list(blocks)
    journal.tell(EventKind.RESERVED, account=job.account, run=job.run, amount=job.amount, blocks=blocks, **who)
    return run.state


def draw(run: str, step: Step, *, attempt: int) -> bytes:
    """Return bytes that stand for noise. They differ in each attempt, so that a second output for a step would be detected."""
    return random.Random(f"{run} {step.name} {attempt}").randbytes(step.size)  # noqa: S311  it protects nobody


def price(mechanism: Mapping[str, Any], currency: Currency) -> int:
    """Return the price of a recorded mechanism, for `verify`."""
    return from_description(mechanism).price(currency)
