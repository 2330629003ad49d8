"""Compare what a plan expects of columns and pairs with what a release has: `python -m benchmarks.planned --tables unseen --epsilon 0.1 1`.

Each table of `benchmarks.r_tables` is planned with its true number of rows, and learned with seeded noise (`benchmarks.simulated`). The error
of a pair is the sum of |expected count - true count| by the model, as a share of the rows. Beside it stands the error of shuffled columns: the
true columns, taken to be independent. A plan should warn of a release whose error is near to that.

`--choose` prints for which constants of `dpcore.runs.planning.rated` these errors would be nearest.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks import r_tables
from benchmarks.simulated import SeededCurator, Table, learn
from dpcore.runs.planning.noise import ABSOLUTE
from dpcore.runs.planning.plan import plan_run
from dpcore.runs.planning.rated import REMAINS
from dpcore.spec import ReleaseSpec
from dpcore.spec.declaration import declare
from dpcore.strategies import strategy_for
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Universe

TABLES = {"choosing": r_tables.names(unseen=False), "unseen": r_tables.names(unseen=True)}
USELESS, USEFUL = 0.95, 0.7  # errors of a release, as shares of those of shuffled columns
LIMITS = np.geomspace(0.01, 1.0, 41)  # of the noise, for `--choose`


@dataclass(frozen=True)
class Error:
    """The noise of a column or pair, the error that its plan expects, and the error by the model, as shares of the rows."""

    noise: float
    planned: float
    real: float


@dataclass(frozen=True)
class Compared:
    """The errors of a release and of shuffled columns, and whether the plan warned of it."""

    table: str
    epsilon: float
    columns: Sequence[Error]
    pairs: Sequence[Error]
    shuffled: float
    warned: bool

    @property
    def ratio(self) -> float:
        """The error of the release in pairs, as a share of that of shuffled columns."""
        return fmean(pair.real for pair in self.pairs) / self.shuffled

    def text(self) -> str:
        """Return the figures as a row of a Markdown table."""
        planned, real = fmean(pair.planned for pair in self.pairs), fmean(pair.real for pair in self.pairs)
        figures = f"{planned:.3f} | {real:.3f} | {self.shuffled:.3f} | {self.ratio:.2f}"
        return f"| {self.table} | {self.epsilon:g} | {figures} | {_near(self.pairs, 1.5):.2f} | {'yes' if self.warned else 'no'} |"


def main() -> None:
    """Print a row for each table and epsilon, and a summary."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planned", description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 0.3, 1.0])
    parser.add_argument("--choose", action="store_true")
    arguments = parser.parse_args()
    print("| table | epsilon | planned | error | shuffled | ratio | within 1.5 | warned |")
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    releases = []
    for name in (name for kind in arguments.tables for name in TABLES[kind]):
        for epsilon in arguments.epsilon:
            releases.append(compared(name, epsilon))
            print(releases[-1].text(), flush=True)
    print("\n".join(summary(releases)))
    if arguments.choose:
        print(f"columns: the error grows with the root from {chosen([each.columns for each in releases]):.2g} on")
        print(f"pairs: from {chosen([each.pairs for each in releases]):.2g} on")


def compared(name: str, epsilon: float) -> Compared:
    """Plan a table and learn it."""
    spec, frame = r_tables.table(name)
    privacy = {**spec["privacy"], "epsilon": epsilon}
    parsed = ReleaseSpec.model_validate({**spec, "source": {"path": "table.parquet"}, "privacy": privacy})
    universe = Universe({column: part.attribute(Path()) for column, part in parsed.universe.items()})
    declaration = declare(parsed, universe=universe, path=Path("spec.yaml"))
    table = _coded(name, frame, universe)
    plan, strategy = plan_run(declaration, rows=table.rows), strategy_for(declaration)
    learn(strategy, SeededCurator(table, epsilon=epsilon, delta=privacy["delta"], currency=None, seed=1))
    axes_of = {name: axis for axis, name in enumerate(universe.names)}

    def error(names: Sequence[str], noise: float, planned: float) -> Error:
        axes = tuple(axes_of[name] for name in names)
        expected = strategy.model.marginal(axes).ravel() / table.rows
        cells, real = expected.size, float(np.abs(expected - table.shares(axes)).sum())
        return Error(cells * noise * ABSOLUTE / table.rows, planned, real)

    shares = [table.shares((axis,)) for axis in range(len(table.sizes))]
    apart = (
        float(np.abs(np.outer(shares[first], shares[second]).ravel() - table.shares((first, second))).sum())
        for first, second in combinations(range(len(shares)), 2)
    )
    return Compared(
        name,
        epsilon,
        [
            error([column.name], first.noise, column.error)
            for column, first in zip(plan.ratings.columns, plan.first, strict=True)
        ],
        [error(pair.columns, pair.noise, pair.error) for pair in plan.ratings.pairs],
        fmean(apart),
        any(warning.startswith("columns drawn each by itself") for warning in plan.warnings),
    )


def _coded(name: str, frame: pd.DataFrame, universe: Universe) -> Table:
    codes, _ = encode_rows(universe, pa.Table.from_pandas(frame[list(universe.names)], preserve_index=False))
    return Table(name, tuple(np.asarray(column, dtype=np.int64) for column in codes), universe.shape)


def summary(releases: Sequence[Compared]) -> Iterator[str]:
    """Yield how near plans were, every release with the same weight, and what they warned of."""
    for what, errors in (
        ("columns", [each.columns for each in releases]),
        ("pairs", [each.pairs for each in releases]),
    ):
        near, twice = (fmean(_near(some, factor) for some in errors) for factor in (1.5, 2.0))
        yield f"{what}: planned within a factor of 1.5: {near:.2f}, of 2: {twice:.2f}"
    useless = [each for each in releases if each.ratio > USELESS]
    useful = [each for each in releases if each.ratio < USEFUL]
    yield f"warned of {sum(each.warned for each in useless)} of {len(useless)} releases with more than {USELESS} of the error of shuffled columns"
    yield f"and of {sum(each.warned for each in useful)} of {len(useful)} with less than {USEFUL}"


def _near(errors: Sequence[Error], factor: float) -> float:
    """Return the share of errors that lie within a factor of those planned."""
    return fmean(1 / factor < max(error.planned, 1e-9) / max(error.real, 1e-9) < factor for error in errors)


def chosen(releases: Sequence[Sequence[Error]]) -> float:
    """Return the noise beyond which the error grows with the root, for the least squared difference of logarithms."""

    def difference(limit: float) -> float:
        return fmean(
            fmean(
                math.log(REMAINS * math.sqrt(each.noise * min(each.noise, limit)) / max(each.real, 1e-4)) ** 2
                for each in some
            )
            for some in releases
        )

    return float(min(LIMITS, key=difference))


if __name__ == "__main__":
    main()
