"""Estimate the memory and time of a run from measured runs. The estimate is right within a small factor.

A run has three parts: the rows, the replicates for intervals, and the errors of all counts with the card. On wide tables the last two take
most of the time.
"""

from dataclasses import dataclass
from math import comb, prod
from typing import NamedTuple

from dpcore.answers.errors import listed_marginals
from dpcore.answers.judging import MOST_PAIRED
from dpcore.answers.replicates import TRIES, replicates_of
from dpcore.marginals.workload import Axes
from dpcore.models import fitting
from dpcore.models.exchange import sets_worth
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.spec import Declaration
from dpcore.spec.release import AdaptiveSpec, PmwSpec
from dpcore.strategies import adaptive, mwem

# The rows: measured on two busy cores of an Intel Xeon (x86-64), Python 3.11, NumPy 2.4, in CPU seconds per release without Prefect: 19 releases with
# 4 to 40 columns of 10 values, 50,000 and 1,000,000 rows, epsilon 0.1 to 10, factored models of 1 to 16 MB. The figures were fitted to
# these releases, so that their times lie about between the least and the most seconds (the slowest took 202, with an estimate of at most
# 198). They were not tested on other releases.
SECONDS_PER_VALUE = 4e-7  # of the table: to read, encode, count and write it
SECONDS_PER_MODEL_CELL = 4e-8  # per evaluation of the model
SECONDS_PER_MEASURED_CELL, SECONDS_PER_FACTORED_CELL = 1e-6, 2.5e-6  # likewise, for dense and factored models
SECONDS_PER_CANDIDATE = 6e-5  # per round of adaptive
SECONDS_PER_QUERY = 2e-6  # per round of pmw
SECONDS_PER_EVALUATION = (
    0.01  # of a factored model of any size: a fit to colon (15 columns) and nhefs (67) took 1 s on two busy cores
)
FAST = 1 / 4  # the lower estimate, as a share of these figures
# Replicates, errors and card: fitted to whole releases at epsilon 1 on an arm64 core, in CPU seconds. adult7 took 10, adult_discretized 100
# (of which rows 19, replicates 30), nist_national2019 160; diabetes and census_kdd took 104 and 153 a day earlier, on a busy machine. The middle of the
# estimates is 0.8 to 1.4 times these figures. They were not tested on other releases.
SECONDS_PER_SWEEP = 0.15  # of rows that exchange values, for each column: adult7 took 0.8
SECONDS_PER_EXCHANGE = 6e-8  # of rows, for each row and column of a marginal
FIT = 1 / 2  # the upper estimate of a replicate's fit, as a share of all its tries: it usually ends before
SECONDS_PER_MARGINAL, SECONDS_PER_COUNT = 7e-3, 2.3e-6  # of a factored model, to list the errors of its counts
SECONDS_PER_DENSE_MARGINAL = 5e-4  # likewise, in addition to an evaluation of the model
JUDGING = 1 / 2, 3 / 2  # the least and the most, as a share of these figures
START_SECONDS = 1.0, 8.0  # of the process alone, and with Prefect
MODEL_PER_MEASURED = 10.0  # cells of a factored model per measured cell, until the model has its full size
PROCESS_MB = 190.0  # with all imports
BYTES_PER_ROW, BYTES_PER_VALUE = 4.0, 3.0  # of the table and of the synthetic rows: 721 MB in total at 10^7 x 14
TABLE_MB = 350.0  # the limit for both: larger tables are read, stored and written in chunks
DENSE_COPIES, FACTORED_COPIES = 3.0, 5.5  # times the size of the model's weights
FACTORED_MB = 50.0  # in addition
MB_PER_MARGINAL = 1.0  # what a factored model keeps for each marginal that it is asked for
MARGINALS_MB = 300.0  # and the most that it keeps
BYTES_PER_COUNT = 110.0  # of all models, while errors are listed: adult_discretized took 1,300 to 2,100 MB, and nist_national2019 1,044


@dataclass(frozen=True)
class StepSeconds:
    """The range of the likely duration of a step."""

    step: str
    least: float
    most: float


@dataclass(frozen=True)
class Costs:
    """The estimated peak memory of a run, the range of its likely duration, and that of its steps, without the start of the process."""

    memory_mb: float
    least_seconds: float
    most_seconds: float
    steps: tuple[StepSeconds, ...]


@dataclass(frozen=True)
class _Listed:
    """What the errors and the card are made of: marginals, their counts, and models (the release's, the pilot and the replicates)."""

    marginals: int
    counts: int
    models: int

    @classmethod
    def of(cls, declaration: Declaration) -> "_Listed":
        """Return what the release of a declaration lists."""
        universe = declaration.universe
        listed, _ = listed_marginals(universe, declaration.workload)
        shown = comb(min(len(universe.shape), MOST_PAIRED), 2)  # pairs on the card, listed or not
        return cls(
            marginals=len(listed) + max(0, shown - sum(len(axes) == 2 for axes in listed)),
            counts=sum(prod(universe.shape[axis] for axis in axes) for axes in listed),
            models=2 + replicates_of(declaration.strategy.name, universe.size),
        )


def costs_of(declaration: Declaration, *, rows: int, rounds: int, cells: int) -> Costs:
    """Estimate the costs of a run that measures a marginal of `cells` cells in each round."""
    columns, chosen, listed = len(declaration.universe.shape), declaration.strategy, _Listed.of(declaration)
    reading = SECONDS_PER_VALUE * rows * columns
    if isinstance(chosen, AdaptiveSpec):
        model_cells = min(chosen.max_model_mb * 2**20 / BYTES_PER_CELL, MODEL_PER_MEASURED * rounds * cells)
        cached_mb = min(MB_PER_MARGINAL * listed.marginals, MARGINALS_MB)
        model_mb = FACTORED_MB + FACTORED_COPIES * chosen.max_model_mb + cached_mb
        judging = listed.models * (SECONDS_PER_MARGINAL * listed.marginals + SECONDS_PER_COUNT * listed.counts)
    else:
        model_cells = float(declaration.universe.size)
        model_mb = DENSE_COPIES * model_cells * BYTES_PER_CELL / 2**20
        judging = listed.models * (SECONDS_PER_MODEL_CELL * model_cells + SECONDS_PER_DENSE_MARGINAL * listed.marginals)
    seconds = _seconds(declaration, model_cells=model_cells, rounds=rounds, cells=cells)
    replicates = (listed.models + 1) * seconds.fit  # and one fit to the earlier rounds alone
    table_mb = min(rows * (BYTES_PER_ROW + columns * BYTES_PER_VALUE) / 2**20, TABLE_MB)
    exchanging = _exchanging(declaration, rows)
    least, most = JUDGING
    steps = (
        StepSeconds("reading", FAST * reading, reading),
        StepSeconds("rounds", FAST * seconds.rounds, seconds.rounds),
        StepSeconds("last fit", 0.0, seconds.last),
        StepSeconds("rows", least * exchanging, most * exchanging),
        StepSeconds("replicates", FAST * replicates, FIT * replicates),
        StepSeconds("errors", least * judging, most * judging),
    )
    return Costs(
        memory_mb=PROCESS_MB + table_mb + model_mb + BYTES_PER_COUNT * listed.counts * listed.models / 2**20,
        least_seconds=START_SECONDS[0] + sum(each.least for each in steps),
        most_seconds=START_SECONDS[1] + sum(each.most for each in steps),
        steps=steps,
    )


def _exchanging(declaration: Declaration, rows: int) -> float:
    """Return the seconds in which rows exchange values, with those for the marginals of a factored model, most of which lie in no clique."""

    def cells(axes: Axes) -> int:
        return prod(declaration.universe.shape[axis] for axis in axes)

    factored = isinstance(declaration.strategy, AdaptiveSpec)
    sets = sets_worth(declaration.workload.marginals, cells, lambda _: True, count=rows)
    if not sets:
        return 0.0
    each = SECONDS_PER_MARGINAL * len(sets) + SECONDS_PER_COUNT * sum(map(cells, sets)) if factored else 0.0
    return (
        each + SECONDS_PER_EXCHANGE * rows * sum(map(len, sets)) + SECONDS_PER_SWEEP * len(declaration.universe.shape)
    )


class _Seconds(NamedTuple):
    """The seconds of the first model and the rounds, of the last refinement, which often ends early, and of all tries of one replicate's fit."""

    rounds: float
    last: float
    fit: float


def _seconds(declaration: Declaration, *, model_cells: float, rounds: int, cells: int) -> _Seconds:
    shape, workload, chosen = declaration.universe.shape, declaration.workload, declaration.strategy
    if isinstance(chosen, PmwSpec):
        queries = sum(prod(shape[axis] for axis in axes) for axes in workload.marginals)
        updates = rounds * 2 * SECONDS_PER_MODEL_CELL * model_cells
        return _Seconds(updates + rounds * SECONDS_PER_QUERY * queries, last=0.0, fit=updates)
    factored = isinstance(chosen, AdaptiveSpec)
    each = SECONDS_PER_FACTORED_CELL if factored else SECONDS_PER_MEASURED_CELL
    evaluation = SECONDS_PER_MODEL_CELL * model_cells + each * (sum(shape) + rounds * cells)
    evaluation += SECONDS_PER_EVALUATION if factored else 0.0
    fit = evaluation * TRIES
    if factored:
        looking = rounds * SECONDS_PER_CANDIDATE * len(workload.parts())
        tries = fitting.FIRST_TRIES + rounds * adaptive.ROUND_TRIES
        return _Seconds(looking + evaluation * tries, last=evaluation * fitting.LAST_TRIES, fit=fit)
    tries = fitting.FIRST_TRIES + rounds * mwem.ROUND_TRIES
    return _Seconds(evaluation * tries, last=evaluation * fitting.last_tries(declaration.universe.size), fit=fit)
