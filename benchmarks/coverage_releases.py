"""Seeded releases of known tables, for `benchmarks.coverage`: made as a whole, with spec, ledger, rounds and files."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks import r_tables
from benchmarks.tables import SPECS, TABLES, shared_data
from dpcore import synthesize
from dpcore.answers.release import Release
from dpcore.answers.uncertainty import Uncertainty
from dpcore.ledger import open_ledger
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.runs import draft

SAMPLE = Path(__file__).parents[1] / "data" / "clinic-visits.yaml"
PLENTY = 1000.0  # the epsilon of each account


def table_of(name: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the spec of a table, and the table. The unit is the row, so that the truth is a count of rows."""
    if "/" in name:
        return r_tables.table(name)
    path = SAMPLE if name == "sample" else SPECS / f"{name}.yaml"
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    spec["privacy"] = {"unit": "row", "neighbours": "add-remove", "epsilon": 1.0, "delta": 1e-9}
    spec.pop("output", None)
    if name == "sample":
        csv = path.with_name(spec.pop("source")["path"])
        return spec, pd.read_csv(csv, parse_dates=["visit_date"], date_format="mixed")
    del spec["source"]
    return spec, TABLES[name](shared_data())


def released(  # noqa: PLR0913  all that a release depends on
    folder: Path,
    table: tuple[dict[str, Any], pd.DataFrame],
    *,
    strategy: str,
    epsilon: float,
    seed: int,
    currency: Currency = Currency.ZCDP,
) -> dict[str, float]:
    """Make a release in a folder with seeded noise, unless it is there. Return the CPU seconds of its replicates, and of all else."""
    beside = folder.with_name(f"{folder.name}.json")
    if folder.exists():
        return dict(json.loads(beside.read_text(encoding="utf-8")))
    spec = {**table[0], "strategy": {"name": strategy}, "privacy": {**table[0]["privacy"], "epsilon": epsilon}}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as base, chdir(base), seeded(seed):
        Path("spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
        _, cap = budget_of(PLENTY, delta=1e-9, currency=currency)
        with open_ledger(create=True) as ledger:
            ledger.open_account(
                spec["dataset"],
                currency=currency,
                cap=cap,
                epsilon=PLENTY,
                delta=1e-9,
                unit="row",
                neighbours=Neighbours.ADD_REMOVE,
            )
        with _timed_replicates() as replicates:
            begin = time.process_time()
            made = Path(synthesize("spec.yaml", table=table[1]).release)
            seconds = time.process_time() - begin
        costs = {"replicates_cpu_seconds": sum(replicates), "release_cpu_seconds": seconds - sum(replicates)}
        beside.write_text(json.dumps(costs), encoding="utf-8")
        shutil.move(made.resolve(), folder)
    return costs


@contextmanager
def _timed_replicates() -> Iterator[list[float]]:
    """Collect the CPU seconds that replicates take."""
    seconds: list[float] = []
    make = draft.make_uncertainty

    def timed(release: Release, **options: Any) -> Uncertainty:
        begin = time.process_time()
        try:
            return make(release, **options)
        finally:
            seconds.append(time.process_time() - begin)

    draft.make_uncertainty = timed
    try:
        yield seconds
    finally:
        draft.make_uncertainty = make


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Replace all randomness of this process by a seeded generator. Never do this with private data."""
    before, rng = entropy.random_words, np.random.default_rng(seed)
    entropy.random_words = lambda count: rng.integers(0, 2**64, count, dtype=np.uint64)
    try:
        yield
    finally:
        entropy.random_words = before
