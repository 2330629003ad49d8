"""Count the table of `benchmarks.ingest` on a local Dask cluster of two processes: `python -m benchmarks.cluster [--rows N] [--json]`.

All pairs of columns are counted without Dask, on the cluster, and on a cluster that loses one worker while it reads and another while it
counts. All three must agree to the last row. On one machine a cluster cannot be faster: it is for tables that one machine cannot hold.
"""

import argparse
import json
import os
import signal
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.ingest_runs import PAIRS, Counts
from benchmarks.ingest_table import UNIVERSE, write
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.spec.engine import EngineSpec
from dpcore.spec.source import SourceSpec
from dpcore.tables.cluster import connected
from dpcore.tables.cluster.engine import DaskEngine
from dpcore.tables.histogram import Histogram, LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Source, ingest

if TYPE_CHECKING:
    from distributed import Client

WORKERS = 2
KILLED_AFTER = 1.0  # seconds after reading or counting starts
CODING = Coding(
    universe=UNIVERSE,
    protection=Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE),
    window=None,
)


def main() -> None:
    """Count in three ways, and print the time of each and whether they agree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dpflow-cluster-") as folder:
        os.environ["DPFLOW_PRIVATE"] = str(Path(folder, "private"))
        path = Path(folder, "table.parquet")
        write(path, rows=arguments.rows, part=0)
        result = measure(Source.locate(SourceSpec(path=str(path)), base=Path()))
        left = [file.name for file in Path(folder, "private").rglob("*") if file.is_file()]
    result |= {"rows": arguments.rows, "workers": WORKERS, "left_behind": sorted(left)}
    print(json.dumps(result) if arguments.json else _text(result))


def measure(source: Source) -> dict[str, Any]:
    """Count the pairs of a table without Dask, on a cluster, and on a cluster that loses workers."""
    begin = time.perf_counter()
    here = _counts(LocalHistogram.count(ingest(source, coding=CODING, draws=Draws.fresh()), UNIVERSE))
    result: dict[str, Any] = {"here_seconds": time.perf_counter() - begin}
    for name, killing in (("cluster", False), ("cluster_with_kills", True)):
        counts, seconds, killed = _on_cluster(source, killing=killing)
        agree = all(np.array_equal(one, other) for one, other in zip(here, counts, strict=True))
        result[name] = {"seconds": seconds, "killed": killed, "agrees": agree}
    return result


def _on_cluster(source: Source, *, killing: bool) -> tuple[Counts, float, int]:
    with connected(EngineSpec(name="dask", workers=WORKERS)) as client:
        engine = DaskEngine(EngineSpec(name="dask"), connect=lambda _: nullcontext(client))
        killed: list[int] = []
        begin = time.perf_counter()
        with _killer(client, killed, wanted=killing):
            records = engine.read(source, coding=CODING, draws=Draws.fresh())
        with _killer(client, killed, wanted=killing):
            counts = _counts(engine.count(records, UNIVERSE))
        return counts, time.perf_counter() - begin, len(killed)


class _killer:  # noqa: N801  reads as the statement it is used in
    """Kill one worker `KILLED_AFTER` seconds after the block starts, unless it ends earlier."""

    def __init__(self, client: "Client", killed: list[int], *, wanted: bool) -> None:
        workers = sorted(info["pid"] for info in client.run(_pid).values()) if wanted else []
        self._timer = threading.Timer(KILLED_AFTER, self._kill, args=(workers[:1], killed))

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()

    @staticmethod
    def _kill(workers: list[int], killed: list[int]) -> None:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)


def _pid() -> dict[str, int]:
    return {"pid": os.getpid()}


def _counts(histogram: Histogram) -> Counts:
    histogram.prepare(PAIRS)
    return [histogram.marginal(pair) for pair in PAIRS]


def _text(result: dict[str, Any]) -> str:
    lines = [f"{result['rows']:,} rows, all pairs: {result['here_seconds']:.1f} s without Dask"]
    for name, words in (
        ("cluster", "on two workers"),
        ("cluster_with_kills", "on two workers, some of them killed"),
    ):
        each = result[name]
        lines.append(
            f"{words}: {each['seconds']:.1f} s, {each['killed']} killed, the counts {'agree' if each['agrees'] else 'DIFFER'}"
        )
    lines.append(f"left behind in the steward's folder: {', '.join(result['left_behind']) or 'nothing'}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
