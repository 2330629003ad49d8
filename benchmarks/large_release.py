"""Measure how the memory and the time of a release grow with the number of its synthetic rows.

    python -m benchmarks.large_release --json

The spec is that of the clinic visits with `output.rows` set, for both kinds of model: dense with `mwem`, factored with `adaptive`. Each release
runs in its own process, from the spec to the Parquet files, and the memory is the peak of that process. Rows are drawn and written in
chunks, so the peak should not depend on their number.
"""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from benchmarks.release_cost import cost_of_release

DATA = Path(__file__).parents[1] / "data"
SIZES = (10_000_000, 100_000_000)
MOST_MEMORY_MB = 1_000.0
MOST_RATIO = 1.1
"""The largest ratio of the peak memory at the most rows to that at the fewest."""


@dataclass(frozen=True)
class Measured:
    """The cost of one release. `rows_per_second` is the rate of drawing and writing rows, by CPU time."""

    strategy: str
    rows: int
    peak_memory_mb: float
    rows_per_second: float
    data_mb: float


def main() -> None:
    """Run the benchmark and print a table or one JSON object. Exit with 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--strategy", choices=["mwem", "adaptive"], action="append", help="measure only this")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    measured = [
        measure(strategy, rows) for strategy in arguments.strategy or ("mwem", "adaptive") for rows in arguments.rows
    ]
    ratios = {
        name: ratio([each for each in measured if each.strategy == name]) for name in {m.strategy for m in measured}
    }
    missed = max(each.peak_memory_mb for each in measured) > MOST_MEMORY_MB or max(ratios.values()) > MOST_RATIO
    if arguments.json:
        print(json.dumps({"releases": [asdict(each) for each in measured], "memory_ratio": ratios, "missed": missed}))
    else:
        for each in measured:
            print(
                f"{each.strategy:9} {each.rows:>13,} rows: peak {each.peak_memory_mb:,.0f} MB, {each.rows_per_second:,.0f} rows/s, "
                f"{each.data_mb:,.0f} MB of Parquet"
            )
        print(
            "\n".join(
                f"{name:9} peak memory at the most rows / at the fewest: {found:.3f}" for name, found in ratios.items()
            )
        )
    sys.exit(int(missed))


def measure(strategy: str, rows: int) -> Measured:
    """Make one release in a temporary folder."""
    spec = yaml.safe_load((DATA / "clinic-visits.yaml").read_text(encoding="utf-8"))
    privacy = {**spec["privacy"], "unit": "row", "max_rows_per_unit": 1}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(DATA / "clinic-visits.csv", folder)
        changed = {**spec, "privacy": privacy, "strategy": {"name": strategy}, "output": {"path": ".", "rows": rows}}
        (folder / "spec.yaml").write_text(yaml.safe_dump(changed, sort_keys=False), encoding="utf-8")
        cost = cost_of_release(folder)
        (data,) = folder.glob("clinic-visits/*/data/*.parquet")
        size = data.stat().st_size / 2**20
    return Measured(strategy, rows, cost["peak_memory_mb"], rows / cost["steps"]["publish"], data_mb=size)


def ratio(measured: list[Measured]) -> float:
    """Return the peak memory at the most rows divided by that at the fewest."""
    by_rows = sorted(measured, key=lambda each: each.rows)
    return by_rows[-1].peak_memory_mb / by_rows[0].peak_memory_mb


if __name__ == "__main__":
    main()
