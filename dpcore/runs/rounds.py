"""The rounds of a run: select the marginal with the largest model error, measure it, and update the model. And what follows them, by the clock."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import median

from dpcore.curator.curator import Curator
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.reporting.outcome import Round, distance, noise_floor
from dpcore.runs.planning.costs import costs_of
from dpcore.spec import Declaration
from dpcore.strategies import Strategy, step_name

progress = logging.getLogger("dpcore.progress")


class Countdown:
    """The seconds of the steps after the rounds. A step is as long as planned, until some of its parts are done.

    Args:
        planned: The seconds of all steps of a run, in their order.
    """

    def __init__(self, planned: Mapping[str, float]) -> None:
        self._left = dict(list(planned.items())[list(planned).index("rounds") + 1 :])
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
        if 4 * self._done // parts > 4 * (self._done - 1) // parts:
            progress.info("%s %d/%d, about %d s left", words, self._done, parts, self.seconds)


@dataclass(frozen=True)
class Exhausted:
    """Nothing was drawn, because interruptions have used up the budget of a selection or measurement."""


class Rounds:
    """The rounds of a run.

    Args:
        declaration: The final declaration.
        strategy: It holds the model and is updated.
        curator: Charges and draws.
        reserved: The whole budget of the run.
    """

    def __init__(self, declaration: Declaration, strategy: Strategy, *, curator: Curator, reserved: int) -> None:
        self.done: list[Round] = []
        self._declaration = declaration
        self._strategy = strategy
        self._curator = curator
        self._reserved = reserved
        self._begun = 0.0

    def begin(self) -> None:
        """Buy the measurements for the first model."""
        strategy = self._strategy
        strategy.begin(self._curator)
        self._begun = time.monotonic()
        progress.info("first model from %d measurements", len(strategy.measurements))

    def select(self, number: int) -> Selection | Exhausted:
        """Select the marginal with the largest model error."""
        if self._curator.exhausted(step_name(number, "select"), answers=self._answers_left(number)):
            return Exhausted()
        return self._strategy.select(self._curator, number)

    def measure(self, number: int, selection: Selection | Exhausted) -> Measurement | Exhausted:
        """Measure the selected marginal."""
        if isinstance(selection, Exhausted):
            return selection
        if self._curator.exhausted(step_name(number, "measure"), answers=self._answers_left(number) - 1):
            return Exhausted()
        return self._strategy.measure(self._curator, number, selection)

    def _answers_left(self, number: int) -> int:
        """Return the number of answers from the selection of this round to the end."""
        return 2 * (self._strategy.rounds - number + 1)

    def update(self, number: int, measurement: Measurement | Exhausted) -> None:
        """Update the model with the measurement. If the budget is exhausted, end the rounds."""
        strategy = self._strategy
        if isinstance(measurement, Exhausted):
            strategy.finished = True
            progress.info("round %d/%d: skipped, interruptions have used up its budget", number, strategy.rounds)
            return
        before = distance(strategy.model, measurement)
        strategy.update(number, measurement)
        done = Round(
            number=number,
            columns=strategy.resolutions.named(measurement.axes, self._declaration.universe.names),
            cells=measurement.values.size,
            noise=measurement.noise,
            before=before,
            after=distance(strategy.model, measurement),
            noise_floor=noise_floor(strategy.model, measurement),
            spent=self._curator.paid / self._reserved,
        )
        self.done.append(done)
        progress.info(
            "round %d/%d: %s, noise %.1f, spent %.0f %%, about %d s left",
            *(number, strategy.rounds, " x ".join(done.columns), done.noise, 100 * done.spent, self.seconds_left),
        )

    @property
    def next(self) -> int:
        """The number of the next round; 0 if there is none."""
        done, strategy = len(self.done), self._strategy
        return 0 if strategy.finished or done >= strategy.rounds else done + 1

    def unmeasured_pairs(self) -> set[tuple[int, int]]:
        """Return the pairs of the workload's columns that no measurement has covered, in cells or in groups."""
        strategy, asked = self._strategy, self._declaration.workload.marginals
        columns = (
            tuple(sorted(map(strategy.resolutions.column, measurement.axes))) for measurement in strategy.measurements
        )
        covered, asked_pairs = ({pair for axes in sets for pair in combinations(axes, 2)} for sets in (columns, asked))
        return asked_pairs - covered

    @property
    def seconds_left(self) -> int:
        """The estimated duration of the remaining rounds, from the rounds done so far, and of the steps after them, as planned."""
        strategy, done = self._strategy, len(self.done)
        left = 0 if strategy.finished or not done else strategy.rounds - self.done[-1].number
        return round((time.monotonic() - self._begun) / max(done, 1) * left) + self.countdown.seconds

    @cached_property
    def countdown(self) -> Countdown:
        """The steps after the rounds, planned when the first round is done: on wide tables that takes a second."""
        strategy = self._strategy
        cells = int(median(finished.cells for finished in self.done)) if self.done else 1
        rows = max(1, round(strategy.total))
        return Countdown(costs_of(self._declaration, rows=rows, rounds=strategy.rounds, cells=cells).steps)
