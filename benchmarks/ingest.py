"""Measure how fast a large table is read, encoded and counted: all pairs of fourteen columns of mixed types, from a Parquet file.

    python -m benchmarks.ingest --json

dpflow does what a run does: it reads the source in batches, encodes rows by the declared universe, keeps the codes in memory and, beyond a
limit, in a file, and counts the marginals. DuckDB computes the same marginals of the same file in the same run, by several plans; the fastest
plan is the peer. Both use all cores. Each runs in its own process and is measured after its imports. All counts must agree. With
`--repeats` both alternate, and the fastest run counts. At the end dpflow reads three such files, to see whether its memory grows. Other
work on the machine affects both, but at different moments. CPU seconds, summed over all threads, are not affected by it.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ingest_table
from benchmarks.ingest_runs import OURS, PLANS, Run, run

ROWS = 10_000_000
PARTS = 3
LEAST_SPEED = 2.0
MOST_MEMORY_MB = 1_500.0
MOST_GROWTH = 1.2


def main() -> None:
    """Run the benchmark and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = measured(rows=arguments.rows, repeats=arguments.repeats)
    print(json.dumps(result) if arguments.json else _text(result))


def measured(*, rows: int, repeats: int) -> dict[str, Any]:
    """Generate the tables and count them."""
    with tempfile.TemporaryDirectory(prefix="dpflow-ingest-") as folder:
        files = [Path(folder) / f"part-{part}.parquet" for part in range(PARTS)]
        ingest_table.write(files[0], rows=rows, part=0)
        ours, plans = _in_turns(str(files[0]), repeats=repeats)
        for part, file in enumerate(files[1:], start=1):
            ingest_table.write(file, rows=rows, part=part)
        larger = run(OURS, str(Path(folder) / "*.parquet"))
    return figures(ours, plans, larger=larger, rows=rows)


def figures(ours: Run, plans: dict[str, Run], *, larger: Run, rows: int) -> dict[str, Any]:
    """Return the figures of dpflow and DuckDB, and whether the bars hold."""
    peer = min(plans, key=lambda name: plans[name].seconds)
    speed = plans[peer].seconds / ours.seconds
    growth = larger.peak_memory_mb / ours.peak_memory_mb
    agree = all(
        np.array_equal(one, other)
        for plan in plans.values()
        for one, other in zip(ours.counts, plan.counts, strict=True)
    )
    return {
        "rows": rows,
        "columns": len(ingest_table.COLUMNS),
        "marginals": len(ours.counts),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "dpflow": _costs(ours, rows=rows),
        "dpflow, three times the rows": _costs(larger, rows=PARTS * rows),
        "duckdb": {name: _costs(plan, rows=rows) for name, plan in plans.items()},
        "peer": peer,
        "times_as_fast": speed,
        "times_as_fast_by_cpu": plans[peer].cpu_seconds / ours.cpu_seconds,
        "memory_growth": growth,
        "bars": {
            "counts agree": agree and int(larger.counts[0].sum()) == PARTS * rows,
            f"at least {LEAST_SPEED:g} times as fast as DuckDB": speed >= LEAST_SPEED,
            f"memory < {MOST_MEMORY_MB:,.0f} MB": ours.peak_memory_mb < MOST_MEMORY_MB,
            f"memory at three times the rows <= {MOST_GROWTH:g} times": growth <= MOST_GROWTH,
        },
    }


def _in_turns(path: str, *, repeats: int) -> tuple[Run, dict[str, Run]]:
    """Measure dpflow and all plans, then repeat dpflow and the fastest plan."""
    ours = run(OURS, path)
    plans = {name: run(name, path) for name in PLANS}
    for _ in range(repeats - 1):
        peer = min(plans, key=lambda name: plans[name].seconds)
        ours = _faster(ours, run(OURS, path))
        plans[peer] = _faster(plans[peer], run(peer, path))
    return ours, plans


def _faster(one: Run, other: Run) -> Run:
    return min(one, other, key=lambda run: run.seconds)


def _costs(run: Run, *, rows: int) -> dict[str, float]:
    return {
        "seconds": run.seconds,
        "cpu_seconds": run.cpu_seconds,
        "rows_per_second": rows / run.seconds,
        "peak_memory_mb": run.peak_memory_mb,
    }


def _text(result: dict[str, Any]) -> str:
    size = f"{result['rows']:,} rows x {result['columns']} columns"
    lines = [f"{result['marginals']} marginals of {size}, {result['cores']} cores, load {result['load']:.1f}"]
    lines.append(f"\n{'':48}{'s':>7}{'CPU s':>8}{'rows/s':>13}{'MB':>7}")
    lines += [_line(name, result[name]) for name in (OURS, f"{OURS}, three times the rows")]
    lines += [_line(f"DuckDB: {name}", costs) for name, costs in result["duckdb"].items()]
    lines.append(
        f"\n{result['times_as_fast']:.2f} times as fast as DuckDB ({result['times_as_fast_by_cpu']:.2f} times by CPU seconds); "
        f"three times the rows take {result['memory_growth']:.2f} times the memory"
    )
    lines += [f"{bar}: {'holds' if holds else 'MISSED'}" for bar, holds in result["bars"].items()]
    return "\n".join(lines)


def _line(name: str, costs: dict[str, float]) -> str:
    return (
        f"{name:48}{costs['seconds']:7.2f}{costs['cpu_seconds']:8.2f}{costs['rows_per_second']:13,.0f}"
        f"{costs['peak_memory_mb']:7.0f}"
    )


if __name__ == "__main__":
    main()
