"""The part of the ledger's contract that needs force: races and sudden death."""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import pytest

from dpcore.ledger import Balance, EventKind, Ledger
from tests.campaign import often
from tests.dpcore.ledger.fixtures import assert_sound, opened, opened_by_month
from tests.dpcore.ledger.store import LedgerStoreTests
from tests.dpcore.ledger.worker import BLOCKS, DUEL_STEPS, SHARED_RUN, begin, output_of
from tests.processes import forked


class Workers:
    """Processes that charge one ledger; see `worker.py` for what they do and say."""

    def __init__(self, heard: TextIO, words: TextIO) -> None:
        self._heard, self._words = heard, words

    def tell(self, *lines: str) -> None:
        self._heard.writelines(f"{line}\n" for line in lines)
        self._heard.flush()

    def said(self) -> str:
        line = self._words.readline()
        assert line, "the workers ended unasked"
        return line.strip()


@contextmanager
def workers(work: str, url: str, *, charges: int) -> Iterator[Workers]:
    with TemporaryDirectory() as folder:
        pipes = [Path(folder, name) for name in ("input", "output")]
        for pipe in pipes:
            os.mkfifo(pipe)
        places = {name: value for name, value in os.environ.items() if name.startswith("DPFLOW_")}
        running = forked().Process(target=begin, args=(folder, places, work, url, charges))
        running.start()
        with pipes[0].open("w", encoding="utf-8") as heard, pipes[1].open(encoding="utf-8") as words:
            yield Workers(heard, words)
        running.join()


def race(work: str, url: str, *, processes: int, charges: int) -> tuple[int, list[str]]:
    """Let all processes go once each of them has the ledger open; return how many charges were granted, and what they said."""
    with workers(work, url, charges=charges) as racing:
        racing.tell(*(f"fork racer-{number}" for number in range(processes)))
        assert [racing.said() for _ in range(processes)] == ["ready"] * processes
        racing.tell("go")
        granted, said = [], []
        while len(granted) < processes:
            line = racing.said()
            assert line != "failed", "a process failed, and says nothing more"
            (granted if line.isdecimal() else said).append(line)
        return sum(map(int, granted)), said


class LedgerStress(LedgerStoreTests):
    @pytest.mark.campaign
    def test_eight_processes_that_reserve_at_once_are_granted_exactly_the_cap(self, ledger: Ledger, url: str) -> None:
        free, charges = often(100, campaign=1_000), often(20, campaign=200)
        if free < 1_000:
            ledger.reserve("earlier", account="clinic", amount=1_000 - free, claim="claim")
        assert race("reserve", url, processes=8, charges=charges)[0] == free
        assert ledger.balance("clinic") == Balance(cap=1_000, spent=0, reserved=1_000)
        assert_sound(ledger)

    @pytest.mark.campaign
    def test_eight_processes_on_many_blocks_in_any_order_are_granted_all_or_nothing(
        self, ledger: Ledger, url: str
    ) -> None:
        cap, charges = often(20, campaign=100), often(8, campaign=40)
        opened_by_month(ledger, *BLOCKS, name="days", cap=cap)
        granted, _ = race("reserve_blocks", url, processes=8, charges=charges)
        runs = ledger.runs("days")
        assert 0 < granted == len(runs) < 8 * charges
        charged: Counter[str] = Counter()
        for run in runs:
            blocks = ledger.blocks_of(run.id)
            assert len(blocks) == 50
            charged.update(dict.fromkeys(blocks, run.reserved))
        used = {block.name: block.used for block, _ in ledger.blocks("days")}
        assert used == {name: charged[name] for name in BLOCKS}
        assert cap - 3 < max(used.values()) <= cap
        assert_sound(ledger)

    @pytest.mark.campaign
    def test_eight_processes_on_one_run_charge_exactly_what_it_reserved(self, ledger: Ledger, url: str) -> None:
        amount, charges = often(50, campaign=250), often(10, campaign=100)
        ledger.reserve(SHARED_RUN, account="clinic", amount=amount, claim="claim")
        ledger.lease(SHARED_RUN)
        assert race("charge", url, processes=8, charges=charges)[0] == amount
        assert ledger.balance("clinic") == Balance(cap=1_000, spent=amount, reserved=0)
        assert_sound(ledger)

    @pytest.mark.campaign
    def test_of_two_living_workers_never_both_commit_a_step(self, ledger: Ledger, url: str) -> None:
        opened(ledger, "wide", cap=10**9)
        ledger.reserve(SHARED_RUN, account="wide", amount=10**9, claim="claim")
        granted, said = race("duel", url, processes=2, charges=DUEL_STEPS)
        outputs = {operation.step: operation.output.decode() for operation in ledger.transcript(SHARED_RUN)}
        assert granted == len(said) == len(outputs) == DUEL_STEPS
        assert outputs == {line.partition(" ")[2]: line for line in said}
        assert len({line.partition(" ")[0] for line in said}) == 2, "a duel takes two"
        self._fences_hold(ledger)
        assert_sound(ledger)

    def _fences_hold(self, ledger: Ledger) -> None:
        """Every step was charged and committed under the newest lease of its moment."""
        fence, charged = 0, {}
        for event in ledger.history("wide"):
            body = event.details
            if event.kind is EventKind.LEASED:
                assert body["fence"] == fence + 1
                fence += 1
            elif event.kind is EventKind.CHARGED:
                assert body["fence"] == fence
                charged[body["step"]] = body["attempt"], fence
            elif event.kind is EventKind.COMMITTED:
                assert charged[body["step"]] == (body["attempt"], fence)
        assert fence > DUEL_STEPS

    @pytest.mark.campaign
    def test_a_killed_process_loses_nothing_that_commit_reported(self, ledger: Ledger, url: str) -> None:
        opened(ledger, "wide", cap=10**9)
        ledger.reserve(SHARED_RUN, account="wide", amount=10**9, claim="claim")
        moments = random.Random(20)  # noqa: S311  moments of death are no secret
        reported: list[str] = []
        lives = often(5, campaign=20)
        with workers("commit", url, charges=1_000) as mortal:
            mortal.tell("go")
            for number in range(lives):
                mortal.tell(f"fork life-{number}")
                assert mortal.said() == "ready"
                reported.extend(mortal.said() for _ in range(moments.randrange(1, 6)))
                death = time.perf_counter() + moments.uniform(0, 0.01)
                while time.perf_counter() < death:
                    pass
                mortal.tell("kill")
                reported.extend(iter(mortal.said, "ended"))
        transcript = {operation.step: operation.output for operation in ledger.transcript(SHARED_RUN)}
        assert len(reported) == len(set(reported)) >= lives
        assert transcript.keys() >= set(reported)
        assert all(output == output_of(step) for step, output in transcript.items())
        kinds = Counter(event.kind for event in ledger.history("wide"))
        assert kinds[EventKind.LEASED] == lives
        assert ledger.balance("wide").spent == kinds[EventKind.CHARGED] >= kinds[EventKind.COMMITTED] == len(transcript)
        assert_sound(ledger)
