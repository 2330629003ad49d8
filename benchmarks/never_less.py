"""Measure that asking for more never gives less: `python -m benchmarks.never_less [--seeds 10] [--only NAME] [--json]`.

Each table is released with `marginals: 1`, `2`, ... up to its number of columns. Its error at order k must be about the same, or smaller,
when marginals of order k + 1 are asked for. Releases are simulated with seeded noise (`benchmarks.simulated`), with the strategy and rounds
that a spec without `strategy` gets, and each figure is the mean of several.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.simulated import SeededCurator, Table, release
from dpcore.privacy.accounting import Currency
from dpcore.spec.declaration import Declaration, declare
from dpcore.spec.release import ReleaseSpec
from dpcore.strategies import strategy_for
from dpcore.universe import Universe

BAR = 1.05
SIZES = (2, 2, 3, 4, 5, 8, 12, 20)
ROWS = (2_000, 20_000)
CUTS = {
    "adult_discretized": ("education-num", "marital-status", "relationship", "sex", "income>50K"),
    "nist_national2019": ("SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU"),
    "diabetes": ("age", "time_in_hospital", "readmitted", "insulin"),
}


def main() -> None:
    """Measure every table, and print its errors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.never_less", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="the number of releases of each table and order")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--currency", choices=["zcdp", "gdp"], help="the currency of the account; default: by delta")
    parser.add_argument("--only", help="the tables whose names begin like this")
    parser.add_argument("--made", action="store_true", help="only the tables of the generator")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    currency = Currency(arguments.currency) if arguments.currency else None
    for table in tables(made_only=arguments.made):
        if table.name.startswith(arguments.only or ""):
            terms = Terms(arguments.epsilon, arguments.delta, currency)
            result = compare(table, terms, seeds=arguments.seeds)
            print(json.dumps(asdict(result)) if arguments.json else result.text(), flush=True)


@dataclass(frozen=True)
class Terms:
    """The budget of a release."""

    epsilon: float
    delta: float
    currency: Currency | None = None


@dataclass(frozen=True)
class Comparison:
    """The errors of a table's releases at each order, `errors[asked - 1][order - 1]`, and those of two references."""

    name: str
    rows: int
    sizes: tuple[int, ...]
    strategies: tuple[str, ...]
    errors: tuple[tuple[float, ...], ...]
    independent: tuple[float, ...]
    bootstrap: tuple[float, ...]

    def text(self) -> str:
        """Return the errors as a table, with the ratio to those of asking for one order less."""
        lines = [f"{self.name}: {self.rows:,} rows, sizes {'x'.join(map(str, self.sizes))}"]
        for asked, (errors, strategy) in enumerate(zip(self.errors, self.strategies, strict=True), start=1):
            ratio = "" if asked == 1 else f"  order {asked - 1}: {self.ratio(asked - 1):.2f}"
            lines.append(f"  marginals: {asked} {strategy:12}" + "".join(f"{each:8.4f}" for each in errors) + ratio)
        for label, errors in (("independent", self.independent), ("bootstrap", self.bootstrap)):
            lines.append(f"  {label:25}" + "".join(f"{each:8.4f}" for each in errors))
        return "\n".join(lines)

    def ratio(self, order: int) -> float:
        """Return the error at an order with `marginals: order + 1`, relative to that with `marginals: order`."""
        return self.errors[order][order - 1] / self.errors[order - 1][order - 1]


def compare(table: Table, terms: Terms, *, seeds: int) -> Comparison:
    """Release a table several times with each order of marginals."""
    orders = range(1, len(table.sizes) + 1)
    errors, names = [], []
    for asked in orders:
        declaration = declared(table, terms, order=asked)
        made = [released(table, declaration, terms, seed=seed) for seed in range(seeds)]
        errors.append(tuple(statistics.mean(table.error(each, order=order) for each in made) for order in orders))
        names.append(f"{declaration.strategy.name} {strategy_for(declaration).rounds}")
    references = (
        tuple(statistics.mean(table.error(made(seed=seed), order=order) for seed in range(seeds)) for order in orders)
        for made in (table.independent, table.bootstrap)
    )
    return Comparison(table.name, table.rows, table.sizes, tuple(names), tuple(errors), *references)


def declared(table: Table, terms: Terms, *, order: int) -> Declaration:
    """Declare a release of a table with all marginals of an order, and no strategy."""
    columns = {
        f"c{place}": {"type": "integer", "min": 0, "max": size - 1, "width": 1}
        for place, size in enumerate(table.sizes)
    }
    spec = ReleaseSpec.model_validate(
        {
            "dataset": "table",
            "source": {"path": "table.parquet"},
            "privacy": {"unit": "row", "neighbours": "add-remove", "epsilon": terms.epsilon, "delta": terms.delta},
            "universe": columns,
            "workload": {"marginals": order},
            "output": {"path": "releases", "rows": "noisy"},
        }
    )
    universe = Universe({name: part.attribute(Path()) for name, part in spec.universe.items()})
    return declare(spec, universe=universe, path=Path("spec.yaml"))


def released(table: Table, declaration: Declaration, terms: Terms, *, seed: int) -> Table:
    """Release a table with seeded noise."""
    curator = SeededCurator(
        table, epsilon=terms.epsilon, delta=terms.delta, currency=terms.currency, seed=10_000 + seed
    )
    return release(strategy_for(declaration), curator, seed=seed, near=declaration.workload.marginals)


def tables(*, made_only: bool) -> Iterator[Table]:
    """Yield twelve tables of the generator, and three cut from real ones."""
    for number in range(12):
        yield generated(number)
    if not made_only:
        for name, columns in CUTS.items():
            yield _cut(name, columns)


def generated(number: int) -> Table:
    """Make table `number` of 1 to 6 columns. Each column depends on up to two earlier ones, together and not only on each."""
    rng = np.random.default_rng(20_261_116 + number)
    columns, rows = 1 + number // 2, ROWS[number % 2]
    sizes = tuple(int(size) for size in rng.choice(SIZES, columns))
    codes: list[np.ndarray] = []
    for column, size in enumerate(sizes):
        parents: Iterable[int] = (
            rng.choice(column, min(column, int(rng.integers(0, 3))), replace=False) if column else []
        )
        state = np.zeros(rows, dtype=np.int64)
        for parent in parents:
            state = state * sizes[parent] + codes[parent]
        chances = rng.dirichlet(np.full(size, 0.7), int(state.max()) + 1)
        codes.append((rng.random(rows)[:, None] > chances.cumsum(axis=1)[state][:, :-1]).sum(axis=1))
    return Table(f"made-{number + 1:02}", tuple(codes), sizes)


def _cut(name: str, columns: tuple[str, ...]) -> Table:
    from benchmarks.tables import SPECS, TABLES, code, shared_data  # noqa: PLC0415  only where there are real tables
    from dpcore.spec import load_spec  # noqa: PLC0415

    declared_columns = load_spec(SPECS / f"{name}.yaml").universe.attributes
    if missing := set(columns) - set(declared_columns):
        sys.exit(f"benchmarks: {name} has no columns {', '.join(sorted(missing))}; correct CUTS")
    universe = Universe({column: declared_columns[column] for column in columns})
    coded = code(name, TABLES[name](shared_data()), universe)
    codes = tuple(coded.frame[column].to_numpy(dtype=np.int64) for column in columns)
    return Table(name, codes, tuple(coded.sizes.values()))


if __name__ == "__main__":
    main()
