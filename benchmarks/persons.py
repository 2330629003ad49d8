"""Compare the rows per synthetic person with those of the table, and check that constant columns are constant.

    python -m benchmarks.persons --seeds 3

Patients of `diabetes` agree in race, gender and age. Batters of `retrosheet` have no constant column in the table; `half` is declared to be
one, which nearly all batters contradict, so that the policy for contradictions is measured too.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.tables import SPECS, shared_data
from dpcore.ledger import open_ledger
from dpcore.places import LEDGER_VARIABLE, PRIVATE_VARIABLE, set_variables
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.runs.steps import synthesize


@dataclass(frozen=True)
class Table:
    """A table of persons, and what a release of it declares."""

    file: str
    person: str
    constant: tuple[str, ...]
    columns: int
    limit: int


TABLES = {
    "diabetes": Table("diabetes_130us.parquet", "patient_nbr", ("race", "gender", "age"), columns=6, limit=4),
    "retrosheet": Table("retrosheet_plays.parquet", "batter_id", ("half",), columns=5, limit=20),
}


def main() -> None:
    """Make the releases, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=list(TABLES), nargs="+", default=list(TABLES))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--seeds", type=int, default=3, help="the number of releases, each with fresh noise")
    parser.add_argument("--share", type=float, default=0.1)
    arguments = parser.parse_args()
    for name in arguments.data:
        for _ in range(arguments.seeds):
            found = measure(name, epsilon=arguments.epsilon, delta=arguments.delta, share=arguments.share)
            print(
                json.dumps({"data": name, "epsilon": arguments.epsilon, "share": arguments.share, **found}), flush=True
            )


def measure(name: str, *, epsilon: float, delta: float, share: float) -> dict[str, Any]:
    """Make a release, and compare its persons with those of the table."""
    table = TABLES[name]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        spec = base / "spec.yaml"
        spec.write_text(yaml.safe_dump(_spec(name, epsilon=epsilon, delta=delta, share=share)), encoding="utf-8")
        places = {LEDGER_VARIABLE: f"sqlite:///{base / 'ledger.sqlite'}", PRIVATE_VARIABLE: str(base / "private")}
        with set_variables(places):
            with open_ledger(create=True) as ledger:
                ledger.open_account(
                    name,
                    currency=Currency.GDP,
                    cap=budget_of(2 * epsilon, delta=delta, currency=Currency.GDP)[1],
                    epsilon=2 * epsilon,
                    delta=delta,
                    unit=table.person,
                    neighbours=Neighbours.ADD_REMOVE,
                )
            rows = pd.read_parquet(Path(synthesize(spec).release) / "data")
    persons = rows.groupby(table.person)
    truth = pd.read_parquet(shared_data() / table.file, columns=[table.person]).groupby(table.person).size()
    return {
        "ks": round(largest_gap(truth.clip(upper=table.limit), persons.size(), most=table.limit), 4),
        "persons": len(persons),
        "true_persons": len(truth),
        "not_constant": int((persons[list(table.constant)].nunique(dropna=False) > 1).to_numpy().sum()),
    }


def largest_gap(one: Sequence[int], other: Sequence[int], *, most: int) -> float:
    """Return the distance of Kolmogorov and Smirnov between two distributions of whole numbers up to `most`."""
    shares = [np.bincount(sizes, minlength=most + 1) / len(sizes) for sizes in (one, other)]
    return float(np.abs(np.cumsum(shares[0]) - np.cumsum(shares[1])).max())


def _spec(name: str, *, epsilon: float, delta: float, share: float) -> dict[str, Any]:
    table = TABLES[name]
    universe = yaml.safe_load((SPECS / f"{name}.yaml").read_text(encoding="utf-8"))["universe"]
    return {
        "dataset": name,
        "source": {"path": str(shared_data() / table.file)},
        "privacy": {
            "unit": table.person,
            "max_rows_per_unit": table.limit,
            "neighbours": "add-remove",
            "epsilon": epsilon,
            "delta": delta,
        },
        "persons": {"rows_of": table.person, "constant": list(table.constant), "share": share},
        "universe": dict(list(universe.items())[: table.columns]),
        "workload": {"marginals": 2},
    }


if __name__ == "__main__":
    main()
