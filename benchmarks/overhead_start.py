"""Measure how long a deployed run takes from submission to RUNNING."""

import contextlib
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.flows.stack import Stack, kept_stack

AS_SERVED = {"PREFECT_WORKER_QUERY_SECONDS": "2"}  # as in `dpflow serve`; the tests poll more often


def seconds_to_running(starts: int) -> dict[str, float]:
    """Start everything as `dpflow ui` does, submit runs one after another, and return the medians of their waits."""
    with (
        tempfile.TemporaryDirectory(prefix="dpflow-start-") as folder,
        contextlib.contextmanager(kept_stack)(Path(folder) / "stack", more=AS_SERVED) as stack,
    ):
        stack.ui()
        waits = [_wait(stack) for _ in range(starts)]
    found, process = (statistics.median(times) for times in zip(*waits, strict=True))
    return {
        "seconds": statistics.median(sum(wait) for wait in waits),
        "found_seconds": found,
        "process_seconds": process,
    }


def _wait(stack: Stack) -> tuple[float, float]:
    """Submit a run, and return how long it waited for the worker and then for its process."""
    submitted = datetime.now(UTC)
    run = stack.start()
    stack.wait(run)
    first: dict[str, datetime] = {}
    for state in stack.states(run):
        first.setdefault(state["type"], datetime.fromisoformat(state["timestamp"]))
    return (
        (first["PENDING"] - submitted).total_seconds(),
        (first["RUNNING"] - first["PENDING"]).total_seconds(),
    )
