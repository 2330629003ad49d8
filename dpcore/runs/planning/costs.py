"""Estimate the memory and time of a run from measured runs. The estimate is right within a small factor."""

from dataclasses import dataclass
from math import prod

from dpcore.models import fitting
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.spec import Declaration
from dpcore.spec.release import AdaptiveSpec, PmwSpec
from dpcore.strategies import adaptive, mwem

# Measured on two busy cores of an Intel Xeon (x86-64), Python 3.11, NumPy 2.4, in CPU seconds per release without Prefect: 19 releases with
# 4 to 40 columns of 10 values, 50,000 and 1,000,000 rows, epsilon 0.1 to 10, factored models of 1 to 16 MB. The figures were fitted to
# these releases, so that their times lie about between the least and the most seconds (the slowest took 202, with an estimate of at most
# 198). They were not tested on other releases.
SECONDS_PER_VALUE = 4e-7  # of the table: to read, encode, count and write it
SECONDS_PER_MODEL_CELL = 4e-8  # per evaluation of the model
SECONDS_PER_MEASURED_CELL, SECONDS_PER_FACTORED_CELL = 1e-6, 2.5e-6  # likewise, for dense and factored models
SECONDS_PER_CANDIDATE = 6e-5  # per round of adaptive
SECONDS_PER_QUERY = 2e-6  # per round of pmw
FAST = 1 / 4  # the lower estimate, as a share of these figures
START_SECONDS = 1.0, 8.0  # of the process alone, and with Prefect
MODEL_PER_MEASURED = 10.0  # cells of a factored model per measured cell, until the model has its full size
PROCESS_MB = 190.0  # with all imports
BYTES_PER_ROW, BYTES_PER_VALUE = 4.0, 3.0  # of the table and of the synthetic rows: 721 MB in total at 10^7 x 14
TABLE_MB = 350.0  # the limit for both: larger tables are read, stored and written in chunks
DENSE_COPIES, FACTORED_COPIES = 3.0, 5.5  # times the size of the model's weights
FACTORED_MB = 50.0  # in addition


@dataclass(frozen=True)
class Costs:
    """The estimated peak memory of a run, and the range of its likely duration."""

    memory_mb: float
    least_seconds: float
    most_seconds: float


def costs_of(declaration: Declaration, *, rows: int, rounds: int, cells: int) -> Costs:
    """Estimate the costs of a run that measures a marginal of `cells` cells in each round."""
    columns, chosen = len(declaration.universe.shape), declaration.strategy
    reading = SECONDS_PER_VALUE * rows * columns
    if isinstance(chosen, AdaptiveSpec):
        model_cells = min(chosen.max_model_mb * 2**20 / BYTES_PER_CELL, MODEL_PER_MEASURED * rounds * cells)
        model_mb = FACTORED_MB + FACTORED_COPIES * chosen.max_model_mb
    else:
        model_cells = float(declaration.universe.size)
        model_mb = DENSE_COPIES * model_cells * BYTES_PER_CELL / 2**20
    rounds_alone, last = _seconds(declaration, model_cells=model_cells, rounds=rounds, cells=cells)
    table_mb = min(rows * (BYTES_PER_ROW + columns * BYTES_PER_VALUE) / 2**20, TABLE_MB)
    return Costs(
        memory_mb=PROCESS_MB + table_mb + model_mb,
        least_seconds=START_SECONDS[0] + FAST * (reading + rounds_alone),
        most_seconds=START_SECONDS[1] + reading + rounds_alone + last,
    )


def _seconds(declaration: Declaration, *, model_cells: float, rounds: int, cells: int) -> tuple[float, float]:
    """Return the seconds of the first model and the rounds, and of the last refinement, which often ends early."""
    shape, workload, chosen = declaration.universe.shape, declaration.workload, declaration.strategy
    if isinstance(chosen, PmwSpec):
        queries = sum(prod(shape[axis] for axis in axes) for axes in workload.marginals)
        return rounds * (2 * SECONDS_PER_MODEL_CELL * model_cells + SECONDS_PER_QUERY * queries), 0.0
    factored = isinstance(chosen, AdaptiveSpec)
    each = SECONDS_PER_FACTORED_CELL if factored else SECONDS_PER_MEASURED_CELL
    evaluation = SECONDS_PER_MODEL_CELL * model_cells + each * (sum(shape) + rounds * cells)
    if factored:
        looking = rounds * SECONDS_PER_CANDIDATE * len(workload.parts())
        tries = fitting.FIRST_TRIES + rounds * adaptive.ROUND_TRIES
        return looking + evaluation * tries, evaluation * fitting.LAST_TRIES
    tries = fitting.FIRST_TRIES + rounds * mwem.ROUND_TRIES
    return evaluation * tries, evaluation * fitting.last_tries(declaration.universe.size)
