"""Compare `max_rows_per_unit: auto` with fixed limits, where a person has many rows.

    python -m benchmarks.rows_per_unit --data diabetes --limits auto 1 2 4 8 16 32 --seeds 2 --json

The error is that of the synthetic rows' marginals against the whole table, with all rows of each person: a low limit loses rows, a high one
adds noise. Each repetition is a whole release in its own process.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pyarrow import parquet

from benchmarks.release_cost import cost_of_release
from benchmarks.tables import SPECS, TABLES, BenchmarkTable, code, shared_data
from benchmarks.workload_error import workload_error
from dpcore.spec import load_spec

PERSONS = {"diabetes": "patient_nbr", "retrosheet": "batter_id"}
LIMITS = ("auto", "1", "2", "4", "8", "16", "32")
ORDERS = (1, 2, 3)


def main() -> None:
    """Make the releases, and print one line for each limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=list(PERSONS), default="retrosheet")
    parser.add_argument("--limits", nargs="+", default=LIMITS, help="`auto`, or numbers of rows")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--seeds", type=int, default=2, help="the number of releases, each with fresh noise")
    parser.add_argument("--columns", type=int, help="release only so many of the columns, the first ones")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table = load(arguments.data, columns=arguments.columns)
    errors = {}
    for limit in arguments.limits:
        runs = [
            measure(table, limit=limit, epsilon=arguments.epsilon, delta=arguments.delta)
            for _ in range(arguments.seeds)
        ]
        errors[limit] = statistics.mean(run["error"][3] for run in runs)
        result = {"data": table.name, "columns": len(table.sizes), "limit": limit, "epsilon": arguments.epsilon}
        result |= {"chosen": [run["chosen"] for run in runs], "error": _mean([run["error"] for run in runs])}
        result |= {"cpu_seconds": statistics.mean(run["cpu_seconds"] for run in runs)}
        print(json.dumps(result) if arguments.json else _text(result), flush=True)
    fixed = [error for limit, error in errors.items() if limit != "auto"]
    if "auto" in errors and fixed and not arguments.json:
        print(f"auto has {errors['auto'] / min(fixed):.3f} times the 3-way error of the best fixed limit")


def load(name: str, *, columns: int | None) -> BenchmarkTable:
    """Load a table with the column that identifies its persons."""
    folder, universe = shared_data(), load_spec(SPECS / f"{name}.yaml").universe
    if columns is not None:
        universe = type(universe)(dict(list(universe.attributes.items())[:columns]))
    raw = TABLES[name](folder) if name in TABLES else pd.read_parquet(folder / "retrosheet_plays.parquet")
    table = code(name, raw, universe)
    return replace(table, original=raw[[PERSONS[name], *table.sizes]])


def measure(table: BenchmarkTable, *, limit: str, epsilon: float, delta: float) -> dict[str, Any]:
    """Make a release in its own process, and return its errors, the limit that it used, and its cost."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        table.original.to_parquet(base / "table.parquet", index=False)
        spec = yaml.safe_load((SPECS / f"{table.name}.yaml").read_text(encoding="utf-8"))
        made = {
            "dataset": table.name,
            "source": {"path": "table.parquet"},
            "privacy": {
                "unit": PERSONS[table.name],
                "max_rows_per_unit": limit if limit == "auto" else int(limit),
                "neighbours": "add-remove",
                "epsilon": epsilon,
                "delta": delta,
            },
            "universe": {name: spec["universe"][name] for name in table.sizes},
            "workload": {"marginals": 3},
        }
        (base / "spec.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")
        cost = cost_of_release(base)
        release = next(base.glob("releases/*/*/data")).parent
        privacy = json.loads((release / "manifest.json").read_text(encoding="utf-8"))["privacy"]
        synthetic = table.coded(parquet.read_table(release / "data"))
    error = {order: workload_error(table, synthetic, order=order) for order in ORDERS}
    return {**cost, "chosen": privacy["max_rows_per_unit"], "error": error}


def _mean(errors: list[dict[int, float]]) -> dict[int, float]:
    return {order: statistics.mean(each[order] for each in errors) for order in ORDERS}


def _text(result: dict[str, Any]) -> str:
    error = "".join(f"{result['error'][order]:9.4f}" for order in ORDERS)
    used = ", ".join(map(str, result["chosen"]))
    return f"{result['data']:12} limit {result['limit']:>4} (used {used}):{error}  1-, 2-, 3-way; {result['cpu_seconds']:.1f} CPU s"


if __name__ == "__main__":
    main()
