"""Measure how the cost of a release grows with the rows and with the columns of its table.

    python -m benchmarks.growth --json

The tables are generated, with dependencies between columns. The strategy is `adaptive`, always with the same number of rounds and the same
size of model. Each release runs in its own process. CPU seconds are those of dpcore, from reading the spec to the last file; memory is that of the
whole process. Last comes a wide table with a target column and the strategy's defaults; its wall time has its own bar. An exponent
compares two successive tables: the log of the ratio of their seconds, divided by the log of the ratio of their sizes. Seconds of the same
work differ by a few percent from run to run, so an exponent may exceed its bar by 0.1. With `--repeats` the fastest run counts.
"""

import argparse
import json
import math
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from pyarrow import parquet

from benchmarks.release_cost import cost_of_release

MOST_EXPONENT = {"rows": 1.0, "columns": 2.0}
TOLERANCE = 0.1
MOST_MEMORY_MB = 2_000.0
"""The limit at the largest number of rows, ten million."""
LARGEST_ROWS = 10_000_000
FULL = {"rows": (100_000, 1_000_000, LARGEST_ROWS), "columns": (10, 20, 40, 80)}
QUICK = {"rows": (10_000, 30_000, 100_000), "columns": (5, 10, 20)}
COLUMNS, ROWS, QUICK_ROWS = 14, 50_000, 5_000
"""The size of the other dimension while one grows."""
WIDE, QUICK_WIDE, MOST_WIDE_SECONDS = 100, 20, 600.0
SEED = 7
VALUES = 10
CHUNK_ROWS = 1 << 18
FOLLOWS = 0.7
"""The share of rows in which a column is a function of its parent. In the others it is drawn independently."""


class GrowthTable:
    """A tree of columns with ten values each. The same seed gives the same columns, whatever the number of rows.

    The parent of a column is a random column before it. A column is a fixed function of its parent in most rows, and drawn from its own
    skewed distribution in the others.
    """

    def __init__(self, *, columns: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._seed = seed
        self._parents = [int(rng.integers(column)) if column else None for column in range(columns)]
        self._functions = rng.integers(VALUES, size=(columns, VALUES))
        self._chances = rng.dirichlet(np.full(VALUES, 2.0), size=columns)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [f"c{number:02}" for number in range(len(self._parents))]

    def chunk(self, number: int, rows: int) -> pa.Table:
        """Return the rows of one chunk, which depend only on its number."""
        rng = np.random.default_rng((self._seed, number))
        drawn: list[np.ndarray] = []
        for parent, function, chances in zip(self._parents, self._functions, self._chances, strict=True):
            own = rng.choice(VALUES, size=rows, p=chances)
            drawn.append(own if parent is None else np.where(rng.random(rows) < FOLLOWS, function[drawn[parent]], own))
        return pa.table(dict(zip(self.names, drawn, strict=True)))

    def write(self, path: Path, *, rows: int) -> None:
        """Write the table as Parquet, chunk by chunk."""
        starts = range(0, rows, CHUNK_ROWS)
        with parquet.ParquetWriter(path, self.chunk(0, 0).schema) as writer:
            for number, start in enumerate(starts):
                writer.write_table(self.chunk(number, min(CHUNK_ROWS, rows - start)))

    def universe(self) -> dict[str, dict[str, object]]:
        """Return the universe in the form of a spec, alternating integer and categorical columns."""
        whole = {"type": "integer", "min": 0, "max": VALUES - 1, "width": 1}
        named = {"type": "categorical", "values": list(range(VALUES))}
        return {name: named if number % 2 else whole for number, name in enumerate(self.names)}


@dataclass(frozen=True)
class Measured:
    """The cost of one release."""

    rows: int
    columns: int
    cpu_seconds: float
    peak_memory_mb: float
    steps: dict[str, float]


def main() -> None:
    """Run the benchmark and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--by", choices=[*FULL, "wide"], action="append", help="measure only this")
    parser.add_argument("--sizes", type=int, nargs="+", help="with one --by: measure these sizes")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model-mb", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="use small tables: shows that it works, not for the bars")
    parser.add_argument(
        "--profile", action="store_true", help="also print the slowest functions to stderr; this slows runs down"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.sizes and len(arguments.by or ()) != 1:
        parser.error("--sizes needs one --by")
    result: dict[str, Any] = {"rounds": arguments.rounds, "model_mb": arguments.model_mb, "tolerance": TOLERANCE}
    chosen = arguments.by or [*FULL, "wide"]
    if "wide" in chosen:
        result["wide"] = _wide(arguments)
    for dimension in [name for name in chosen if name in FULL]:
        sizes = arguments.sizes or (QUICK if arguments.quick else FULL)[dimension]
        result[dimension] = figures(dimension, [_measure(dimension, size, arguments) for size in sizes])
    print(json.dumps(result) if arguments.json else _text(result))


def figures(dimension: str, runs: Sequence[Measured]) -> dict[str, Any]:
    """Return the growth between successive sizes, and whether the bars hold."""
    steps = []
    for small, large in pairwise(runs):
        sizes = getattr(large, dimension) / getattr(small, dimension)
        seconds = large.cpu_seconds / small.cpu_seconds
        steps.append({"sizes": sizes, "seconds": seconds, "exponent": math.log(seconds) / math.log(sizes)})
    most = MOST_EXPONENT[dimension]
    bars = {f"exponent <= {most:g}": all(step["exponent"] <= most + TOLERANCE for step in steps)}
    if dimension == "rows" and runs[-1].rows >= LARGEST_ROWS:
        bars[f"memory < {MOST_MEMORY_MB:,.0f} MB"] = runs[-1].peak_memory_mb < MOST_MEMORY_MB
    return {"runs": [asdict(run) for run in runs], "ratios": steps, "bars": bars}


def _measure(dimension: str, size: int, arguments: argparse.Namespace) -> Measured:
    other_rows = QUICK_ROWS if arguments.quick else ROWS
    rows, columns = (size, COLUMNS) if dimension == "rows" else (other_rows, size)
    table = GrowthTable(columns=columns, seed=SEED)
    costs = [_cost(table, rows, arguments) for _ in range(arguments.repeats)]
    best = min(costs, key=lambda cost: cost["cpu_seconds"])
    return Measured(rows, columns, best["cpu_seconds"], max(cost["peak_memory_mb"] for cost in costs), best["steps"])


def _wide(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure a wide table: all 3-way marginals with a target, and the strategy's defaults."""
    columns, rows = (QUICK_WIDE, QUICK_ROWS) if arguments.quick else (WIDE, ROWS)
    table = GrowthTable(columns=columns, seed=SEED)
    begin = time.perf_counter()
    cost = _cost(table, rows, arguments, {"workload": {"marginals": 3, "target": table.names[0]}, "strategy": None})
    wall = time.perf_counter() - begin
    bars = {f"wall <= {MOST_WIDE_SECONDS:g} s": wall <= MOST_WIDE_SECONDS}
    return {"rows": rows, "columns": columns, "wall_seconds": wall, **cost, "bars": bars}


def _cost(
    table: GrowthTable, rows: int, arguments: argparse.Namespace, changes: dict[str, Any] | None = None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dpflow-growth-") as folder:
        base = Path(folder)
        table.write(base / "table.parquet", rows=rows)
        spec = {
            "dataset": "growth",
            "source": {"path": "table.parquet"},
            "privacy": {"unit": "row", "neighbours": "add-remove", "epsilon": 1.0, "delta": 1e-9},
            "universe": table.universe(),
            "workload": {"marginals": 3},
            "strategy": {"name": "adaptive", "rounds": arguments.rounds, "max_model_mb": arguments.model_mb},
        } | (changes or {})
        (base / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
        profile = base / "profile" if arguments.profile else None
        cost = cost_of_release(base, profile=profile)
        if profile is not None:
            pstats.Stats(str(profile), stream=sys.stderr).sort_stats("tottime").print_stats(20)
        return cost


def _text(result: dict[str, Any]) -> str:
    lines = [f"adaptive, {result['rounds']} rounds, model of {result['model_mb']:g} MB"]
    for dimension in MOST_EXPONENT:
        if dimension not in result:
            continue
        lines.append(f"\n{'rows':>11}{'columns':>9}{'CPU s':>9}{'MB':>8}{'ratio':>8}{'exponent':>10}  slowest steps")
        for run, ratio in zip(result[dimension]["runs"], [None, *result[dimension]["ratios"]], strict=True):
            growth = "" if ratio is None else f"{ratio['seconds']:8.2f}{ratio['exponent']:10.2f}"
            dear = sorted(run["steps"].items(), key=lambda step: -step[1])[:3]
            lines.append(
                f"{run['rows']:11,}{run['columns']:9}{run['cpu_seconds']:9.1f}{run['peak_memory_mb']:8.0f}{growth:18}  "
                + ", ".join(f"{name} {seconds:.1f}" for name, seconds in dear)
            )
        for bar, holds in result[dimension]["bars"].items():
            lines.append(f"{bar}: {'holds' if holds else 'MISSED'}")
    if wide := result.get("wide"):
        holds = ", ".join(f"{bar}: {'holds' if kept else 'MISSED'}" for bar, kept in wide["bars"].items())
        lines.append(
            f"\n{wide['columns']} columns and a target, {wide['rows']:,} rows: {wide['wall_seconds']:.0f} s wall time, "
            f"{wide['cpu_seconds']:.0f} CPU s, {wide['peak_memory_mb']:.0f} MB; {holds}"
        )
    lines.append(f"(an exponent may exceed its bar by {result['tolerance']:g}: seconds differ from run to run)")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
