"""Time each kind of ledger transaction in short alternating slices, so that a busy disk affects all kinds alike."""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256

from benchmarks.ledger_scenario import MECHANISM
from dpcore.ledger import Ledger, Operation

AMOUNT, OUTPUT = 1_000, bytes(range(200))
ANALYST = "ada"
FOR_ALL = 1 << 50
"""The amount reserved by the one run that pays for all operations."""

Slice = Callable[[], float]
"""Runs some transactions of one kind, and returns the seconds per transaction."""


class Charges:
    """One worker on one account of a ledger."""

    def __init__(self, ledger: Ledger, *, account: str, blocks: Sequence[str], times: int) -> None:
        self._ledger, self._account, self._blocks, self._times = ledger, account, blocks, times
        self._rng = random.Random(1)  # noqa: S311  which blocks a run names is no secret
        self._numbers = itertools.count()
        ledger.reserve("worker", account=account, amount=FOR_ALL, claim="charges", blocks=blocks[:1])
        self._lease = ledger.lease("worker")
        ledger.share("worker", analyst=ANALYST, cap=FOR_ALL, token=sha256(b"").hexdigest())

    def charges(self, analyst: str | None = None) -> float:
        """Charge operations, to an analyst's share if there is an analyst."""
        steps = self._names("step")
        return timed(lambda: [self._charge(step, analyst) for step in steps], transactions=self._times)

    def pairs(self) -> float:
        """Charge and commit operations. Each takes two transactions."""
        steps = self._names("step")
        return timed(
            lambda: [self._ledger.commit(self._charge(step), OUTPUT) for step in steps], transactions=2 * self._times
        )

    def reservations(self, blocks: int, *, times: int | None = None) -> float:
        """Reserve runs in a random window of `blocks` blocks. Settling them afterwards is not timed."""
        wanted = self._requests(blocks, times=times or self._times)
        taken = timed(lambda: self._reserve(wanted), transactions=len(wanted))
        self._settle(wanted)
        return taken

    def settlements(self, blocks: int) -> float:
        """Settle runs reserved in `blocks` blocks. Reserving them is not timed."""
        wanted = self._requests(blocks, times=self._times)
        self._reserve(wanted)
        return timed(lambda: self._settle(wanted), transactions=len(wanted))

    def bytes_of_a_charge(self) -> int:
        """Return how many bytes a charge adds to the ledger: those of its event and of its operation."""
        operation = self._charge(next(iter(self._names("step"))))
        *_, event = self._ledger.history(self._account)
        columns = (*vars(event).values(), *vars(operation).values())
        return sum(len(str(value)) for value in columns if value is not None)

    def _charge(self, step: str, analyst: str | None = None) -> Operation:
        return self._ledger.charge(self._lease, step=step, amount=AMOUNT, mechanism=MECHANISM, analyst=analyst)

    def _reserve(self, wanted: Mapping[str, Sequence[str]]) -> None:
        for run, blocks in wanted.items():
            self._ledger.reserve(run, account=self._account, amount=AMOUNT, claim="charges", blocks=blocks)

    def _settle(self, runs: Iterable[str]) -> None:
        for run in runs:
            self._ledger.settle(run, release=None, lease=None)

    def _requests(self, blocks: int, *, times: int) -> dict[str, list[str]]:
        """Name new runs and a window of adjacent blocks for them, such as the last fifty days."""
        first = self._rng.randrange(len(self._blocks) - blocks + 1)
        return dict.fromkeys(self._names("run")[:times], self._blocks[first : first + blocks])

    def _names(self, kind: str) -> list[str]:
        return [f"{kind}-{next(self._numbers)}" for _ in range(self._times)]


def in_turns(slices: Mapping[str, Slice], *, rounds: int) -> dict[str, list[float]]:
    """Run every slice once per round, alternating; return the seconds per transaction of each, by round."""
    for each in slices.values():
        each()
    taken: dict[str, list[float]] = {name: [] for name in slices}
    for number in range(rounds):
        names = list(slices)
        for name in names if number % 2 else reversed(names):
            taken[name].append(slices[name]())
    return taken


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median over all rounds of the ratio within each round."""
    return statistics.median(one / other for one, other in zip(over, under, strict=True))


def timed(work: Callable[[], object], *, transactions: int) -> float:
    """Do the work and return the seconds per transaction."""
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) / transactions
