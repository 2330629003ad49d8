"""The soak itself: a burst of runs, workers that are killed while they last, and a calm in which everything has to come to an end."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil

from flows.deploy.automations import CRASHED_SECONDS, MOST_STARTS
from tests.faults.soak_stack import Stack, until

PER_WORKER = 2
"""How many runs are executed at a time, for each worker."""

TICK_SECONDS = 1.0
AHEAD_SECONDS = 2.0, 0.05
"""How far ahead the moment of the burst is, and how much further for each run, since they have to be there by then."""
PENDING_SECONDS = 20.0
"""After this long a run that was taken and has no process is lost: its worker was killed in between."""

GIVEN_UP_SECONDS = 6 * CRASHED_SECONDS
"""After this long the automation does not let a crashed run go on any more, and whoever runs the soak does."""

SEED = 20261115
OVERDUE = 2.0
"""So many times the usual wait after the last kill, the next does not wait any longer for a run of the right age."""

ENDED = {"COMPLETED", "FAILED", "CANCELLED"}


@dataclass
class Storm:
    """Runs of some deployments, and what was done to their workers."""

    stack: Stack
    names: Sequence[str]
    kill_seconds: float
    most_kills: int | None
    life: float | None
    by_hand: bool
    deadline: float
    kills: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    died: int = 0
    runs: list[str] = field(default_factory=list)
    _workers: dict[int, int] = field(default_factory=dict)
    _killed: set[str] = field(default_factory=set)
    _begin: float = 0.0
    _room: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(SEED))  # noqa: S311  moments, no secrets

    @property
    def at_once(self) -> int:
        """How many runs are to be executed at a time."""
        return PER_WORKER * self.stack.workers

    def burst(self, runs: int) -> None:
        """Start the workers, and schedule all runs for one moment."""
        for worker in range(self.stack.workers):
            self._workers[worker] = self.stack.start_worker(worker)
        until(
            lambda: self.stack.online() >= self.stack.workers,
            "the workers",
            alive=lambda: all(map(_runs, self._workers.values())),
            log=self.stack.mark(0) / "log",
        )
        self._make_room()
        deployments = [self.stack.api("GET", f"deployments/name/synthesize/{name}")["id"] for name in self.names]
        least, each = AHEAD_SECONDS
        ahead = least + each * runs
        self._begin = time.monotonic() + ahead
        moment = datetime.now(UTC) + timedelta(seconds=ahead)
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": moment.isoformat()}}
        for number in range(runs):
            path = f"deployments/{deployments[number % len(deployments)]}/create_flow_run"
            self.runs.append(self.stack.api("POST", path, {"state": state, "tags": ["soak"]})["id"])

    def rage(self) -> None:
        """Kill worker after worker until hardly a run is left, or there were as many kills as wanted.

        The first run is let live: it tells how long a run takes on this machine. A worker is killed when its oldest run is of an
        age between none and that, so that deaths come at all moments of a run; and not more often than twice in that time, since
        on a slow machine none would ever end.
        """
        due, moment = self._begin, self._random.random()
        while time.monotonic() < self.deadline:
            left = self._left()
            enough = left <= self.at_once if self.most_kills is None else self.kills.total() >= self.most_kills
            if not left or (enough and self.kills):
                return
            self._revive()
            self._make_room()
            now = time.monotonic()
            if self.life is None and left < len(self.runs):
                self.life = now - self._begin
            wait = max(self.kill_seconds, (self.life or 0) / 2)
            age = moment * (self.life or 0) if now < due + (OVERDUE - 1) * wait else 0
            if self.life is not None and now >= due and self._kill(age):
                due, moment = now + wait, self._random.random()
            time.sleep(TICK_SECONDS)

    def calm(self) -> None:
        """Wait until every run has ended; what the server has given up is tried again, by hand also what it has not noticed yet."""
        while time.monotonic() < self.deadline:
            self._revive()
            dead = self._make_room()
            crashed = self.stack.runs("CRASHED")
            given_up = [run["id"] for run in crashed if _age(run) > GIVEN_UP_SECONDS]
            for run in {*given_up, *(dead if self.by_hand else ())}:
                self.stack.retry(run)
                self._killed.discard(run)
                self.retries += 1
            if not crashed and not self._left():
                return
            time.sleep(TICK_SECONDS)

    def _left(self) -> int:
        return len(self.runs) - len(self.stack.runs(*ENDED))

    def _kill(self, age: float) -> bool:
        """Kill the next worker, with its runs or alone, once its oldest run is of an age; return whether that was done."""
        number = self.kills.total()
        worker, alone = number % self.stack.workers, number // self.stack.workers % 2 == 1
        found = self.stack.processes(worker)
        began = [process.create_time() for process in found if process.pid != self._workers[worker]]
        if not began or time.time() - min(began) < age:
            return False
        if not alone:
            self._killed |= self.stack.alive(worker)
        for process in found:
            if not alone or process.pid == self._workers[worker]:
                _kill(process)
        self.kills["worker" if alone else "group"] += 1
        self._workers[worker] = self.stack.start_worker(worker)
        return True

    def _revive(self) -> None:
        """Start a worker again that has ended by itself, which none should."""
        for worker, pid in self._workers.items():
            if not _runs(pid):
                self.died += 1
                self._workers[worker] = self.stack.start_worker(worker)

    def _make_room(self) -> list[str]:
        """Let so many runs be executed, and return the dead ones.

        A dead run holds its place in the pool, and in the queue of its account, until it is noticed; it does not count here.
        """
        alive = set().union(*map(self.stack.alive, self._workers))
        dead = [
            run["id"]
            for run in self.stack.runs("RUNNING", "PENDING")
            if run["id"] not in alive
            and (run["state_type"] == "RUNNING" or run["id"] in self._killed or _age(run) > PENDING_SECONDS)
        ]
        if self.at_once + len(dead) != self._room:
            self._room = self.at_once + len(dead)
            self.stack.limit(self._room)
        return dead


def history(stack: Stack, runs: Sequence[str]) -> dict[str, int]:
    """Count what happened to the runs, as the server knows it."""
    counts: Counter[str] = Counter()
    for run in runs:
        states = stack.states(run)
        counts["crashes"] += sum(state["type"] == "CRASHED" for state in states)
        counts["starts"] += sum(state["name"] == "Running" for state in states)
        counts["lost"] += sum("Picked up by a worker" in (state["message"] or "") for state in states)
        counts["given_up"] += sum(state["name"] == "Running" for state in states) >= MOST_STARTS
    return {key: counts[key] for key in ("crashes", "starts", "lost", "given_up")}


def _age(run: dict[str, Any]) -> float:
    changed = datetime.fromisoformat(run["state"]["timestamp"])
    return (datetime.now(UTC) - changed).total_seconds()


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
