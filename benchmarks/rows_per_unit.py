"""Releases of tables in which a person has many rows: `max_rows_per_unit: auto`, which describes all rows, and fixed limits.

    python -m benchmarks.rows_per_unit --data diabetes --limits auto 2 4 --seeds 5 --json

The error is that of the synthetic rows' marginals against the whole table, beside that of shuffled columns. Each repetition is a whole release in
its own process. `nafld` is survival::nafld2, the labs of patients, joined with survival::nafld1, and needs `DPFLOW_R_TABLES`
(`benchmarks.r_tables` says how). `single` is Adult with an id for each row: nobody has more than one.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from pyarrow import parquet

from benchmarks.r_tables import data_set
from benchmarks.release_cost import cost_of_release
from benchmarks.simulated import Table
from benchmarks.tables import shared_data

LIMITS = ("auto", "1", "2", "4", "8", "16", "32")
ORDERS = (1, 2, 3)
PERSON = "person"
ORDERED = {"age", "bmi", "value", "days", "time_in_hospital", "num_medications", "number_inpatient", "inning", "balls"}


def main() -> None:
    """Make the releases, and print one line for each limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=list(TABLES), default="diabetes")
    parser.add_argument("--limits", nargs="+", default=LIMITS, help="`auto`, or numbers of rows")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--seeds", type=int, default=2, help="the number of releases, each with fresh noise")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    frame, errors = TABLES[arguments.data](), {}
    table = coded(frame, arguments.data)
    shuffled = table.error(table.independent(seed=1), order=3)
    for limit in arguments.limits:
        runs = [
            measure(frame, table, limit=limit, epsilon=arguments.epsilon, delta=arguments.delta)
            for _ in range(arguments.seeds)
        ]
        errors[limit] = statistics.mean(run["error"][3] for run in runs)
        result = {"data": table.name, "columns": len(table.sizes), "limit": limit, "epsilon": arguments.epsilon}
        result |= {"chosen": [run["chosen"] for run in runs], "error": _mean([run["error"] for run in runs])}
        result |= {"shuffled": shuffled, "rows": [run["rows"] for run in runs], "of": table.rows}
        result |= {"cpu_seconds": statistics.mean(run["cpu_seconds"] for run in runs)}
        print(json.dumps(result) if arguments.json else _text(result), flush=True)
    fixed = [error for limit, error in errors.items() if limit != "auto"]
    if "auto" in errors and fixed and not arguments.json:
        print(f"auto has {errors['auto'] / min(fixed):.3f} times the 3-way error of the best fixed limit")


def _diabetes() -> pd.DataFrame:
    columns = ["age", "race", "gender", "time_in_hospital", "admission_type_id", "num_medications", "readmitted"]
    table = pd.read_parquet(shared_data() / "diabetes_130us.parquet").rename(columns={"patient_nbr": PERSON})
    table["num_medications"] = pd.cut(table["num_medications"], 12, labels=False)
    return table[[PERSON, *columns, "number_inpatient"]]


def _nafld() -> pd.DataFrame:
    patients, labs = (data_set(f"survival/nafld{number}") for number in (1, 2))
    patients["age"] = (patients["age"] // 10).clip(1, 9)
    patients["bmi"] = pd.cut(patients["bmi"], [0, 20, 25, 30, 35, 40, 100], labels=False).fillna(6)
    deciles = labs.groupby("test")["value"]
    labs["value"] = deciles.transform(lambda values: pd.qcut(values, 10, labels=False, duplicates="drop"))
    labs["days"] = pd.cut(labs["days"], 20, labels=False)
    columns = ["age", "male", "bmi", "status"]
    joined = labs.merge(patients[["id", *columns]], on="id").rename(columns={"id": PERSON})
    return joined[[PERSON, *columns, "test", "value", "days"]]


def _retrosheet() -> pd.DataFrame:
    columns = ["home_team", "visiting_team", "day_night", "inning", "half", "balls"]
    plays = pd.read_parquet(shared_data() / "retrosheet_plays.parquet").rename(columns={"batter_id": PERSON})
    return plays[[PERSON, *columns]]


def _single() -> pd.DataFrame:
    table = pd.read_parquet(shared_data() / "adult_discretized.parquet")
    few = [name for name in table if table[name].nunique() <= 20]
    return table[few[:7]].assign(**{PERSON: np.arange(len(table))})[[PERSON, *few[:7]]]


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "diabetes": _diabetes,
    "nafld": _nafld,
    "retrosheet": _retrosheet,
    "single": _single,
}


def coded(frame: pd.DataFrame, name: str) -> Table:
    """Replace each value by its rank."""
    codes = [np.unique(_values(frame[column]), return_inverse=True)[1] for column in frame if column != PERSON]
    return Table(name, tuple(code.astype(np.int64) for code in codes), tuple(int(code.max()) + 1 for code in codes))


def _values(column: pd.Series) -> Any:
    return (
        column.to_numpy() if pd.api.types.is_numeric_dtype(column) else column.astype("string").fillna("").to_numpy(str)
    )


def measure(frame: pd.DataFrame, table: Table, *, limit: str, epsilon: float, delta: float) -> dict[str, Any]:
    """Make a release in its own process, and return its errors, the limit that it used, and its cost."""
    names = [name for name in frame if name != PERSON]
    sizes = dict(zip(names, table.sizes, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        rows = pd.DataFrame(dict(zip(names, table.codes, strict=True))).assign(
            **{PERSON: frame[PERSON].astype(str).to_numpy()}
        )
        rows.to_parquet(base / "table.parquet", index=False)
        made = {
            "dataset": table.name,
            "source": {"path": "table.parquet"},
            "privacy": {
                "unit": PERSON,
                "max_rows_per_unit": limit if limit == "auto" else int(limit),
                "neighbours": "add-remove",
                "epsilon": epsilon,
                "delta": delta,
            },
            "universe": {name: _declared(name, size) for name, size in sizes.items()},
            "workload": {"marginals": 3},
            "strategy": {"name": "adaptive"},
        }
        (base / "spec.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")
        cost = cost_of_release(base)
        release = next(base.glob("releases/*/*/data")).parent
        privacy = json.loads((release / "manifest.json").read_text(encoding="utf-8"))["privacy"]
        released = parquet.read_table(release / "data").to_pandas()
    made_up = Table("", tuple(released[name].astype(np.int64).to_numpy() for name in names), table.sizes)
    error = {order: table.error(made_up, order=order) for order in ORDERS}
    return {**cost, "chosen": privacy["max_rows_per_unit"], "error": error, "rows": made_up.rows}


def _declared(name: str, size: int) -> dict[str, Any]:
    if name in ORDERED:
        return {"type": "integer", "min": 0, "max": size - 1}
    return {"type": "categorical", "values": list(map(str, range(size)))}


def _mean(errors: list[dict[int, float]]) -> dict[int, float]:
    return {order: statistics.mean(each[order] for each in errors) for order in ORDERS}


def _text(result: dict[str, Any]) -> str:
    error = "".join(f"{result['error'][order]:9.4f}" for order in ORDERS)
    used = ", ".join(map(str, result["chosen"]))
    rows = statistics.mean(result["rows"]) / result["of"]
    return (
        f"{result['data']:12} limit {result['limit']:>4} (used {used}):{error}  1-, 2-, 3-way (shuffled columns {result['shuffled']:.4f}); "
        f"{rows:.3f} of the rows; {result['cpu_seconds']:.1f} CPU s"
    )


if __name__ == "__main__":
    main()
