"""The part of the ledger's contract that needs force: races, sudden death, and any history at all."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from dpcore.ledger import EventKind, Ledger
from tests.dpcore.ledger_model import LedgerMachine, assert_sound, opened
from tests.dpcore.ledger_worker import SHARED_RUN, output_of


@contextmanager
def worker(work: str, url: str, name: str, *, charges: int) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).with_name("ledger_worker.py")
    command = [sys.executable, str(script), work, url, name, str(charges)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def said(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def go(running: subprocess.Popen[str]) -> None:
    assert running.stdin is not None
    running.stdin.write("go\n")
    running.stdin.flush()


def race(work: str, url: str, *, processes: int, charges: int) -> int:
    """Let all workers go once each of them has the ledger open; return how many charges were granted in all."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(worker(work, url, f"worker-{number}", charges=charges)) for number in range(processes)
        ]
        assert [said(each) for each in running] == ["ready"] * processes
        for each in running:
            go(each)
        return sum(int(said(each)) for each in running)


class LedgerStress:
    """Part of `LedgerContract`, which provides the fixtures."""

    def test_eight_processes_times_400_reservations_are_granted_exactly_the_cap(self, ledger: Ledger, url: str) -> None:
        assert race("reserve", url, processes=8, charges=400) == 1_000
        assert ledger.account("clinic").reserved == 1_000
        assert_sound(ledger)

    def test_eight_processes_on_one_run_start_exactly_what_it_reserved(self, ledger: Ledger, url: str) -> None:
        ledger.reserve(SHARED_RUN, account="clinic", amount=250, claim="claim")
        assert race("start", url, processes=8, charges=100) == 250
        assert (ledger.account("clinic").spent, ledger.account("clinic").reserved) == (250, 0)
        assert_sound(ledger)

    def test_a_killed_process_loses_nothing_that_commit_reported(self, ledger: Ledger, url: str) -> None:
        opened(ledger, "wide", cap=10**9)
        ledger.reserve(SHARED_RUN, account="wide", amount=10**9, claim="claim")
        moments = random.Random(20)  # noqa: S311  moments of death are no secret
        reported: list[str] = []
        for number in range(20):
            with worker("commit", url, f"life-{number}", charges=1000) as running:
                assert said(running) == "ready"
                go(running)
                reported.extend(said(running) for _ in range(moments.randrange(1, 6)))
                death = time.perf_counter() + moments.uniform(0, 0.01)
                while time.perf_counter() < death:
                    pass
                running.kill()
                assert running.stdout is not None
                reported.extend(running.stdout.read().split())
        transcript = {operation.step: operation.output for operation in ledger.transcript(SHARED_RUN)}
        assert len(reported) == len(set(reported)) >= 20
        assert transcript.keys() >= set(reported)
        assert all(output == output_of(step) for step, output in transcript.items())
        kinds = Counter(event.kind for event in ledger.history("wide"))
        assert ledger.account("wide").spent == kinds[EventKind.STARTED] >= kinds[EventKind.COMMITTED] == len(transcript)
        assert_sound(ledger)

    def test_any_history_of_two_workers_agrees_with_a_plain_model(self, new_url: Callable[[], str]) -> None:
        run_state_machine_as_test(
            lambda: LedgerMachine(new_url()),  # type: ignore[arg-type] # any factory will do
            settings=settings(max_examples=30, stateful_step_count=40, deadline=None, database=None),
        )
