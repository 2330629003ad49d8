"""Workers race for budgeted tasks, and die in the middle of them: exactly what the account can pay for runs, and nothing that was kept runs again.

    python -m tests.faults.budget_storm race --workers 8 --tasks 200 --cap 77
    python -m tests.faults.budget_storm meet --workers 8 --tasks 5
    python -m tests.faults.budget_storm kills --times 60

A body notes outside the ledger that it runs, before anything else. A race lets all workers try all tasks, each in an order of its own. When they
`meet`, all try the same task, and a body ends only when each of the others has begun it as well or was refused. A worker
of `kills` ends itself with SIGKILL before a statement to the database, or in a body, whichever the drawn number of moments leads to; the next one
then goes on with the same tasks. `--planted NAME` breaks the protocol, to show that this would be seen. Prints a JSON object; the ledger is the
one of the working folder or of DPFLOW_LEDGER_URL, and is created.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dpcore import Budget
from dpcore.errors import BudgetRefused, RunHeld
from dpcore.ledger import Ledger, open_ledger
from dpcore.ledger import ledger as protocol
from dpcore.ledger.store import Store
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours
from dpcore.steward.verify import verify_ledger

NOTES = Path("notes.txt")
PRICE = AMOUNT_OF_ONE // 10
clinic = Budget("clinic")
moments_left = -1
others = 0


def main() -> None:
    """Run one of the two, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("race", "meet", "kills"))
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--cap", type=int, default=77, help="the number of tasks that the account can pay for")
    parser.add_argument("--times", type=int, default=60, help="the number of kills")
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("--planted", choices=tuple(PLANTED))
    arguments = parser.parse_args()
    caps = {
        "race": arguments.cap,
        "meet": arguments.workers * arguments.tasks,
        "kills": 10 * arguments.tasks + arguments.times,
    }
    cap = caps[arguments.kind]
    with open_ledger(create=True) as ledger:
        terms: dict[str, Any] = {"currency": Currency.PURE, "epsilon": cap / 10, "delta": 0.0}
        terms |= {"unit": "patient_id", "neighbours": Neighbours.ADD_REMOVE}
        ledger.open_account("clinic", cap=cap * PRICE, **terms)
    NOTES.touch()
    if arguments.planted:
        PLANTED[arguments.planted]()
    print(json.dumps((kills if arguments.kind == "kills" else race)(arguments)))


def race(arguments: argparse.Namespace) -> dict[str, Any]:
    """Let all workers try all tasks at once."""

    def work(number: int) -> None:
        """Wait for the others, and begin."""
        os.close(go)
        os.read(began, 1)
        tasks = list(range(arguments.tasks))
        if arguments.kind == "meet":
            meet(tasks, arguments.workers)
            return
        random.Random(arguments.seed + number).shuffle(tasks)  # noqa: S311  an order is no secret
        for task in tasks:
            try:
                square(task)
            except (BudgetRefused, RunHeld) as refused:
                note(type(refused).__name__, task)

    began, go = os.pipe()
    workers = [forked(partial(work, number)) for number in range(arguments.workers)]
    begin = time.perf_counter()
    os.close(go)  # all workers wait for the end of this pipe
    codes = [ended(worker) for worker in workers]
    lines = notes()
    return summary(lines) | {
        "failed": sum(map(bool, codes)),
        "refused": count("BudgetRefused", lines),
        "seconds": time.perf_counter() - begin,
    }


def meet(tasks: list[int], workers: int) -> None:
    """Try each task when all others try it."""
    global others  # noqa: PLW0603  what a body waits for
    others = workers
    for task in tasks:
        try:
            square(task)
        except RunHeld as refused:
            note(type(refused).__name__, task)
        wait_for_others(task)


def wait_for_others(task: int) -> None:
    """Wait until every worker has begun a task or was refused."""
    while sum(number == task for _, number in notes()) < others:
        os.sched_yield()


def kills(arguments: argparse.Namespace) -> dict[str, Any]:
    """Let worker after worker die, and the last one finish."""
    drawn = random.Random(arguments.seed)  # noqa: S311  when a test kills is no secret
    execute_mortally()
    deaths = 0
    while True:
        dies_at = drawn.randint(1, 90) if deaths < arguments.times else -1
        code = ended(forked(partial(work_until, dies_at, arguments.tasks, fresh=deaths)))
        if code == 0 and dies_at < 0:
            break
        deaths += code != 0
    return summary(notes()) | {"deaths": deaths}


def work_until(at: int, tasks: int, *, fresh: int) -> None:
    """Do all tasks, those of the last worker again and a new one of this worker, and die at a moment."""
    global moments_left  # noqa: PLW0603  the one thing that all moments share
    moments_left = at
    for task in (*range(max(0, fresh - 2), fresh + 1), *range(1000, 1000 + tasks)):
        if square(task) != task * task:
            sys.exit(3)
        note("kept", task)
        moment()


@clinic.spends(epsilon=0.1, unit="patient_id", name="square of {task}")
def square(task: int) -> int:
    """Note that the body runs, and compute."""
    note("began", task)
    moment()
    wait_for_others(task)
    return task * task


def moment() -> None:
    """Die if the time has come."""
    global moments_left  # noqa: PLW0603  likewise
    moments_left -= 1
    if moments_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def execute_mortally() -> None:
    """Make each statement to the database such a moment."""
    with open_ledger() as ledger:
        kind: type[Store] = type(ledger._store)
    for name in ("execute", "execute_together"):
        plain = getattr(kind, name)

        def mortal(self: Store, *statement: Any, plain: Callable[..., Any] = plain) -> Any:
            moment()
            return plain(self, *statement)

        setattr(kind, name, mortal)


def summary(lines: list[tuple[str, int]]) -> dict[str, Any]:
    """Return how often bodies ran, which ran after they were kept, and what the verified ledger says."""
    kept: set[int] = set()
    again = []
    for what, task in lines:
        if what == "began" and task in kept:
            again.append(task)
        if what == "kept":
            kept.add(task)
    verify_ledger()
    with open_ledger() as ledger:
        runs = ledger.runs("clinic")
        values = [len(ledger.transcript(run.id)) for run in runs]
        spent = ledger.balance("clinic").spent
    bodies = Counter(task for what, task in lines if what == "began")
    return {
        "bodies": bodies.total(),
        "twice": sum(number > 1 for number in bodies.values()),
        "kept": len(kept),
        "again_after_kept": len(again),
        "charges": len(runs),
        "values": sum(values),
        "tasks_with_two_values": sum(
            number > 1
            for number in Counter(run.id.split("/")[0] for run, has in zip(runs, values, strict=True) if has).values()
        ),
        "spent": spent // PRICE,
    }


def note(what: str, task: int) -> None:
    """Add a line to the notes of all workers, at once."""
    handle = os.open(NOTES, os.O_WRONLY | os.O_APPEND)
    os.write(handle, f"{what} {task}\n".encode())
    os.close(handle)


def notes() -> list[tuple[str, int]]:
    """Return all notes in order."""
    lines = (line.split() for line in NOTES.read_text(encoding="ascii").splitlines())
    return [(what, int(task)) for what, task in lines]


def count(what: str, lines: list[tuple[str, int]]) -> int:
    """Return the number of notes of a kind."""
    return sum(kind == what for kind, _ in lines)


def forked(work: Callable[[], object]) -> int:
    """Start a process that does something, and return its id."""
    if process := os.fork():
        return process
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def ended(process: int) -> int:
    """Wait for a process, and return its exit code; negative if a signal has ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _no_lease() -> None:
    """Take a step from whoever works on it."""
    protocol.refuse_if_worked_on = lambda *_, **__: None  # type: ignore[assignment]


def _no_replay() -> None:
    """Forget what was kept."""
    Ledger.operation = lambda *_: None  # type: ignore[assignment,method-assign]


PLANTED = {"no lease": _no_lease, "no replay": _no_replay}

if __name__ == "__main__":
    main()
