"""What every peer's script shares: read the table, time the peer, write its rows.

The folder that a script is given holds `job.json` (columns, sizes, epsilon, delta, rho, settings) and `table.npy`, a row of codes for each
row. It gets `rows.npy`, and `cost.json` last, so that a cost stands for rows that are complete.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Job = dict[str, Any]


def run_measured(make_rows: Callable[[Job, np.ndarray], np.ndarray]) -> None:
    """Run a peer on the job in the folder named on the command line; call it when everything is imported."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    codes = np.load(folder / "table.npy")
    cpu, wall = _cpu_seconds(), time.perf_counter()
    rows = np.asarray(make_rows(job, codes))
    cost = {
        "cpu_seconds": _cpu_seconds() - cpu,
        "wall_seconds": time.perf_counter() - wall,
        "peak_memory_mb": _peak_memory_mb(),
    }
    np.save(folder / "rows.npy", rows.astype(np.int64))
    (folder / "cost.json").write_text(json.dumps(cost), encoding="utf-8")


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_memory_mb() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(_own_peak_kb(), children) / 1024


def _own_peak_kb() -> int:
    # `ru_maxrss` begins with what the starting program had; the kernel's own mark for this program does not.
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
