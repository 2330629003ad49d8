"""Measure releases at full resolution: distributions, atoms, means and correlations of numbers, and the error of marginals of binned rows.

    python -m benchmarks.resolution [--only adult|clinic|diabetes|zeros] [--spec SPEC] [--seeds 5] [--json]

Each repetition is a whole release in its own process. `zeros` is a made table whose columns are mostly 0: do the means of the rows lie
within the intervals of `dpflow answer`, and does the truth? `--spec` asks the same of a Parquet file with a spec of its own. `adult` declares ranges and steps only. Its rows are also coded by the bins of
`adult_discretized`, and the error of their 3-way marginals is divided by that of a release of the binned table itself.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from pyarrow import parquet

from benchmarks.release_cost import cost_of_release
from benchmarks.tables import SPECS, BenchmarkTable, code, shared_data
from benchmarks.workload_error import workload_error
from dpcore import answer
from dpcore.spec import load_spec
from dpcore.universe import Integer, Number, Universe

ATOMS = 10
FINE = ("age", "hours-per-week", "fnlwgt", "capital-gain", "capital-loss")
BINS: dict[str, dict[str, Any]] = {  # those of adult_discretized, as its codes show
    "age": {"type": "integer", "min": 0, "max": 119, "width": 1},
    "fnlwgt": {"type": "number", "edges": [0, *range(10_000, 1_500_001, 14_900)]},
    "capital-gain": {"type": "integer", "min": 0, "max": 99_999, "width": 1000},
    "capital-loss": {"type": "integer", "min": 0, "max": 9_999, "width": 50},
    "hours-per-week": {"type": "integer", "min": 0, "max": 99, "width": 1},
}
CORRELATIONS = {
    "adult": (("educational-num", "hours-per-week"), ("capital-gain", "age")),
    "diabetes": (("time_in_hospital", "num_medications"),),
}
CLINIC = Path(__file__).parents[1] / "data" / "clinic-visits.yaml"


def main() -> None:
    """Run the benchmark and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5, help="the number of releases, each with fresh noise")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--spec", type=Path, help="compare the means of this spec's columns instead")
    arguments = parser.parse_args()
    parts = {arguments.spec.stem: partial(own, arguments.spec)} if arguments.spec else PARTS
    for name in [arguments.only] if arguments.only else parts:
        runs = [parts[name]() for _ in range(arguments.seeds)]
        means = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
        if arguments.json:
            print(json.dumps({"part": name, "seeds": arguments.seeds, "mean": means, "runs": runs}), flush=True)
            continue
        print(f"{name}, mean of {arguments.seeds} runs")
        for key, value in means.items():
            print(f"  {key:50}{value:10.4f}   " + " ".join(f"{run[key]:.4f}" for run in runs), flush=True)


def released(
    spec: dict[str, Any], table: pd.DataFrame, *, question: str = "select count(*) from release"
) -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Make a release of a table in its own process. Return its rows as a frame and as an Arrow table, and its cost and answer."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        table.to_parquet(base / "table.parquet", index=False)
        spec = {**spec, "source": {"path": "table.parquet"}, "output": {"path": "releases"}}
        (base / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
        cost = cost_of_release(base, currency=None)
        data = next(base.glob("releases/*/*/data"))
        rows, cost["answer"] = parquet.read_table(data), answer(data.parent, question)
    return rows.to_pandas(), rows, cost


def adult() -> dict[str, float]:
    """Release Adult at full resolution and in bins."""
    spec = yaml.safe_load((SPECS / "adult_full.yaml").read_text(encoding="utf-8"))
    true = pd.read_parquet(shared_data() / "adult.parquet")[list(spec["universe"])]
    binned = {**spec, "universe": {**spec["universe"], **BINS}}
    table = _binned(true)
    rows, fine, cost = released(spec, true)
    _, coarse, coarse_cost = released(binned, true)
    found = {f"KS of {column}": ks(true[column], rows[column]) for column in FINE}
    found |= {f"atoms of {column}": atoms(true[column], rows[column]) for column in FINE}
    found |= {
        f"relative error of the mean of {column}": rows[column].mean() / true[column].mean() - 1 for column in FINE
    }
    found |= _correlations("adult", true, rows)
    errors = {
        name: workload_error(table, table.coded(each), order=3) for name, each in (("fine", fine), ("bins", coarse))
    }
    found |= {f"3-way error, {name}": error for name, error in errors.items()}
    found |= {"3-way error, ratio": errors["fine"] / errors["bins"]}
    return found | {"CPU s, fine": cost["cpu_seconds"], "CPU s, bins": coarse_cost["cpu_seconds"]}


def _binned(true: pd.DataFrame) -> BenchmarkTable:
    universe = dict(load_spec(SPECS / "adult_full.yaml").universe.attributes)
    for column, bins in BINS.items():
        universe[column] = (
            Number(tuple(map(float, bins["edges"])))
            if "edges" in bins
            else Integer(minimum=bins["min"], maximum=bins["max"], width=bins["width"])
        )
    return code("adult_full", true, Universe(universe))


def clinic() -> dict[str, float]:
    """Release the sample, and ask the README's question."""
    spec = yaml.safe_load(CLINIC.read_text(encoding="utf-8"))
    true = pd.read_csv(CLINIC.with_name("clinic-visits.csv"), parse_dates=["visit_date"])
    rows, _, cost = released(spec, true)
    true = true[true["cost"].isna() | true["cost"].ge(0)]
    by = true.groupby("department")["cost"].mean()
    errors = (rows.groupby("department")["cost"].mean() / by - 1).abs()
    overall = rows["cost"].mean() / true["cost"].mean() - 1
    return {
        "relative error of avg(cost) by department": errors.mean(),
        "its largest": errors.max(),
        "relative error of avg(cost)": overall,
        "KS of cost": ks(true["cost"].dropna(), rows["cost"].dropna()),
        "CPU s": cost["cpu_seconds"],
    }


def diabetes() -> dict[str, float]:
    """Release a few columns of the diabetes table, with its counts at full resolution."""
    columns = {
        "time_in_hospital": {"type": "integer", "min": 1, "max": 14},
        "num_medications": {"type": "integer", "min": 0, "max": 199},
        "num_lab_procedures": {"type": "integer", "min": 0, "max": 199},
        "number_outpatient": {"type": "integer", "min": 0, "max": 99},
    }
    privacy = {"unit": "row", "neighbours": "add-remove", "epsilon": 1.0, "delta": 1e-9}
    true = pd.read_parquet(shared_data() / "diabetes_130us.parquet", columns=list(columns))
    spec = {"dataset": "diabetes", "privacy": privacy, "universe": columns, "workload": {"marginals": 2}}
    rows, _, cost = released(spec, true)
    fine = list(columns)[1:]
    found = {f"KS of {column}": ks(true[column], rows[column]) for column in fine}
    return found | _correlations("diabetes", true, rows) | {"CPU s": cost["cpu_seconds"]}


def mostly_zero(rows: int = 5000) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the columns of a table that are mostly 0, in a range far beyond most other values, and the table."""
    rng = np.random.default_rng(7)
    amounts = {
        "rare": (0.004, rng.integers(200, 900, rows), 5_000),
        "heavy": (0.03, np.minimum(rng.lognormal(6, 1.5, rows), 20_000), 20_000),
        "fees": (0.1, rng.exponential(60, rows), 10_000),
        "liens": (0.02, rng.poisson(2, rows) + 1, 100),
        "third": (0.33, rng.gamma(2, 150, rows), 10_000),
        "never": (0.0, np.zeros(rows), 20_000),
        "income": (1.0, rng.lognormal(10.5, 0.8, rows), 1_000_000),
    }
    columns = {name: {"type": "integer", "min": 0, "max": most} for name, (_, _, most) in amounts.items()}
    table = {
        name: np.where(rng.random(rows) < share, values, 0).astype(np.int64)
        for name, (share, values, _) in amounts.items()
    }
    return columns, pd.DataFrame(table)


def zeros() -> dict[str, float]:
    """Release the table that is mostly 0."""
    columns, table = mostly_zero()
    privacy = {"unit": "row", "neighbours": "add-remove", "epsilon": 1.0, "delta": 1e-9}
    return means({"dataset": "zeros", "privacy": privacy, "universe": columns, "workload": {"marginals": 2}}, table)


def own(path: Path) -> dict[str, float]:
    """Release the Parquet file of a spec."""
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    return means(spec, pd.read_parquet(path.with_name(spec["source"]["path"]), columns=list(spec["universe"])))


def means(spec: dict[str, Any], true: pd.DataFrame) -> dict[str, float]:
    """Return the shares of ordered columns whose mean, in the rows and in truth, lies within its interval, and the means in the rows."""
    ordered = [name for name, column in spec["universe"].items() if column["type"] in ("integer", "number")]
    asked = ", ".join(f"avg({name}) as {name}" for name in ordered)
    rows, _, cost = released(spec, true, question=f"select {asked} from release")  # noqa: S608  generated here
    found = cost["answer"]

    def within(table: pd.DataFrame) -> float:
        ends = [(found[f"{name}_low"][0], found[f"{name}_high"][0]) for name in ordered]
        return float(
            np.mean([low <= table[name].mean() <= high for name, (low, high) in zip(ordered, ends, strict=True)])
        )

    shares = {"means of rows within intervals": within(rows), "true means within intervals": within(true)}
    return shares | {f"mean of {name}, truly {true[name].mean():.4g}": rows[name].mean() for name in ordered}


def _correlations(name: str, true: pd.DataFrame, rows: pd.DataFrame) -> dict[str, float]:
    return {
        f"correlation of {one} with {other}, error": rows[one].corr(rows[other]) - true[one].corr(true[other])
        for one, other in CORRELATIONS[name]
    }


def ks(true: "pd.Series[Any]", made: "pd.Series[Any]") -> float:
    """Return the largest difference of the distribution functions."""
    values = np.union1d(true, made)
    one, other = (np.searchsorted(np.sort(each), values, side="right") / len(each) for each in (true, made))
    return float(np.abs(one - other).max())


def atoms(true: "pd.Series[Any]", made: "pd.Series[Any]") -> float:
    """Return the L1 distance over the most frequent values."""
    shares = true.value_counts(normalize=True).head(ATOMS)
    return float((shares - made.value_counts(normalize=True).reindex(shares.index, fill_value=0)).abs().sum())


PARTS: dict[str, Callable[[], dict[str, float]]] = {
    "adult": adult,
    "clinic": clinic,
    "diabetes": diabetes,
    "zeros": zeros,
}

if __name__ == "__main__":
    main()
