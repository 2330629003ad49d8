"""A process whose children charge a ledger, for the tests of races and of sudden death.

It is forked, and named two pipes: its input and its output. On its input, "fork NAME" makes a child, which opens the ledger,
says "ready" and waits for "go" (once given, it holds for all later children); in the end it says how many of its charges
were granted. "kill" ends the last child without warning, "wait" waits until it ends by itself, and both say "ended"; the
end of the input ends all of them. Children forked from one process need not import everything again.
"""

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from dpcore.errors import BudgetRefused, UsageError
from dpcore.ledger import Lease, Ledger, open_ledger
from dpcore.ledger import ledger as protocol

SHARED_RUN = "shared"
MECHANISM = {"name": "laplace", "sensitivity": 1, "scale": 8}
LONG = bool(os.environ.get("DPFLOW_CAMPAIGN"))
ACROSS = 200 if LONG else 60
BLOCKS = [f"day-{number:03}" for number in range(200)]
DUEL_STEPS = 50 if LONG else 12
LARGE = bytes(range(256)) * 5000

Charge = Callable[[str], bool]
"""Do one step; say whether it was granted."""


def output_of(step: str) -> bytes:
    """What a child commits for a step: several pages, so that a torn write would show."""
    return step.encode() * (500 + 100 * (ord(step[-1]) % 40))


def reserve(ledger: Ledger) -> Charge:
    """One run for each step, of one unit."""
    return lambda step: bool(ledger.reserve(step, account="clinic", amount=1, claim="claim"))


def reserve_blocks(ledger: Ledger) -> Charge:
    """One run for each step, in 50 blocks in any order, for an amount of one to three."""

    def charge(step: str) -> bool:
        chosen = random.Random(step)  # noqa: S311  which blocks a test charges is no secret
        blocks = chosen.sample(BLOCKS, 50)
        return bool(ledger.reserve(step, account="days", amount=chosen.randint(1, 3), claim="claim", blocks=blocks))

    return charge


def reserve_across(ledger: Ledger) -> Charge:
    """One run for each step, of one unit in one of many blocks, under a cap across them."""

    def charge(step: str) -> bool:
        block = random.Random(step).choice(BLOCKS)  # noqa: S311  which block a test charges is no secret
        return bool(ledger.reserve(step, account="visits", amount=1, claim="claim", blocks=[block]))

    return charge


def reserve_across_unlocked(ledger: Ledger) -> Charge:
    """Do the same with a planted bug: the cap across blocks is looked at once, before any transaction that charges it."""
    protocol._require_across = lambda payer, amount: None
    return reserve_across(ledger)


def charge(ledger: Ledger) -> Charge:
    """All children share the one lease, of which they know the fence."""
    lease = Lease(SHARED_RUN, ledger.run(SHARED_RUN).fence)
    return lambda step: bool(ledger.charge(lease, step=step, amount=1, mechanism=MECHANISM))


def commit(ledger: Ledger) -> Charge:
    """Each child takes the run from the one before it, and says which steps are committed."""
    lease = ledger.lease(SHARED_RUN)

    def charge(step: str) -> bool:
        operation = ledger.charge(lease, step=step, amount=1, mechanism=MECHANISM)
        ledger.commit(operation, output_of(step))
        say(step)
        return True

    return charge


def duel(ledger: Ledger) -> Charge:
    """All children work on the same steps, every other one from the end, and take the run from each other all the time.

    A child leaves its last step to the other, whose second one it is. So both commit, even if one of them hardly gets any time.
    """

    def charge(name: str) -> bool:
        racer, number = name.removeprefix("racer-").split("/")
        step = f"step-{number if int(racer) % 2 else -int(number) % DUEL_STEPS}"
        first = int(number) == 0
        if int(number) == DUEL_STEPS - 1:
            return False
        while ledger.operation(SHARED_RUN, step) is None:
            try:
                lease = ledger.lease(SHARED_RUN, holder="twins")
                while first and ledger.run(SHARED_RUN).fence == lease.fence:
                    think()  # until the other has taken the run away, once at least
                first = False
                operation = ledger.charge(lease, step=step, amount=1, mechanism=MECHANISM)
                ledger.commit(operation, f"{racer} {step}".encode())
            except UsageError:
                think()
                continue
            say(f"{racer} {step}")
            think()
            return True
        return False

    return charge


def think() -> None:
    """Be busy elsewhere for some milliseconds, so that neither stays in front and they do not go on in step forever."""
    until = time.perf_counter() + random.uniform(0, 0.02)  # noqa: S311  how long is no secret
    while time.perf_counter() < until:
        pass


def die(ledger: Ledger) -> Charge:
    """Commit a large output, and die just before the statement of the number that is the child's name."""
    operation = ledger.charge(ledger.lease(SHARED_RUN), step="large", amount=1, mechanism=MECHANISM)
    execute = ledger._store.execute

    def charge(name: str) -> bool:
        left = int(name.partition("/")[0])

        def mortal(statement: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return execute(statement, parameters)

        ledger._store.execute = mortal  # type: ignore[method-assign]
        ledger.commit(operation, LARGE)
        return True

    return charge


WORKS: dict[str, Callable[[Ledger], Charge]] = {
    work.__name__: work
    for work in (reserve, reserve_blocks, reserve_across, reserve_across_unlocked, charge, commit, duel, die)
}


def say(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def work_through(work: Callable[[Ledger], Charge], url: str, steps: list[str], *, gate: int) -> None:
    granted = 0
    with open_ledger(url) as ledger:
        charge = work(ledger)
        say("ready")
        os.read(gate, 1)
        for step in steps:
            with suppress(BudgetRefused):
                granted += charge(step)
    say(str(granted))


def live(work: Callable[[Ledger], Charge], url: str, steps: list[str], *, gate: int) -> NoReturn:
    try:
        work_through(work, url, steps, gate=gate)
    except BaseException:  # noqa: BLE001  a child must never return into its parent's loop
        traceback.print_exc()
        say("failed")
    os._exit(0)


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(work: str, url: str, charges: int) -> None:
    children: list[int] = []
    gate, opener = os.pipe()
    open_ledger(url).close()  # so that a driver is imported once for all
    for line in sys.stdin:
        command, _, name = line.strip().partition(" ")
        if command == "fork":
            child = os.fork()
            if child == 0:
                if opener >= 0:
                    os.close(opener)
                live(WORKS[work], url, [f"{name}/{number}" for number in range(charges)], gate=gate)
            children.append(child)
        elif command == "go":
            os.close(opener)  # whoever waits at the gate reads its end, all at once
            opener = -1
        elif command == "kill":
            end(children.pop())
            say("ended")
        elif command == "wait":
            os.waitpid(children.pop(), 0)
            say("ended")
    for child in children:
        end(child)


def begin(folder: str, places: Mapping[str, str], work: str, url: str, charges: int) -> None:
    """Take the pipes in a folder for input and output, and the places of a test, and begin."""
    os.environ.update(places)
    os.dup2(os.open(f"{folder}/input", os.O_RDONLY), 0)
    os.dup2(os.open(f"{folder}/output", os.O_WRONLY), 1)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    main(work, url, charges)
