"""How far the synthetic rows' marginals are from the true ones, and what they cost.

    python -m benchmarks.accuracy --data adult_discretized --epsilon 1 --seeds 3 --json

Each repetition is a whole release in a process of its own: spec, ledger, ingest, rounds, rows, Parquet. The CPU seconds and the
peak memory are that process's, from after its imports to the end of the release.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchmarks.tables import BenchmarkTable, load
from benchmarks.workload_error import bootstrap, independent_columns, workload_error

ORDERS = (1, 2, 3)
SPECS = Path(__file__).parent / "specs"
REFERENCE_SEEDS = range(5)


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="adult7")
    parser.add_argument("--strategy", choices=["adaptive", "mwem", "pmw"], help="default: chosen by size")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--seeds", type=int, default=3, help="how many releases; their noise is never the same")
    parser.add_argument("--currency", choices=["zcdp", "gdp"], help="what the account counts; default: zcdp")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table = load(arguments.data)
    runs = [
        _measure(
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
        "strategy": arguments.strategy or "by size",
        "currency": arguments.currency or "by delta",
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


def _measure(
    table: BenchmarkTable, *, strategy: str | None, epsilon: float, delta: float, currency: str | None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        table.frame.to_parquet(base / "table.parquet")
        spec = yaml.safe_load((SPECS / f"{table.name}.yaml").read_text(encoding="utf-8"))
        spec["privacy"] |= {"epsilon": epsilon, "delta": delta}
        if strategy is not None:
            spec["strategy"] = {"name": strategy}
        (base / "spec.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            cost = pool.apply(_release, (folder, currency))
        synthetic = pd.read_parquet(next(base.glob("releases/*/*/data")))
    return {**cost, "error": _errors(table, synthetic)}


def _release(folder: str, currency_name: str | None) -> dict[str, float]:
    os.chdir(folder)
    from dpcore import synthesize  # noqa: PLC0415  the measured process's own imports
    from dpcore.accounting import Currency, budget_of  # noqa: PLC0415
    from dpcore.ledger import open_ledger  # noqa: PLC0415
    from dpcore.privacy import Neighbours  # noqa: PLC0415

    spec = yaml.safe_load(Path("spec.yaml").read_text(encoding="utf-8"))
    epsilon, delta = spec["privacy"]["epsilon"], spec["privacy"]["delta"]
    wanted = Currency(currency_name) if currency_name else None
    currency, cap = budget_of(epsilon, delta=delta, currency=wanted)
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            spec["dataset"],
            currency=currency,
            cap=cap,
            epsilon=epsilon,
            delta=delta,
            unit="row",
            neighbours=Neighbours.ADD_REMOVE,
        )
    begin = time.process_time()
    synthesize("spec.yaml")
    return {
        "cpu_seconds": time.process_time() - begin,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _text(result: dict[str, Any]) -> str:
    lines = [
        f"{result['data']}: {result['rows']:,} rows, {result['strategy']}, epsilon {result['epsilon']:g}, delta {result['delta']:g}",
        f"{'':22}{'1-way':>8}{'2-way':>8}{'3-way':>8}",
    ]
    for label, key in (("independent columns", "independent_columns"), ("dpflow", "error"), ("bootstrap", "bootstrap")):
        lines.append(f"{label:22}" + "".join(f"{result[key][order]:8.4f}" for order in ORDERS))
    lines.append(
        f"{result['cpu_seconds']:.1f} CPU s, {result['peak_memory_mb']:.0f} MB, mean of {result['seeds']} runs"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
