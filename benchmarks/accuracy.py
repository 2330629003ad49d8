"""Measure the error of the synthetic rows' marginals, and the cost of the release.

    python -m benchmarks.accuracy --data adult_discretized --epsilon 1 --seeds 3 --json

Each repetition is a whole release in its own process: spec, ledger, ingest, rounds, rows, Parquet. CPU seconds and peak memory are those of
that process; the seconds count from after its imports to the end of the release. The unit is the row, in every table.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pyarrow import parquet

from benchmarks.release_cost import cost_of_release
from benchmarks.tables import SPECS, TABLES, BenchmarkTable, load
from benchmarks.workload_error import bootstrap, independent_columns, marginals_measured, workload_error

ORDERS = (1, 2, 3)
REFERENCE_SEEDS = range(5)


def main() -> None:
    """Run the benchmark and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=list(TABLES), default="adult7")
    parser.add_argument("--strategy", choices=["adaptive", "mwem", "pmw"], help="default: chosen by size")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--seeds", type=int, default=3, help="the number of releases, each with fresh noise")
    parser.add_argument(
        "--currency", choices=["zcdp", "gdp"], help="the currency of the account; default: that of a new one"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table = load(arguments.data)
    runs = [
        measure(
            table,
            strategy=arguments.strategy,
            epsilon=arguments.epsilon,
            delta=arguments.delta,
            currency=arguments.currency,
        )
        for _ in range(arguments.seeds)
    ]
    result = {
        "data": table.name,
        "rows": len(table.frame),
        "columns": len(table.sizes),
        "unit": "row",
        "marginals": {order: marginals_measured(len(table.sizes), order=order) for order in ORDERS},
        "strategy": arguments.strategy or "by size",
        "currency": arguments.currency or "by noise",
        "epsilon": arguments.epsilon,
        "delta": arguments.delta,
        "seeds": arguments.seeds,
        "error": _mean([run["error"] for run in runs]),
        "error_3way_of_each": [run["error"][3] for run in runs],
        "cpu_seconds": statistics.mean(run["cpu_seconds"] for run in runs),
        "peak_memory_mb": max(run["peak_memory_mb"] for run in runs),
        "independent_columns": _mean(
            [_errors(table, independent_columns(table, seed=seed)) for seed in REFERENCE_SEEDS]
        ),
        "bootstrap": _mean([_errors(table, bootstrap(table, seed=seed)) for seed in REFERENCE_SEEDS]),
    }
    print(json.dumps(result) if arguments.json else _text(result))


def _mean(errors: list[dict[int, float]]) -> dict[int, float]:
    return {order: statistics.mean(each[order] for each in errors) for order in ORDERS}


def _errors(table: BenchmarkTable, synthetic: pd.DataFrame) -> dict[int, float]:
    return {order: workload_error(table, synthetic, order=order) for order in ORDERS}


def measure(
    table: BenchmarkTable, *, strategy: str | None, epsilon: float, delta: float, currency: str | None
) -> dict[str, Any]:
    """Make a release in its own process, and return its errors and its cost."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        table.original.to_parquet(base / "table.parquet", index=False)
        spec = yaml.safe_load((SPECS / f"{table.name}.yaml").read_text(encoding="utf-8"))
        spec["source"] = {"path": "table.parquet"}
        spec["privacy"] |= {"epsilon": epsilon, "delta": delta}
        if strategy is not None:
            spec["strategy"] = {"name": strategy}
        (base / "spec.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
        cost = cost_of_release(base, currency=currency)
        synthetic = table.coded(parquet.read_table(next(base.glob("releases/*/*/data"))))
    return {**cost, "error": _errors(table, synthetic)}


def _text(result: dict[str, Any]) -> str:
    shape = f"{result['rows']:,} rows x {result['columns']} columns, unit row"
    lines = [
        f"{result['data']}: {shape}, {result['strategy']}, epsilon {result['epsilon']:g}, delta {result['delta']:g}",
        f"{'':22}{'1-way':>8}{'2-way':>8}{'3-way':>8}",
    ]
    for label, key in (("independent columns", "independent_columns"), ("dpflow", "error"), ("bootstrap", "bootstrap")):
        lines.append(f"{label:22}" + "".join(f"{result[key][order]:8.4f}" for order in ORDERS))
    lines.append("marginals: " + ", ".join(f"{result['marginals'][order]} {order}-way" for order in ORDERS))
    lines.append(
        f"{result['cpu_seconds']:.1f} CPU s, {result['peak_memory_mb']:.0f} MB, mean of {result['seeds']} runs"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
