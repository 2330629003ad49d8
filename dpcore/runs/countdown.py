"""Say what a run is doing after its rounds, and about how many seconds are left."""

import logging
import time
from collections.abc import Iterable

from dpcore.runs.planning.costs import StepSeconds

progress = logging.getLogger("dpcore.progress")

QUARTERS = 4


class Countdown:
    """The seconds of the steps after the rounds. A step is as long as planned, until some of its parts are done.

    Args:
        planned: All steps of a run, in their order.
    """

    def __init__(self, planned: Iterable[StepSeconds]) -> None:
        steps = [(each.step, (each.least + each.most) / 2) for each in planned]
        rounds = [step for step, _ in steps].index("rounds")
        self._left = dict(steps[rounds + 1 :])
        self._step, self._begun, self._done = "", 0.0, 0

    @property
    def seconds(self) -> int:
        """The estimated seconds of all steps that are left, with the current one."""
        return round(sum(self._left.values()))

    def begin(self, step: str, words: str) -> None:
        """Log that a step begins. Those before it are over."""
        for before in list(self._left)[: list(self._left).index(step)]:
            del self._left[before]
        self._step, self._done = step, 0
        self._begun = time.monotonic()
        progress.info("%s, about %d s left", words, self.seconds)

    def part(self, words: str, *, parts: int) -> None:
        """Note that one of the equal parts of the current step is done. Those that are left are taken to last as long as those before.

        Each quarter of the step is logged, however long it takes, so that a log does not depend on time.
        """
        self._done += 1
        self._left[self._step] = (time.monotonic() - self._begun) / self._done * (parts - self._done)
        if QUARTERS * self._done // parts > QUARTERS * (self._done - 1) // parts:
            progress.info("%s %d/%d, about %d s left", words, self._done, parts, self.seconds)
