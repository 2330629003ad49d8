"""A process whose children charge a ledger, for the tests of races and of sudden death.

It is a script: python ledger_worker.py reserve|start|commit URL CHARGES. On its input, "fork NAME" makes a child, which
opens the ledger, says "ready" and waits for "go" (once given, it holds for all later children); "kill" ends the last
child without warning and says "dead"; the end of the input ends all of them. Children forked from one process need not
import everything again.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from dpcore.errors import BudgetRefused
from dpcore.ledger import Ledger, open_ledger

SHARED_RUN = "shared"
MECHANISM = {"name": "laplace", "sensitivity": 1, "scale": 8}


def output_of(step: str) -> bytes:
    """What a child commits for a step: several pages, so that a torn write would show."""
    return step.encode() * (500 + 100 * (ord(step[-1]) % 40))


def reserve_one(ledger: Ledger, step: str) -> None:
    ledger.reserve(step, account="clinic", amount=1, claim="claim")


def start_one(ledger: Ledger, step: str) -> None:
    ledger.start(SHARED_RUN, step=step, amount=1, mechanism=MECHANISM)


def commit_one(ledger: Ledger, step: str) -> None:
    operation = ledger.start(SHARED_RUN, step=step, amount=1, mechanism=MECHANISM)
    ledger.commit(operation, output_of(step))
    say(step)


WORKS: dict[str, Callable[[Ledger, str], None]] = {"reserve": reserve_one, "start": start_one, "commit": commit_one}


def say(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def work_through(charge: Callable[[Ledger, str], None], url: str, steps: list[str], *, gate: int) -> None:
    granted = 0
    with open_ledger(url) as ledger:
        say("ready")
        os.read(gate, 1)
        for step in steps:
            try:
                charge(ledger, step)
                granted += 1
            except BudgetRefused:
                pass
    say(str(granted))


def live(charge: Callable[[Ledger, str], None], url: str, steps: list[str], *, gate: int) -> NoReturn:
    try:
        work_through(charge, url, steps, gate=gate)
    except BaseException:  # noqa: BLE001  a child must never return into its parent's loop
        traceback.print_exc()
        say("failed")
    os._exit(0)


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(work: str, url: str, charges: str) -> None:
    children: list[int] = []
    gate, opener = os.pipe()
    for line in sys.stdin:
        command, _, name = line.strip().partition(" ")
        if command == "fork":
            child = os.fork()
            if child == 0:
                if opener >= 0:
                    os.close(opener)
                live(WORKS[work], url, [f"{name}/{number}" for number in range(int(charges))], gate=gate)
            children.append(child)
        elif command == "go":
            os.close(opener)  # whoever waits at the gate reads its end, all at once
            opener = -1
        elif command == "kill":
            end(children.pop())
            say("dead")
    for child in children:
        end(child)


if __name__ == "__main__":
    main(*sys.argv[1:])
