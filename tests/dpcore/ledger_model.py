"""A ledger as a few dictionaries, and a machine that holds every real one to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dpcore.accounting import Currency
from dpcore.errors import BudgetRefused, DpflowError, UsageError
from dpcore.ledger import Account, Ledger, Operation, open_ledger
from dpcore.ledger.chain import GENESIS, seal
from dpcore.privacy import Neighbours

CAP = 100
RUNS = st.sampled_from(["run-1", "run-2", "run-3"])
STEPS = st.sampled_from(["round-001/select", "round-001/measure"])
WORKERS = st.integers(0, 1)


def opened(ledger: Ledger, name: str = "clinic", **changes: Any) -> Account:
    declared: dict[str, Any] = {
        "currency": Currency.PURE,
        "cap": 1_000,
        "epsilon": 1.0,
        "delta": 0.0,
        "unit": "row",
        "neighbours": Neighbours.ADD_REMOVE,
    }
    return ledger.open_account(name, **(declared | changes))


def assert_sound(ledger: Ledger) -> None:
    """The chain holds from its first event to the head, and every sum follows from the events alone."""
    previous = GENESIS
    balance: dict[str, list[int]] = {account.name: [0, 0] for account in ledger.accounts()}
    for number, event in enumerate(ledger.history(None), start=1):
        assert (event.seq, event.previous) == (number, previous)
        assert seal(event) == event
        previous = event.hash
        details = event.details
        spent, reserved = {
            "reserved": (0, details.get("amount", 0)),
            "started": (details.get("amount", 0), -details.get("amount", 0)),
            "settled": (0, -details.get("returned", 0)),
            "released": (0, -details.get("returned", 0)),
        }.get(event.kind, (0, 0))
        balance[event.account][0] += spent
        balance[event.account][1] += reserved
    assert ledger.head() == previous
    for account in ledger.accounts():
        assert [account.spent, account.reserved] == balance[account.name]
        assert account.spent == sum(run.spent for run in ledger.runs(account.name))
        assert account.reserved == sum(run.remaining for run in ledger.runs(account.name))
        assert account.spent + account.reserved <= account.cap


@dataclass
class PlainRun:
    amount: int
    claim: str
    state: str = "open"
    spent: int = 0
    version: str | None = None
    release: str | None = None
    attempts: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, bytes] = field(default_factory=dict)


class LedgerMachine(RuleBasedStateMachine):
    """Two workers do anything in any order; the ledger must answer as the plain model does."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.workers = [open_ledger(url, create=True), open_ledger(url)]
        opened(self.workers[0], cap=CAP)
        self.runs: dict[str, PlainRun] = {}
        self.started: list[Operation] = []

    def expect(self, wanted: type[DpflowError] | None, act: Callable[[], Any]) -> Any:
        if wanted is None:
            return act()
        head = self.workers[0].head()
        with pytest.raises(wanted) as refused:
            act()
        assert type(refused.value) is wanted
        assert self.workers[1].head() == head
        return None

    @property
    def spent(self) -> int:
        return sum(run.spent for run in self.runs.values())

    @property
    def reserved(self) -> int:
        return sum(run.amount - run.spent for run in self.runs.values() if run.state == "open")

    @rule(worker=WORKERS, name=RUNS, amount=st.sampled_from([20, 45, 60]), claim=st.sampled_from(["a", "a", "b"]))
    def reserve(self, worker: int, name: str, amount: int, claim: str) -> None:
        run = self.runs.get(name)
        wanted: type[DpflowError] | None = None
        takes = run is None or run.state == "released"
        if run is not None and (run.amount, run.claim) != (amount, claim):
            wanted = UsageError
        elif takes and amount > CAP - self.spent - self.reserved:
            wanted = BudgetRefused
        self.expect(wanted, lambda: self.workers[worker].reserve(name, account="clinic", amount=amount, claim=claim))
        if wanted is None and takes:
            self.runs[name] = PlainRun(amount, claim)

    @rule(worker=WORKERS, name=RUNS, version=st.sampled_from(["v1", "v1", "v2"]))
    def record_data_version(self, worker: int, name: str, version: str) -> None:
        run = self.runs.get(name)
        same = run is not None and run.version == version
        fresh = run is not None and run.version is None and run.state == "open"
        wanted = None if same or fresh else UsageError
        self.expect(wanted, lambda: self.workers[worker].record_data_version(name, version))
        if run is not None and fresh:
            run.version = version

    @rule(worker=WORKERS, name=RUNS, step=STEPS, amount=st.sampled_from([1, 7, 30]))
    def start(self, worker: int, name: str, step: str, amount: int) -> None:
        run = self.runs.get(name)
        wanted: type[DpflowError] | None = None
        if run is None or run.state != "open" or step in run.outputs:
            wanted = UsageError
        elif run.spent + amount > run.amount:
            wanted = BudgetRefused
        operation = self.expect(
            wanted, lambda: self.workers[worker].start(name, step=step, amount=amount, mechanism={"scale": amount})
        )
        if run is not None and wanted is None:
            run.spent += amount
            run.attempts[step] = run.attempts.get(step, 0) + 1
            assert (operation.attempt, operation.state) == (run.attempts[step], "started")
            self.started.append(operation)

    @rule(worker=WORKERS, which=st.integers(0, 5), output=st.binary(max_size=20))
    def commit(self, worker: int, which: int, output: bytes) -> None:
        if not self.started:
            return
        operation = self.started[-1 - which % len(self.started)]
        run = self.runs[operation.run]
        newest = run.attempts.get(operation.step) == operation.attempt
        possible = run.state == "open" and newest and operation.step not in run.outputs
        self.expect(None if possible else UsageError, lambda: self.workers[worker].commit(operation, output))
        if possible:
            run.outputs[operation.step] = output

    @rule(worker=WORKERS, name=RUNS, release=st.sampled_from([None, "release-1", "release-2"]))
    def settle(self, worker: int, name: str, release: str | None) -> None:
        run = self.runs.get(name)
        again = run is not None and run.state == "settled" and release in {None, run.release}
        possible = again or (run is not None and run.state == "open")
        self.expect(None if possible else UsageError, lambda: self.workers[worker].settle(name, release=release))
        if run is not None and possible and not again:
            run.state, run.release = "settled", release

    @rule(worker=WORKERS, name=RUNS)
    def release_run(self, worker: int, name: str) -> None:
        run = self.runs.get(name)
        possible = run is not None and (run.state == "released" or (run.state == "open" and run.spent == 0))
        self.expect(None if possible else UsageError, lambda: self.workers[worker].release_run(name))
        if run is not None and possible:
            run.state = "released"

    @rule(worker=WORKERS)
    def come_back_after_a_crash(self, worker: int) -> None:
        self.workers[worker].close()
        self.workers[worker] = open_ledger(self.url)

    @invariant()
    def agrees(self) -> None:
        ledger = self.workers[0]
        account = ledger.account("clinic")
        assert (account.spent, account.reserved) == (self.spent, self.reserved)
        found = {run.id: run for run in ledger.runs("clinic")}
        assert found.keys() == self.runs.keys()
        for name, run in self.runs.items():
            real = found[name]
            assert (real.reserved, real.spent, real.state) == (run.amount, run.spent, run.state)
            assert (real.claim, real.data_version, real.release) == (run.claim, run.version, run.release)
            transcript = ledger.transcript(name)
            assert [(operation.step, operation.output) for operation in transcript] == list(run.outputs.items())

    def teardown(self) -> None:
        assert_sound(self.workers[0])
        for worker in self.workers:
            worker.close()
