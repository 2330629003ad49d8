"""Estimate the memory and time of a run, right within a small factor: what it does, times a few measured figures.

The figures are CPU seconds without Prefect, fitted to releases of 4 to 40 columns and rounded. The middle of the estimates is 1.1 to 1.5 times what
five whole releases took, with 7 to 48 columns and 27,000 to 300,000 rows (`tests/dpcore/runs/planning/test_plan.py`). They were not tested on others.
On wide tables, replicates and the errors of all counts take most of the time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import prod

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

SECONDS_PER_VALUE = 3e-7  # of the table: to read, encode, count and write it
SECONDS_PER_CELL = 4e-8  # of the model, in each of its evaluations
SECONDS_PER_COUNT = 2e-6  # that is taken from a model
SECONDS_PER_MARGINAL = 7e-3  # that is taken from a factored model, in addition, and of each of its evaluations
SECONDS_PER_CANDIDATE = 4e-5  # of a round of adaptive
SECONDS_PER_EXCHANGE = 1.5e-7  # of values between rows, for each column of a marginal
TRIED = 1 / 4  # of the evaluations that a fit may take: it usually ends before
WITHIN = 2.0  # the estimate is right within this factor
START_SECONDS = 1.0, 8.0  # of the process alone, and with Prefect
MODEL_PER_MEASURED = 10.0  # cells of a factored model per measured cell, until the model has its full size
PROCESS_MB = 190.0  # with all imports
BYTES_PER_VALUE = 3.3  # of the table and of the synthetic rows: 721 MB in total at 10^7 x 14
TABLE_MB = 350.0  # the limit for both: larger tables are read, stored and written in chunks
COPIES = 5.0  # of the model's weights
MARGINALS_MB = 300  # the most that a factored model keeps of marginals, each about 1 MB
BYTES_PER_COUNT = 110.0  # of all models, while errors are listed: a release of adult_discretized took 759 MB, of nist_national2019 768, of census_kdd 1,098


@dataclass(frozen=True)
class Costs:
    """The estimated peak memory of a run, the range of its likely duration, and the seconds of its steps, without the start of the process."""

    memory_mb: float
    least_seconds: float
    most_seconds: float
    steps: Mapping[str, float]


def costs_of(declaration: Declaration, *, rows: int, rounds: int, cells: int) -> Costs:
    """Estimate the costs of a run that measures a marginal of `cells` cells in each round."""
    universe, workload, strategy = declaration.universe, declaration.workload, declaration.strategy
    columns = len(universe.shape)

    def size(axes: Axes) -> int:
        return prod(universe.shape[axis] for axis in axes)

    model_cells, per_marginal, looking, last_tries = float(universe.size), 0.0, 0.0, fitting.last_tries(universe.size)
    tries = fitting.FIRST_TRIES + rounds * mwem.Mwem.TRIES
    if isinstance(strategy, AdaptiveSpec):
        model_cells = min(strategy.max_model_mb * 2**20 / BYTES_PER_CELL, MODEL_PER_MEASURED * rounds * cells)
        per_marginal, looking = SECONDS_PER_MARGINAL, SECONDS_PER_CANDIDATE * len(workload.parts())
        tries, last_tries = fitting.FIRST_TRIES + rounds * adaptive.Adaptive.TRIES, fitting.LAST_TRIES
    elif isinstance(strategy, PmwSpec):
        looking, tries, last_tries = SECONDS_PER_COUNT * sum(map(size, workload.marginals)), 2 * rounds, 0
    evaluation = per_marginal + SECONDS_PER_CELL * model_cells
    evaluation += SECONDS_PER_COUNT * (sum(universe.shape) + rounds * cells)

    def taking(sets: Collection[Axes]) -> float:
        return per_marginal * len(sets) + SECONDS_PER_COUNT * sum(map(size, sets))

    # Pairs. Larger sets are listed if they were measured, and then they take little.
    listed, _ = listed_marginals(universe, combinations(range(min(columns, MOST_PAIRED)), 2))
    # All are taken from the models of the release, the pilot and the replicates.
    models = 2 + replicates_of(strategy.name, universe.size)
    exchanged = sets_worth(workload.marginals, size, lambda _: True, count=rows)
    steps = {
        "reading": SECONDS_PER_VALUE * rows * columns,
        "rounds": rounds * looking + TRIED * tries * evaluation,
        "last fit": TRIED * last_tries * evaluation,
        "rows": taking(exchanged) + SECONDS_PER_EXCHANGE * rows * sum(map(len, exchanged)),
        "replicates": TRIED * models * TRIES * evaluation,
        "errors": models * taking(listed),
    }
    seconds = sum(steps.values())
    table_mb = min(rows * columns * BYTES_PER_VALUE / 2**20, TABLE_MB)
    if isinstance(strategy, AdaptiveSpec):
        model_mb = COPIES * strategy.max_model_mb + min(len(listed), MARGINALS_MB)
    else:
        model_mb = COPIES * model_cells * BYTES_PER_CELL / 2**20
    counts_mb = BYTES_PER_COUNT * sum(map(size, listed)) * models / 2**20
    return Costs(
        memory_mb=PROCESS_MB + table_mb + model_mb + counts_mb,
        least_seconds=START_SECONDS[0] + seconds / WITHIN,
        most_seconds=START_SECONDS[1] + seconds * WITHIN,
        steps=steps,
    )
