"""Twelve months of retrosheet, released one by one: each from equal weights, or each from the rows of the month before (`prior: latest`).

    python -m benchmarks.latest --strategy mwem --seeds 1

Releases are simulated, with seeded noise. Printed for each epsilon are the mean errors of 3-way marginals over the months after the first, with
and without the start, and for how many months the gate has taken it. `shuffled` is the control: the month before with the values of each
column shuffled, so that its columns are right and its relations are not.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml

from benchmarks.series import MONTHS, NARROW
from benchmarks.simulated import SeededCurator, Table, release
from benchmarks.tables import SPECS, shared_data
from dpcore.models.start import PublicRows
from dpcore.spec import Declaration, load_spec
from dpcore.strategies import strategy_for
from dpcore.tables.reading.encoding import encode_rows

KINDS = ("none", "latest", "shuffled")


def declared(strategy: str, *, epsilon: float) -> Declaration:
    """Return the declaration of one month."""
    spec: dict[str, Any] = yaml.safe_load((SPECS / "retrosheet.yaml").read_text(encoding="utf-8"))
    del spec["source"]
    spec |= {"privacy": {"unit": "row", "neighbours": "add-remove", "epsilon": epsilon, "delta": 1e-9}}
    spec |= {"strategy": {"name": strategy}, "workload": {"marginals": 3}}
    if strategy == "mwem":
        spec["universe"] = {name: spec["universe"][name] for name in NARROW}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
        return load_spec(path, with_table=True)


def months_of(declaration: Declaration) -> list[Table]:
    """Return the coded rows of each month."""
    plays = pd.read_parquet(shared_data() / "retrosheet_plays.parquet")
    day, universe = pd.to_datetime(plays["game_date"]).dt, declaration.universe
    sizes, found = universe.shape, []
    for year, month in MONTHS:
        rows = plays.loc[(day.year == year) & (day.month == month), list(universe.names)]
        batches = pa.Table.from_pandas(rows, preserve_index=False).combine_chunks().to_batches()
        coded = [encode_rows(universe, batch)[0] for batch in batches]
        codes = tuple(np.concatenate(each).astype(np.int64) for each in zip(*coded, strict=True))
        found.append(Table(f"{year}-{month:02}", codes, sizes))
    return found


def series(months: list[Table], declaration: Declaration, *, kind: str, seed: int) -> tuple[list[float], int]:
    """Release the months in their order. Return the error of each, and how many have started from the month before."""
    errors, taken, before = [], 0, None
    privacy = declaration.spec.privacy
    for number, table in enumerate(months):
        strategy = strategy_for(declaration)
        if kind != "none" and before is not None:
            public = before.independent(seed=seed) if kind == "shuffled" else before
            strategy.prior = PublicRows(dict(enumerate(public.codes)), public.rows)
        drawn = 1000 * seed + number
        curator = SeededCurator(table, epsilon=privacy.epsilon, delta=privacy.delta, currency=None, seed=drawn)
        before = release(strategy, curator, seed=drawn)
        taken += strategy.gate is not None and strategy.gate.taken
        errors.append(table.error(before, order=3))
    return errors, taken


def main() -> None:
    """Run the benchmark and print one JSON object for each epsilon and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=("mwem", "adaptive"), default="mwem")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epsilon", type=float, action="append")
    arguments = parser.parse_args()
    for epsilon in arguments.epsilon or (0.1, 1.0):
        declaration = declared(arguments.strategy, epsilon=epsilon)
        months = months_of(declaration)
        for seed in range(1, arguments.seeds + 1):
            made = {kind: series(months, declaration, kind=kind, seed=seed) for kind in KINDS}
            means = {kind: statistics.mean(errors[1:]) for kind, (errors, _) in made.items()}
            print(
                json.dumps(
                    {
                        "strategy": arguments.strategy,
                        "epsilon": epsilon,
                        "seed": seed,
                        "error": {kind: round(each, 4) for kind, each in means.items()},
                        "ratio": {kind: round(each / means["none"], 3) for kind, each in means.items()},
                        "taken": {kind: taken for kind, (_, taken) in made.items()},
                        "by_month": [
                            round(one / other, 3) for one, other in zip(made["latest"][0], made["none"][0], strict=True)
                        ],
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
