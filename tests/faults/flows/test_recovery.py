"""Runs that are cancelled, killed, retried, doubled or cut off from their ledger go on where they were, and never draw anything again."""

import logging
import re
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect import get_client
from prefect.states import Crashed

import dpcore
import dpcore.ledger.ledger as protocol
from dpcore.curator.curator import Curator
from dpcore.ledger import open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.runs.rounds import Rounds
from dpcore.runs.synthesis import Synthesis
from dpcore.steward.verify import verify_ledger
from flows.tasks.retry import retry_infrastructure
from tests.campaign import often
from tests.conftest import Workspace
from tests.flows.connections import GATE
from tests.flows.deployed import Deployed, deploy, started, transcript
from tests.flows.server.gated import STEP
from tests.flows.stack import wait_for
from tests.postgres import PostgresServer

pytestmark = pytest.mark.prefect

ROUNDS = [f"round-00{number}/{action}" for number in range(1, 5) for action in ("select", "measure")]
ONCE = Counter(["rows-lost", "one-way/01-sex", "one-way/02-age", "one-way/03-smoker", "one-way/04-city", *ROUNDS])
"""What a run of the workspace's spec pays for if nothing is drawn again."""


@pytest.fixture
def deployed(workspace: Workspace, prefect_server: str) -> Deployed:
    """The deployment of the workspace's spec."""
    return deploy(workspace, prefect_server)


def fail_in_round(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the update of a round fail, once."""
    update = Rounds.update
    failures = [number]

    def failing(self: Rounds, number: int, measurement: Measurement | None) -> None:
        if number in failures:
            failures.remove(number)
            raise ValueError(number)
        update(self, number, measurement)

    monkeypatch.setattr(Rounds, "update", failing)


def test_a_retry_of_a_completed_run_changes_nothing(
    workspace: Workspace, deployed: Deployed, tree_of: Callable[[Path], dict[str, bytes]]
) -> None:
    workspace.open_account()
    run = deployed.start()
    assert deployed.execute(run).name == "Completed"
    with open_ledger() as ledger:
        head = ledger.head()
    release = tree_of(workspace.folder / "releases")
    assert release
    for forced in (False, True):
        deployed.retry(run, forced=forced)
        assert deployed.execute(run).name == "Completed"
    with open_ledger() as ledger:
        assert ledger.head() == head
    assert tree_of(workspace.folder / "releases") == release
    assert started() == ONCE


def test_a_retry_of_a_failed_run_goes_on_from_the_transcript(
    workspace: Workspace, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.open_account()
    fail_in_round(3, monkeypatch)
    run = deployed.start()
    assert deployed.execute(run).name == "Failed"
    before = transcript(run)
    assert [step for step, _ in before][-1] == "round-003/measure"
    deployed.retry(run)
    assert deployed.execute(run).name == "Completed"
    assert transcript(run)[: len(before)] == before
    assert started() == ONCE


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug: no result but that of the first step is looked up, and what an attempt pays for has a name of its own."""
    stored, charge_then, attempts = Curator._stored, Curator._charge_then, count()

    def forgetful(self: Curator, step: str, *arguments: Any, **named: Any) -> bytes:
        attempt = vars(self).setdefault(
            "attempt", next(attempts)
        )  # an id would be that of an earlier object in the same place
        return charge_then(self, re.sub(r"(\d+)", rf"\g<1>{attempt}", step, count=1), *arguments, **named)

    monkeypatch.setattr(Curator, "_stored", lambda self, step: stored(self, step) if step == "rows-lost" else None)
    monkeypatch.setattr(Curator, "_charge_then", forgetful)


def lose_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug: each attempt is a run of its own."""
    prepare = Synthesis.__init__

    def nameless(self: Synthesis, declaration: Any, *, run_id: str, **more: Any) -> None:
        prepare(self, declaration, run_id=str(uuid4()), **more)

    monkeypatch.setattr(Synthesis, "__init__", nameless)


@pytest.mark.parametrize("plant", [forget, lose_identity])
def test_a_flow_that_draws_again_would_be_noticed(
    workspace: Workspace,
    deployed: Deployed,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    workspace.open_account()
    plant(monkeypatch)
    fail_in_round(3, monkeypatch)
    run = deployed.start()
    deployed.execute(run)
    deployed.retry(run)
    assert deployed.execute(run).name == "Completed"
    assert started() != ONCE
    assert started().total() > ONCE.total()


@pytest.mark.campaign
def test_of_several_processes_with_one_run_one_draws_and_the_next_goes_on_if_it_is_killed(
    workspace: Workspace, prefect_server: str, tmp_path: Path
) -> None:
    workspace.open_account()
    gated = deploy(workspace, prefect_server, entrypoint="tests.flows.server.gated.synthesize")
    run = gated.start()
    gate = tmp_path / "gate"
    gate.mkdir()

    def those(what: str) -> set[int]:
        return {int(path.stem) for path in gate.glob(f"*.{what}")}

    with ExitStack() as running:
        processes: dict[int, subprocess.Popen[str]] = {}
        for _ in range(often(2, campaign=3)):
            process = running.enter_context(gated.process(run, **{GATE: str(gate)}))
            running.callback(process.kill)
            processes[process.pid] = process
        wait_for(lambda: those("paid") | those("waits") == set(processes), "all of them")
        (first,), before = those("paid"), transcript(run)
        assert first not in those("waits")
        processes[first].send_signal(signal.SIGKILL)
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(run, Crashed())  # as the worker whose process it was reports it
        wait_for(lambda: len(those("paid")) == 2, "a process that goes on")
        (gate / "open").touch()
        outputs = {pid: process.communicate()[0] for pid, process in processes.items()}
    codes = {pid: process.returncode for pid, process in processes.items()}
    assert codes == dict.fromkeys(processes, 0) | {first: -signal.SIGKILL}, outputs
    assert gated.state(run).name == "Completed"
    assert len(those("paid")) == 2
    assert started() == ONCE + Counter([STEP])
    assert transcript(run)[: len(before)] == before
    assert len(list(workspace.folder.glob("releases/visits/*/manifest.json"))) == 1
    assert verify_ledger().runs == 1


@contextmanager
def locked(ledger: Path) -> Iterator[None]:
    """Hold the lock of a ledger's file, as a backup that takes its time does."""
    with closing(sqlite3.connect(ledger, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    """Stop the database, as for an upgrade."""
    server.stop(immediate=False)
    try:
        yield
    finally:
        server.start()


def test_a_worker_that_has_lost_its_run_waits_for_the_other_and_tells_the_same(
    workspace: Workspace, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.open_account()
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    machine, _, born = protocol.this_worker().rsplit(" ", 2)
    # The first lease is that of a process which is no more.
    real, names = protocol.this_worker(), [f"{machine} {gone.pid} {born}"]
    monkeypatch.setattr(protocol, "this_worker", lambda: names.pop() if names else real)
    waits: list[float] = []
    monkeypatch.setitem(retry_infrastructure.__kwdefaults__, "sleep", waits.append)
    run = deployed.start()
    at = At("round 2/4", lambda: dpcore.synthesize(workspace.spec, run_id=str(run), resume=True))
    logging.getLogger("dpcore.progress").addHandler(at)
    try:
        assert deployed.execute(run).name == "Completed"
    finally:
        logging.getLogger("dpcore.progress").removeHandler(at)
    assert waits == [5]
    assert started() == ONCE
    assert len(list(workspace.folder.glob("releases/visits/*/manifest.json"))) == 1


class At(logging.Handler):
    """Does something, once, when a certain line of progress is logged."""

    def __init__(self, line: str, action: Callable[[], object]) -> None:
        super().__init__()
        self._line, self._action = line, [action]

    def emit(self, record: logging.LogRecord) -> None:
        if self._action and record.getMessage().startswith(self._line):
            self._action.pop()()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_run_waits_for_its_ledger_and_goes_on(
    workspace: Workspace,
    deployed: Deployed,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
) -> None:
    monkeypatch.setenv("DPFLOW_REGISTRY", str(workspace.folder / ".dpflow" / "registry"))
    if store == "sqlite":
        file = workspace.folder / "ledger.sqlite"
        monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{file}")
        monkeypatch.setattr("dpcore.ledger.sqlite.store.PATIENCE_SECONDS", 0.1)
        outage = locked(file)
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        monkeypatch.setenv("DPFLOW_LEDGER_URL", server.new_database())
        outage = stopped(server)
    workspace.open_account()
    waits: list[float] = []
    with ExitStack() as broken:
        at = At("round 2/4", lambda: broken.enter_context(outage))

        def back_again(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                broken.close()

        monkeypatch.setitem(retry_infrastructure.__kwdefaults__, "sleep", back_again)
        logging.getLogger("dpcore.progress").addHandler(at)
        try:
            run = deployed.start()
            assert deployed.execute(run).name == "Completed"
        finally:
            logging.getLogger("dpcore.progress").removeHandler(at)
    assert waits == [5, 20]
    assert started() == ONCE
    assert [step for step, _ in transcript(run)] == list(ONCE)
    assert "the ledger can't be used" in deployed.log(run)
