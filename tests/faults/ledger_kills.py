"""One death after the other: a fresh ledger, a process that dies while it uses it, a look at what it left, and a second life."""

import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.ledger_places import Place, Places
from benchmarks.ledger_scenario import DRAWN, JOBS, Journal, Line, play, price, read_journal
from dpcore.errors import DpflowError, UsageError
from dpcore.ledger import EventKind, Ledger, open_ledger
from dpcore.ledger.verification import verify
from tests.faults.ledger_mortal import Boundaries, Mortal, born
from tests.faults.ledger_oracle import Fault, Finding, examine, examine_end
from tests.faults.ledger_planted import Opener

JOURNAL, LABELS, ERRORS = "journal", "labels", "errors"
UNDISTURBED = 3
"""Lives that are left alone, to learn how long one takes."""


@dataclass
class Tally:
    """What was done to a store, and what was found."""

    kills: Counter[str] = field(default_factory=Counter)
    boundaries: int = 0
    resumes: int = 0
    verifications: int = 0
    draws: int = 0
    operations_committed: int = 0
    findings: list[tuple[str, Finding]] = field(default_factory=list)

    def found(self, when: str, findings: Iterable[Finding]) -> None:
        """Take note of what is wrong."""
        self.findings += [(when, finding) for finding in findings]

    def count(self, lines: Collection[Line]) -> None:
        """Count what a ledger's journals tell at its end."""
        self.draws += sum(line["what"] == DRAWN for line in lines)
        self.operations_committed += sum(line["what"] == EventKind.COMMITTED for line in lines)


class Kills:
    """Kills processes that use the ledgers of one store."""

    def __init__(self, places: Places, *, opened: Opener, tally: Tally) -> None:
        self._places = places
        self._opened = opened
        self._tally = tally

    def boundaries(self) -> list[str]:
        """Live one life undisturbed, and return what its boundaries are."""
        place = self._places.fresh()
        when = f"{self._places.store}, undisturbed"
        if not self._ends(self._born(place, Boundaries(end_at=None)), place, when=when):
            return []
        self._look(place, when=when, deaths=0)
        return (place.folder / LABELS).read_text(encoding="utf-8").splitlines()

    def kill_at(self, boundary: int, *, label: str) -> None:
        """Let a process end itself at one of its boundaries."""
        place = self._places.fresh()
        when = f"{self._places.store}, boundary {boundary}, {label}"
        code = self._born(place, Boundaries(end_at=boundary)).reap()
        if code == -signal.SIGKILL:
            self._tally.kills["boundary"] += 1
            self._after_death(place, when=when)
        else:
            self._broken(place, code, when=when)

    def kill_at_random(self, kills: int, *, seed: int) -> None:
        """End processes from outside, each at a random moment of its life."""
        rng = random.Random(seed)  # noqa: S311  moments need no secrecy
        seconds = statistics.median(self._undisturbed() for _ in range(UNDISTURBED))
        while kills:
            kills -= self._kill_after(rng.uniform(0, seconds))

    def _kill_after(self, moment: float) -> bool:
        """End a process after so many seconds; say whether it had not come to its end before."""
        place = self._places.fresh()
        when = f"{self._places.store}, after {moment:.4f} s"
        mortal = self._born(place, None)
        time.sleep(moment)
        mortal.kill()
        code = mortal.reap()
        if code == -signal.SIGKILL:
            self._tally.kills["random"] += 1
            self._after_death(place, when=when)
        elif code:
            self._broken(place, code, when=when)
        return code != 0

    def _undisturbed(self) -> float:
        """Return how long an undisturbed life takes."""
        place = self._places.fresh()
        begin = time.perf_counter()
        self._ends(self._born(place, None), place, when=f"{self._places.store}, undisturbed")
        return time.perf_counter() - begin

    def _after_death(self, place: Place, *, when: str) -> None:
        """Look at what a death left, let a second life take the work up, and look again."""
        self._look(place, when=f"{when}, after death", deaths=None)
        self._tally.resumes += 1
        if self._ends(self._born(place, None), place, when=f"{when}, second life"):
            self._look(place, when=f"{when}, second life", deaths=1)

    def _born(self, place: Place, boundaries: Boundaries | None) -> Mortal:
        return born(lambda: self._life(place, boundaries), errors=place.folder / ERRORS)

    def _life(self, place: Place, boundaries: Boundaries | None) -> None:
        if boundaries is not None:
            boundaries.watch()
        with self._opened(place.url) as ledger:
            play(ledger, Journal(place.folder / JOURNAL))
        if boundaries is not None:
            (place.folder / LABELS).write_text("\n".join(boundaries.labels), encoding="utf-8")

    def _ends(self, mortal: Mortal, place: Place, *, when: str) -> bool:
        """Wait for a life's end, and say whether it was as it should be."""
        if code := mortal.reap():
            self._broken(place, code, when=when)
        return not code

    def _broken(self, place: Place, code: int, *, when: str) -> None:
        self._tally.found(when, [Finding(Fault.BROKEN, f"ended with {code}; {errors_of(place.folder / ERRORS)}")])

    def _look(self, place: Place, *, when: str, deaths: int | None) -> None:
        """Hold a ledger against its journal; and, given how often its user died, against what was planned."""
        lines = read_journal(place.folder / JOURNAL)
        try:
            ledger = open_ledger(place.url)
        except UsageError:  # it died before there was one
            self._tally.found(when, [Finding(Fault.LOST, "the whole ledger")] if lines else [])
            return
        with ledger:
            look(ledger, lines, tally=self._tally, when=when)
            if deaths is not None:
                self._tally.found(when, examine_end(ledger, JOBS, deaths=deaths, workers=1))
                self._tally.count(lines)


def look(ledger: Ledger, lines: Collection[Line], *, tally: Tally, when: str) -> None:
    """Verify a ledger, and hold it against journals that were read before."""
    tally.verifications += 1
    try:
        verify(ledger, price=price, heads={})
        tally.found(when, examine(ledger, lines))
    except DpflowError as error:
        tally.found(when, [Finding(Fault.UNVERIFIED, str(error))])


def errors_of(path: Path) -> str:
    """Return the last line of what a process that broke has left."""
    return path.read_text(encoding="utf-8").strip().splitlines()[-1] if path.exists() else "without a word"
