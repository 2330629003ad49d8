"""Compare releases with columns drawn each by itself, and with what their plan warned of: `python -m benchmarks.independent TABLE.csv ...`.

Each table is released with `marginals: 2`, with seeded noise (`benchmarks.simulated`). Its error is the mean total variation distance of its
pairs from those of the table, divided by that of the table's columns, each shuffled by itself. A plan warns before a run if this ratio may be
1 or more. It knows the number of rows and the noise, but not how far columns depend on each other, so it can be wrong about a table.

A column with at most 20 values is taken as it is, another one of numbers is cut into 10 bins of equal width, and other texts are left out.
"""

import argparse
import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.never_less import Terms, declared, released
from benchmarks.simulated import Table
from dpcore.runs.planning.plan import plan_run
from dpcore.runs.planning.rated import column_noise

MOST_VALUES, BINS = 20, 10


def main() -> None:
    """Release every table, and print its errors beside what its plan says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.independent", description=__doc__.splitlines()[0])
    parser.add_argument("tables", metavar="TABLE", nargs="+", type=Path, help="a CSV file")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--seeds", type=int, default=3, help="the number of releases of each table")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for path in arguments.tables:
        table = coded(pd.read_csv(path, low_memory=False), name=path.stem)
        found = compare(table, Terms(arguments.epsilon, arguments.delta), seeds=arguments.seeds)
        print(json.dumps(asdict(found)) if arguments.json else found.text(), flush=True)


@dataclass(frozen=True)
class Comparison:
    """A table's size, the plan's figures, and the error of releases and of shuffled columns in pairs and in triples.

    `noise` and `chance` are those that the plan compares, here as total variation distances, like all errors.
    """

    name: str
    rows: int
    columns: int
    pairs: int
    rounds: int
    noise: float
    chance: float
    warned: bool
    release: tuple[float, float]
    shuffled: tuple[float, float]

    @property
    def ratios(self) -> tuple[float, ...]:
        """The error of a release relative to that of shuffled columns, in pairs and in triples."""
        return tuple(one / other for one, other in zip(self.release, self.shuffled, strict=True))

    def text(self) -> str:
        """Return the figures as a row of a Markdown table."""
        sizes = f"{self.name} | {self.rows:,} | {self.columns} | {self.rounds:,} of {self.pairs:,}"
        planned = f"{self.noise:.3f} | {self.chance:.3f} | {'yes' if self.warned else 'no'}"
        return f"| {sizes} | {planned} | {self.release[0]:.3f} | {self.shuffled[0]:.3f} | {' | '.join(f'{each:.2f}' for each in self.ratios)} |"


def compare(table: Table, terms: Terms, *, seeds: int) -> Comparison:
    """Plan a table's release, make it several times, and return the mean errors."""
    declaration = declared(table, terms, order=2)
    plan = plan_run(declaration, rows=table.rows)
    noise, chance = column_noise(plan.ratings, plan.ratings.pairs, rows=table.rows)
    releases = [released(table, declaration, terms, seed=seed) for seed in range(seeds)]
    shuffled = [table.independent(seed=seed) for seed in range(seeds)]

    def errors(tables: list[Table]) -> tuple[float, float]:
        pairs, triples = (statistics.mean(table.error(each, order=order) / 2 for each in tables) for order in (2, 3))
        return pairs, triples

    return Comparison(
        name=table.name,
        rows=table.rows,
        columns=len(table.sizes),
        pairs=len(plan.ratings.pairs),
        rounds=plan.ratings.rounds,
        noise=noise / 2,
        chance=chance / 2,
        warned=bool(plan.warnings),
        release=errors(releases),
        shuffled=errors(shuffled),
    )


def coded(frame: pd.DataFrame, *, name: str) -> Table:
    """Return a table as codes. Missing values are a value of their own, and columns of one value are left out."""
    codes, sizes = [], []
    for column in frame:
        values = frame[column]
        many = values.nunique() > MOST_VALUES
        if values.nunique() == 1 or (many and not pd.api.types.is_numeric_dtype(values)):
            continue
        cells = (pd.cut(values, BINS) if many else values.astype("category")).cat
        missing = bool(values.isna().any())
        codes.append(np.where(values.isna(), len(cells.categories), cells.codes).astype(np.int64))
        sizes.append(len(cells.categories) + missing)
    return Table(name, tuple(codes), tuple(sizes))


if __name__ == "__main__":
    main()
