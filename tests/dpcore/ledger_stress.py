"""The part of the ledger's contract that needs force: races, sudden death, and any history at all."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from dpcore.ledger import EventKind, Ledger
from tests.dpcore.ledger_model import LedgerMachine, assert_sound, opened
from tests.dpcore.ledger_worker import SHARED_RUN, output_of


class Workers:
    """Processes that charge one ledger; see `ledger_worker.py` for what they do and say."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self._running = running

    def tell(self, *lines: str) -> None:
        assert self._running.stdin is not None
        self._running.stdin.writelines(f"{line}\n" for line in lines)
        self._running.stdin.flush()

    def said(self) -> str:
        assert self._running.stdout is not None
        line = self._running.stdout.readline()
        assert line, "the workers ended unasked"
        return line.strip()


@contextmanager
def workers(work: str, url: str, *, charges: int) -> Iterator[Workers]:
    script = Path(__file__).with_name("ledger_worker.py")
    command = [sys.executable, str(script), work, url, str(charges)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        yield Workers(running)


def race(work: str, url: str, *, processes: int, charges: int) -> int:
    """Let all processes go once each of them has the ledger open; return how many charges were granted in all."""
    with workers(work, url, charges=charges) as racing:
        racing.tell(*(f"fork racer-{number}" for number in range(processes)))
        assert [racing.said() for _ in range(processes)] == ["ready"] * processes
        racing.tell("go")
        return sum(int(racing.said()) for _ in range(processes))


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
        with workers("commit", url, charges=1_000) as mortal:
            mortal.tell("go")
            for number in range(20):
                mortal.tell(f"fork life-{number}")
                assert mortal.said() == "ready"
                reported.extend(mortal.said() for _ in range(moments.randrange(1, 6)))
                death = time.perf_counter() + moments.uniform(0, 0.01)
                while time.perf_counter() < death:
                    pass
                mortal.tell("kill")
                reported.extend(iter(mortal.said, "dead"))
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
