"""The real tables that accuracy is measured on, read from beside the project and never copied into it."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

TABLES = ("adult7", "adult_discretized")
ADULT7 = ("workclass", "education-num", "marital-status", "race", "sex", "income>50K", "hours-per-week")


@dataclass(frozen=True, eq=False)
class BenchmarkTable:
    """An integer-coded table and the number of values of each of its columns."""

    name: str
    frame: pd.DataFrame
    sizes: dict[str, int]


def shared_data() -> Path:
    """Return the folder of benchmark tables: `$DPFLOW_BENCH_DATA`, or `shared/data` beside the project."""
    folder = Path(os.environ.get("DPFLOW_BENCH_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        sys.exit(f"benchmarks: no folder {folder}; set DPFLOW_BENCH_DATA to where the tables are")
    return folder


def load(name: str) -> BenchmarkTable:
    """Load a table by its name: adult_discretized, or adult7, of which seven columns are kept."""
    if name not in TABLES:
        sys.exit(f"benchmarks: unknown table {name}; there are {', '.join(TABLES)}")
    folder = shared_data()
    frame = pd.read_parquet(folder / "adult_discretized.parquet")
    sizes = json.loads((folder / "adult_discretized-domain.json").read_text(encoding="utf-8"))
    if name == "adult7":
        frame["hours-per-week"] //= 10
        sizes = {column: 10 if column == "hours-per-week" else sizes[column] for column in ADULT7}
    return BenchmarkTable(
        name, frame[list(sizes)].astype("int64"), {column: int(size) for column, size in sizes.items()}
    )
