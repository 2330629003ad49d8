"""A process of its own that charges a ledger, for the tests of races and of sudden death.

It says "ready", waits for a line, and then works: python ledger_worker.py reserve|start|commit URL NAME CHARGES
"""

import sys
from collections.abc import Callable

from dpcore.errors import BudgetRefused
from dpcore.ledger import Ledger, open_ledger

SHARED_RUN = "shared"
MECHANISM = {"name": "laplace", "sensitivity": 1, "scale": 8}


def output_of(step: str) -> bytes:
    """What the worker commits for a step: from one to ten pages, so that a torn write would show."""
    return step.encode() * (500 + 100 * (len(step) + ord(step[-1]) % 40))


def reserve_one(ledger: Ledger, step: str) -> None:
    ledger.reserve(step, account="clinic", amount=1, claim="claim")


def start_one(ledger: Ledger, step: str) -> None:
    ledger.start(SHARED_RUN, step=step, amount=1, mechanism=MECHANISM)


def granted(ledger: Ledger, steps: list[str], charge: Callable[[Ledger, str], None]) -> int:
    count = 0
    for step in steps:
        try:
            charge(ledger, step)
            count += 1
        except BudgetRefused:
            pass
    return count


def commit_all(ledger: Ledger, steps: list[str]) -> None:
    for step in steps:
        operation = ledger.start(SHARED_RUN, step=step, amount=1, mechanism=MECHANISM)
        ledger.commit(operation, output_of(step))
        say(step)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(work: str, url: str, name: str, charges: str) -> None:
    steps = [f"{name}/{number}" for number in range(int(charges))]
    with open_ledger(url) as ledger:
        say("ready")
        sys.stdin.readline()
        if work == "commit":
            commit_all(ledger, steps)
        else:
            say(str(granted(ledger, steps, reserve_one if work == "reserve" else start_one)))


if __name__ == "__main__":
    main(*sys.argv[1:])
