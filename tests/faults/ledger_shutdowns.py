"""PostgreSQL itself ends without warning, again and again, while several processes charge the same ledger."""

import itertools
import multiprocessing
import os
import random
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.ledger_places import PostgresPlaces
from benchmarks.ledger_scenario import MONTHS, Job, Journal, Line, Step, open_accounts, read_journal, work
from dpcore.errors import LedgerError
from dpcore.ledger import EventKind, Ledger, open_ledger
from tests.faults.ledger_kills import Tally, errors_of, look
from tests.faults.ledger_mortal import born
from tests.faults.ledger_oracle import Fault, Finding, examine_end
from tests.faults.ledger_planted import sound

WORKERS = 4
STEPS = tuple(Step(f"step-{number}", 100 + number) for number in range(4))
PACE = (20, 200)
"""How many operations are committed between two shutdowns, at least and at most."""


class Shutdowns:
    """Shuts the server of one store down while its ledger is in use."""

    def __init__(self, places: PostgresPlaces, *, times: int, tally: Tally) -> None:
        self._server = places.server
        self._place = places.fresh()
        self._times = times
        self._tally = tally
        forked = multiprocessing.get_context("fork")
        self._up, self._enough = forked.Event(), forked.Event()

    def shut_down(self, *, seed: int) -> None:
        """Shut down and start again as often as asked, each at a random moment of the load; look at the ledger each time."""
        rng = random.Random(seed)  # noqa: S311  moments need no secrecy
        with sound(self._place.url) as ledger:
            open_accounts(ledger, Journal(self._journal(0)))
        self._up.set()
        with self._workers() as committed:
            for number in range(1, self._times + 1):
                _wait_for(rng.randint(*PACE), committed)
                select.select([], [], [], rng.uniform(0, 0.01))  # not always the moment after some commit
                self._up.clear()
                self._server.stop(immediate=True)
                self._server.start()
                self._tally.kills["shutdown"] += 1
                self._look(when=f"postgresql, shutdown {number}", ended=False)
                self._up.set()
            _wait_for(PACE[0], committed)
            self._enough.set()
        self._look(when="postgresql, after all shutdowns", ended=True)

    @contextmanager
    def _workers(self) -> Iterator[int]:
        """Let the workers work; yield where they say how many operations they committed; wait for them at the end."""
        read, write = os.pipe()
        os.set_blocking(write, False)  # a worker goes on while nobody counts
        numbers = range(1, WORKERS + 1)
        workers = {
            number: born(lambda n=number: self._life(n, write), errors=self._errors(number)) for number in numbers
        }
        os.close(write)
        try:
            yield read
        except BaseException:
            for worker in workers.values():
                worker.kill()
            raise
        finally:
            os.close(read)
            for number, worker in workers.items():
                if code := worker.reap():
                    what = f"worker {number} ended with {code}; {errors_of(self._errors(number))}"
                    self._tally.found("postgresql, shutdowns", [Finding(Fault.BROKEN, what)])

    def _life(self, worker: int, said: int) -> None:
        """Do one job after the other until it is enough."""
        journal = Journal(self._journal(worker))
        with open_ledger(self._place.url) as ledger:
            for number in itertools.count(1):
                job = self._job(worker, number)
                self._insist(ledger, journal, job)
                with suppress(OSError):  # nobody counts just now, or any more
                    os.write(said, b"." * len(job.steps))
                if self._enough.is_set():
                    return

    def _insist(self, ledger: Ledger, journal: Journal, job: Job) -> None:
        """Work on a job, and take it up again after each shutdown."""
        for lives_left in reversed(range(job.spare)):
            try:
                work(ledger, journal, job)
            except LedgerError:
                if not lives_left:
                    raise
                self._up.wait()
            else:
                return

    def _job(self, worker: int, number: int) -> Job:
        run, spare = f"worker-{worker}-run-{number}", self._times + 2
        if number % 2:
            return Job(run, "survey", STEPS, spare=spare)
        return Job(run, "visits", STEPS, blocks=MONTHS[:3], analyst="maria", purpose="quarterly", spare=spare)

    def _look(self, *, when: str, ended: bool) -> None:
        """Hold the ledger against all journals; in the end against what was planned, too."""
        told = {worker: read_journal(self._journal(worker)) for worker in range(WORKERS + 1)}
        lines = [line for each in told.values() for line in each]
        with open_ledger(self._place.url) as ledger:
            look(ledger, lines, tally=self._tally, when=when)
            if ended:
                jobs = [
                    self._job(worker, number) for worker in told for number in range(1, _reserved(told[worker]) + 1)
                ]
                found = examine_end(ledger, jobs, deaths=self._times, workers=WORKERS)
                self._tally.found(when, found)
                self._tally.count(lines)

    def _journal(self, worker: int) -> Path:
        return self._place.folder / f"journal-{worker}"

    def _errors(self, worker: int) -> Path:
        return self._place.folder / f"errors-{worker}"


def _reserved(lines: list[Line]) -> int:
    """Return how many jobs a worker has begun."""
    return len({line["run"] for line in lines if line["what"] == EventKind.RESERVED})


def _wait_for(operations: int, committed: int) -> None:
    """Wait until so many more operations are committed, or no worker is left."""
    while operations > 0 and (said := os.read(committed, operations)):
        operations -= len(said)
