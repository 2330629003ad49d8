"""Two releases of one table for the same epsilon, the second with the measurements of the first: `prior: {release: latest, unchanged: true}`.

    python -m benchmarks.unchanged --data adult7 --strategy mwem --epsilon 0.5 --seeds 3

Whole releases with seeded noise. Printed are the mean error of 3-way marginals of the first release, of the second, and of one release for
both budgets together, which is the best that the second can be expected to reach; and how often the second's 95 % intervals of random counts
contain the truth.
"""

import argparse
import json
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.coverage_questions import ask
from benchmarks.coverage_releases import PLENTY, seeded, table_of
from benchmarks.curator_questions import Codes, coded
from benchmarks.tables import TABLES
from dpcore import synthesize
from dpcore.answers.release import Release, open_release
from dpcore.ledger import open_ledger
from dpcore.marginals.workload import Workload
from dpcore.privacy.accounting import Currency, budget_of, epsilon_of
from dpcore.privacy.protection import Neighbours

DELTA = 1e-9
MOST_MARGINALS = 100


def main() -> None:
    """Print one JSON object for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=[*TABLES, "sample"], default="adult7")
    parser.add_argument("--strategy", choices=("mwem", "adaptive"), default="mwem")
    parser.add_argument("--epsilon", type=float, default=0.5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--questions", type=int, default=60)
    arguments = parser.parse_args()
    for seed in range(1, arguments.seeds + 1):
        with tempfile.TemporaryDirectory() as folder, chdir(folder), seeded(seed):
            print(json.dumps(vars(arguments) | {"seed": seed} | compared(arguments, seed)), flush=True)


def compared(arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Make the three releases in the working folder, and compare them."""
    spec, table = table_of(arguments.data)
    spec["strategy"] = {"name": arguments.strategy}
    _, amount = budget_of(arguments.epsilon, delta=DELTA, currency=Currency.GDP)
    together = epsilon_of(2 * amount, currency=Currency.GDP, delta=DELTA)
    first = _released(spec, table, epsilon=arguments.epsilon)
    second = _released(spec | {"prior": {"release": "latest", "unchanged": True}}, table, epsilon=arguments.epsilon)
    whole = _released(spec | {"dataset": "together"}, table, epsilon=together)
    name = {"data": arguments.data, "strategy": arguments.strategy, "epsilon": arguments.epsilon, "seed": seed}
    asked = ask(second, table, name, questions=arguments.questions, seed=seed, left_out=False)
    counts = [each for each in asked.records if each.kind == "count"]
    return {
        "first": _error(first, table),
        "second": _error(second, table),
        "together": _error(whole, table),
        "covered": float(np.mean([each.covered for each in counts])),
    }


def _released(spec: dict[str, Any], table: pd.DataFrame, *, epsilon: float) -> Release:
    told = spec | {"privacy": spec["privacy"] | {"epsilon": epsilon}}
    Path("spec.yaml").write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
    with open_ledger(create=True) as ledger:
        if spec["dataset"] not in {account.name for account in ledger.accounts()}:
            ledger.open_account(
                spec["dataset"],
                currency=Currency.GDP,
                cap=budget_of(PLENTY, delta=DELTA, currency=Currency.GDP)[1],
                epsilon=PLENTY,
                delta=DELTA,
                unit="row",
                neighbours=Neighbours.ADD_REMOVE,
            )
    return open_release(synthesize("spec.yaml", table=table).release)


def _error(release: Release, table: pd.DataFrame) -> float:
    """Return the mean L1 distance of 3-way marginals of the model, or of the first hundred, in a seeded order."""
    codes, shape = coded(release.universe, table), release.universe.shape
    sets = list(Workload.all_of(attributes=len(shape), order=3).marginals)
    chosen = np.random.default_rng(1).permutation(len(sets))[:MOST_MARGINALS]
    return float(np.mean([_distance(release, codes, tuple(sets[place])) for place in chosen.tolist()]))


def _distance(release: Release, codes: Codes, axes: tuple[int, ...]) -> float:
    true = np.zeros([release.universe.shape[axis] for axis in axes])
    np.add.at(true, tuple(codes[axis] for axis in axes), 1)
    made = release.model.marginal(axes)
    return float(np.abs(made / made.sum() - true / true.sum()).sum())


if __name__ == "__main__":
    main()
