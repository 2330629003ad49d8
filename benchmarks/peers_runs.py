"""Run a peer in its own process, and end it if it exceeds its time or memory limit."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

from benchmarks.peers_environments import last_words, peer_environ
from benchmarks.tables import BenchmarkTable
from benchmarks.workload_error import workload_error

ORDERS = (1, 2, 3)
LOOK_SECONDS = 0.5
SCRIPTS = Path(__file__).parent / "peers_scripts"


@dataclass(frozen=True)
class Limits:
    """The limits of a run: seconds of wall time and megabytes of memory."""

    seconds: float
    memory_mb: float


@dataclass(frozen=True)
class Budget:
    """The privacy of a run: epsilon and delta, and the rho of zCDP that they allow."""

    epsilon: float
    delta: float
    rho: float


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: its errors and costs, or the reason why it failed."""

    error: dict[int, float] = field(default_factory=dict)
    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None
    wall_seconds: float | None = None
    reason: str = ""


def errors_of(table: BenchmarkTable, synthetic: pd.DataFrame) -> dict[int, float]:
    """Return the error of the rows for each order of marginals."""
    return {order: workload_error(table, synthetic, order=order) for order in ORDERS}


def run_peer(
    command: list[str], *, table: BenchmarkTable, budget: Budget, settings: dict[str, Any], limits: Limits
) -> Outcome:
    """Run a peer's script with a folder as its last argument, and measure the rows that it writes there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = {
            "columns": list(table.sizes),
            "sizes": list(table.sizes.values()),
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "rho": budget.rho,
            "settings": settings,
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        np.save(folder / "table.npy", table.frame[list(table.sizes)].to_numpy())
        begin = time.perf_counter()
        ended = _run_limited([*command, name], folder=folder, limits=limits)
        wall = time.perf_counter() - begin
        if ended.reason:
            return Outcome(**{**vars(ended), "wall_seconds": wall})
        return _measured(folder, table=table, wall=wall)


def _measured(folder: Path, *, table: BenchmarkTable, wall: float) -> Outcome:
    try:
        cost = json.loads((folder / "cost.json").read_text(encoding="utf-8"))
        rows = pd.DataFrame(np.load(folder / "rows.npy"), columns=list(table.sizes))
        _check(rows, table)
        error = errors_of(table, rows)
    except (OSError, ValueError) as problem:
        return Outcome(wall_seconds=wall, reason=f"no usable rows: {last_words(str(problem))}")
    return Outcome(error, cost["cpu_seconds"], cost["peak_memory_mb"], wall)


def _check(rows: pd.DataFrame, table: BenchmarkTable) -> None:
    inside = (rows >= 0) & (rows < list(table.sizes.values()))
    if not len(rows) or not inside.to_numpy().all():
        raise ValueError("there are none, or some have invalid codes")


def _run_limited(command: list[str], *, folder: Path, limits: Limits) -> Outcome:
    end = time.monotonic() + limits.seconds
    cpu = peak = 0.0
    with (folder / "said").open("w", encoding="utf-8") as said:
        started = subprocess.Popen(  # noqa: S603  a script of ours
            command, stdout=said, stderr=said, cwd=folder, env=peer_environ(), start_new_session=True
        )
        try:
            while started.poll() is None:
                now_cpu, memory = _usage(started.pid)
                cpu, peak = max(cpu, now_cpu), max(peak, memory)
                if time.monotonic() > end:
                    return Outcome({}, cpu, peak, reason=f"ended at the limit of {limits.seconds:,.0f} s")
                if memory > limits.memory_mb:
                    return Outcome({}, cpu, peak, reason=f"ended at the limit of {limits.memory_mb:,.0f} MB")
                _wait(started)
        finally:
            _end(started)
    if started.returncode != 0:
        text = (folder / "said").read_text(encoding="utf-8", errors="replace")
        return Outcome({}, cpu or None, peak or None, reason=f"failed ({started.returncode}): {last_words(text)}")
    return Outcome()


def _wait(started: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.wait(LOOK_SECONDS)


def _usage(pid: int) -> tuple[float, float]:
    cpu = memory = 0.0
    try:
        family = psutil.Process(pid)
        for each in (family, *family.children(recursive=True)):
            times = each.cpu_times()
            cpu += times.user + times.system
            memory += each.memory_info().rss / 2**20
    except psutil.NoSuchProcess:
        return cpu, memory  # it ended in the meantime
    return cpu, memory


def _end(started: subprocess.Popen[bytes]) -> None:
    # It leads its own session, so this ends its children too, and nothing else.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
