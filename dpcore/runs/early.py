"""What a run measures before its strategy begins: each for a share of the budget, and with a decision by the noisy answers.

Everything that follows depends on the noisy answers and the spec alone. Values that are not discovered yet count as if they were declared.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpcore.curator.curator import Curator
from dpcore.errors import RowsUnexpected
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import Zeros
from dpcore.models.persons import NoisyPersons, PersonSizes, size_ends
from dpcore.runs.expected_rows import NoisyTotal, open_universe, unexpected_sentence
from dpcore.runs.losses import Losses
from dpcore.runs.planning.limits import NoisyUnits, choice_of
from dpcore.runs.reading import Reading
from dpcore.runs.stages import Stage
from dpcore.spec import Declaration
from dpcore.spec.shares import Early
from dpcore.strategies.strategy import column_name
from dpcore.tables.histogram import Histogram
from dpcore.universe.dependencies import LearnedFunction

progress = logging.getLogger("dpcore.progress")


@dataclass(frozen=True)
class EarlyMeasurement:
    """Something that a run may measure before its strategy begins.

    Attributes:
        early: Its share of the budget.
        steps: The steps that buy it, each with the axes of its marginal; no axes for the number of rows.
        counts: Reads and counts the table for it, and returns the stage with what was read. It is called only if an answer is missing. None if
            the counts of the release serve.
        decide: Returns the stage with what follows from the noisy answers. It ends the run and raises if they refute the spec.
    """

    early: Early
    steps: Mapping[str, Axes]
    counts: Callable[[Stage, Reading], tuple[Stage, Histogram]] | None
    decide: Callable[[Stage, Curator, Sequence[Measurement]], Stage]

    def take(self, stage: Stage, curator: Curator) -> Stage:
        """Buy the answers that the transcript lacks, and return the stage with what they decide."""
        reading = stage.reading
        if self.counts is not None and reading is not None and not all(map(curator.answered, self.steps)):
            stage, counts = self.counts(stage, reading)
            curator.receive(counts, lease=reading.lease)
        declaration, answers = stage.declaration, []
        taken = declaration.taken_before(self.early)
        for (step, axes), share in zip(self.steps.items(), declaration.early[self.early], strict=True):
            part = share / (1 - taken)
            answers.append(
                curator.measure_marginal(step, axes, share=part)
                if axes
                else curator.measure_cell(step, axes, None, share=part)
            )
            taken += share
        return self.decide(stage, curator, answers)


def _units(stage: Stage, reading: Reading) -> tuple[Stage, Histogram]:
    """Count the units by their number of rows. Each unit adds one to one count."""
    return stage, reading.tally(open_universe(stage.declaration))


def _choose_limit(stage: Stage, curator: Curator, answers: Sequence[Measurement]) -> Stage:
    """Choose the limit on rows per unit. Everything that follows is bounded and priced by it."""
    spent = curator.price([LIMIT_STEP]) / stage.run.reserved
    currency = stage.paid_by.account.currency
    chosen = choice_of(stage.declaration, NoisyUnits.of(answers[0]), currency=currency, spent=spent)
    limited = stage.declaration.limited(chosen.rows, sizes=chosen.sizes)
    curator.protect(limited.protection)
    reading = None if stage.reading is None else stage.reading.limited(limited)
    return replace(stage.planned(limited), chosen_limit=chosen, reading=reading)


def _fates(stage: Stage, reading: Reading) -> tuple[Stage, Histogram]:
    """Count what becomes of the rows, one of each unit. If nothing is discovered, the rows are read first, for the release itself."""
    declaration = stage.declaration
    stage = stage if declaration.descents() else stage.ingested()
    return stage, reading.fates(open_universe(declaration), undecided=declaration.undecided())


def _check_losses(stage: Stage, _: Curator, answers: Sequence[Measurement]) -> Stage:
    """End the run if more rows are lost than the spec tolerates."""
    universe, tolerated = stage.declaration.universe, stage.declaration.tolerated
    losses = Losses.of(answers[0], universe)
    if losses.exceed(tolerated):
        stage.end()
        raise RowsUnexpected(
            f"the run was stopped after its first measurement: {losses.sentence(universe, tolerated=tolerated)}; nothing is "
            "published, and the unspent budget was refunded; correct the spec and run again"
        )
    for warning in losses.warnings(universe, tolerated=tolerated):
        progress.warning("warning: %s", warning)
    progress.info("%s", losses.words)
    return stage


def _rows(stage: Stage, reading: Reading) -> tuple[Stage, Histogram]:
    """Count the rows: if nothing is discovered, by the counts of the release itself."""
    if stage.declaration.descents():
        return stage, reading.count(open_universe(stage.declaration))
    stage = replace(stage.ingested(), counted=True)
    return stage, stage.histogram()


def _check_total(stage: Stage, _: Curator, answers: Sequence[Measurement]) -> Stage:
    """End the run if the number of rows is not the expected one."""
    total, expected = NoisyTotal.of(answers), stage.declaration.spec.privacy.expect_rows
    if (sizes := stage.declaration.sizes) is not None:
        total = total.of_all(sizes, limit=stage.declaration.protection.rows_per_unit)
    if expected is not None and total.is_outside(expected):
        stage.end()
        raise RowsUnexpected(unexpected_sentence(stage.declaration, total, expected=expected))
    progress.info("the noisy total is %d rows, as expected", round(total.rows))
    return replace(stage, total=tuple(answers))


def _persons(stage: Stage, reading: Reading) -> tuple[Stage, Histogram]:
    """Count the persons by the number of their rows, up to the limit, and by classes of it. Each adds one to one count of both."""
    limit = stage.declaration.protection.rows_per_unit
    persons = reading.tally(open_universe(stage.declaration), edges=tuple(range(1, limit)))
    persons.coarsen(0, np.searchsorted(size_ends(limit), np.arange(1, limit + 1)))
    return replace(stage, counted=False), persons


def _learn_sizes(stage: Stage, _: Curator, answers: Sequence[Measurement]) -> Stage:
    """Learn how many rows persons have, for a release that keeps the rows of one synthetic person together."""
    sizes = PersonSizes(
        *(NoisyPersons(tuple(map(int, answer.values.ravel())), noise=answer.noise) for answer in answers)
    )
    progress.info("the noisy number of persons is %d", sum(sizes.by_class.numbers))
    return replace(stage, sizes=sizes)


def _learn_functions(stage: Stage, curator: Curator, answers: Sequence[Measurement]) -> Stage:
    """Learn the functions of dependencies such as `city -> state`, one after the other.

    How rows are read never depends on them: rows that contradict a learned function count like all others. Every combination on the left keeps
    a possible row, whatever the noise is: its determined column is in no other constraint, but that it may determine a further column.
    """
    declaration, functions = stage.declaration, []
    for dependency, measured in zip(declaration.dependencies, answers, strict=True):
        universe = declaration.universe
        attributes = universe.attributes
        turn = [measured.axes.index(universe.names.index(column)) for column in dependency.columns]
        counts = measured.values.reshape([universe.shape[axis] for axis in measured.axes]).transpose(turn)
        possible = Zeros(universe.possible).support(measured.axes, Resolutions(universe.shape))
        allowed = None if possible is None else possible.transpose(turn)
        learned = dependency.learned(counts, allowed, attributes)
        functions.append(
            LearnedFunction(
                given=dependency.given,
                determined=dependency.determined,
                rows=learned.rows(attributes),
                clear=dependency.clear(counts, allowed, attributes, noise=measured.noise),
                noise=measured.noise,
                spent=curator.price([measured.step]) / stage.run.reserved,
            )
        )
        declaration = declaration.related(dependency, learned)
    progress.info("learned %s", ", ".join(function.words for function in functions))
    return replace(stage, functions=tuple(functions)).planned(declaration)


def functions_of(declaration: Declaration) -> EarlyMeasurement:
    """Return the measurement of the functions of dependencies: for each, counts of its columns, with the price of any other marginal."""
    names, steps = declaration.universe.names, {}
    for number, dependency in enumerate(declaration.dependencies, start=1):
        determined = column_name(names.index(dependency.determined), dependency.determined)
        steps[f"{Early.DEPENDENCIES}/{number}-{determined}"] = tuple(sorted(map(names.index, dependency.columns)))
    return EarlyMeasurement(Early.DEPENDENCIES, steps, None, _learn_functions)


LIMIT_STEP, LOSSES_STEP, TOTAL_STEP = Early.LIMIT.value, Early.LOSSES.value, Early.TOTAL.value
SIZES_STEPS = (f"{Early.PERSONS}/by-size", f"{Early.PERSONS}/by-class")

LIMIT = EarlyMeasurement(Early.LIMIT, {LIMIT_STEP: (0,)}, _units, _choose_limit)
LOSSES = EarlyMeasurement(Early.LOSSES, {LOSSES_STEP: (0,)}, _fates, _check_losses)
TOTAL = EarlyMeasurement(Early.TOTAL, {TOTAL_STEP: ()}, _rows, _check_total)
PERSONS = EarlyMeasurement(Early.PERSONS, {SIZES_STEPS[0]: (0,), SIZES_STEPS[1]: (1,)}, _persons, _learn_sizes)
