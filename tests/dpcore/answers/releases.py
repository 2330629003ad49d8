"""Small releases with every kind of column, for questions, and releases whose manifests are edited."""

import hashlib
import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from pydantic import TypeAdapter

from dpcore import synthesize
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.release.signing import encode_sums
from dpcore.spec.release import AttributeSpec
from dpcore.universe import Universe

EVERY_KIND = """\
dataset: kinds
privacy: {unit: row, neighbours: add-remove, epsilon: 20, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M], missing: true}
  city: {type: categorical, values: [north, south, west, "o'hara"], outside: other}
  grade: {type: categorical, values: [1, 2, 3.5], outside: other}
  code: {type: categorical, discover: {most: 5, length: 2, alphabet: ABC, share: 0.1}}
  smoker: {type: boolean, missing: true}
  age: {type: integer, min: 0, max: 99, width: 25, missing: true}
  children: {type: integer, min: 0, max: 9}
  weight: {type: integer, min: -50, max: 150, discover: {bins: 6, share: 0.05}}
  income: {type: number, edges: [-10, 0, 10, 40, 100]}
  cost: {type: number, min: 0, max: 100, step: 0.01, missing: true}
  hours: {type: integer, min: -20, max: 79}
  born: {type: date, min: 2024-12-15, max: 2025-12-20, every: month, missing: true}
  day: {type: date, min: 2025-01-01, max: 2025-12-31}
  at: {type: datetime, min: 2025-01-01T06:00:00, max: 2025-03-31T20:00:00, step: hour}
  seen: {type: datetime, min: 2025-01-01T00:00:00, max: 2025-01-03T12:00:00, every: hour}
workload: {marginals: 2}
strategy: {name: adaptive, rounds: 4}
"""

DENSE = """\
dataset: dense
privacy: {unit: row, neighbours: add-remove, epsilon: 20, delta: 1e-9, expect_rows: [100, 100000]}
universe:
  sex: {type: categorical, values: [F, M], missing: true}
  city: {type: categorical, values: [north, south, west, "o'hara"], outside: other}
  age: {type: integer, min: 0, max: 99, width: 25, missing: true}
  smoker: {type: boolean, missing: true}
  income: {type: number, edges: [-10, 0, 10, 40, 100]}
workload: {marginals: 2}
strategy: STRATEGY
"""


def table(rows: int, *, seed: int) -> pd.DataFrame:
    """Make a table with nulls, values outside the universe, and columns that depend on each other."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 110, rows)
    moments = pd.Timestamp("2025-01-01") + pd.to_timedelta(
        rng.integers(0, 90, rows) * 24 + rng.choice([8, 9, 17], rows), "h"
    )
    frame = pd.DataFrame(
        {
            "sex": rng.choice(np.array(["F", "M", None], dtype=object), rows, p=[0.6, 0.35, 0.05]),
            "city": rng.choice(["north", "south", "west", "o'hara", "else"], rows, p=[0.4, 0.3, 0.1, 0.1, 0.1]),
            "grade": rng.choice([1, 2, 3.5, 7], rows, p=[0.4, 0.3, 0.2, 0.1]),
            "code": rng.choice(["A", "AB", "C", "BB", "CCC"], rows, p=[0.4, 0.3, 0.1, 0.1, 0.1]),
            "smoker": pd.array(rng.random(rows) < np.where(age > 50, 0.1, 0.4), dtype="boolean"),
            "age": pd.array(age, dtype="Int64"),
            "children": rng.poisson(1.5, rows),
            "weight": np.rint(rng.normal(60, 15, rows)),
            "income": rng.gamma(2, 8, rows) - 5,
            "cost": np.where(rng.random(rows) < 0.3, 12.34, np.round(rng.lognormal(2, 1, rows), 2)),
            "hours": np.where(rng.random(rows) < 0.5, 40, rng.integers(-20, 80, rows)),
            "born": pd.Timestamp("2024-12-15") + pd.to_timedelta(rng.integers(0, 371, rows), "D"),
            "day": pd.Timestamp("2025-01-01")
            + pd.to_timedelta(rng.integers(0, 52, rows) * 7 + rng.choice([0, 0, 3], rows), "D"),
            "at": moments,
            "seen": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 3600 * 60, rows), "s"),
        }
    )
    for name, every in (("smoker", 11), ("age", 13), ("cost", 10), ("born", 17)):
        frame.loc[frame.index % every == 0, name] = None
    return frame


def make_release(folder: Path, spec: str, *, rows: int = 4000, frame: pd.DataFrame | None = None) -> Path:
    """Make a release in a folder of its own, of a given table or of one with so many rows, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.yaml").write_text(spec, encoding="utf-8")
    dataset = spec.split("\n", 1)[0].removeprefix("dataset: ")
    delta = 0.0 if "delta: 0}" in spec else 1e-9
    currency, cap = budget_of(1000.0, delta=delta)
    with chdir(folder):
        with open_ledger(create=True) as ledger:
            terms = {"unit": "row", "neighbours": Neighbours.ADD_REMOVE, "epsilon": 1000.0, "delta": delta}
            ledger.open_account(dataset, currency=currency, cap=cap, **terms)
        own_table = table(rows, seed=1) if frame is None else frame
        return Path(synthesize("spec.yaml", table=own_table, run_id="made").release).resolve()


def declared_universe() -> Universe:
    """Return the columns of every kind, as they are declared and before anything is found."""
    columns = TypeAdapter(dict[str, AttributeSpec]).validate_python(yaml.safe_load(EVERY_KIND)["universe"])
    return Universe({name: column.attribute(Path()) for name, column in columns.items()})


def restate(release: Path, manifest: Any) -> None:
    """Give a release another manifest, and the `SHA256SUMS` that belongs to it, as somebody would who edits a release."""
    written = json.dumps(manifest).encode()
    (release / "manifest.json").write_bytes(written)
    try:
        files = {str(file["path"]): str(file["sha256"]) for file in manifest["files"]}
    except (KeyError, TypeError):
        files = {}
    (release / "SHA256SUMS").write_bytes(encode_sums({"manifest.json": hashlib.sha256(written).hexdigest(), **files}))
