"""Measure Prefect's overhead in client CPU seconds: the same spec and table, with and without Prefect, alternating in one process.

    python -m benchmarks.overhead --json

The clock is the user and system time of this process, with all its threads, and of its children; the server is not counted. A run with
Prefect is the flow as `dpflow run` makes it, with pages, progress and log, until everything is sent to the server. A run without is
`dpcore.synthesize`. The cost per task is the difference divided by the number of tasks. Each process imports Prefect once. That is measured
separately: `ratio_with_import` adds it to one run, and `cold` compares whole processes, from the start of the interpreter to its end. The
best repetition counts, because a run's own work varies by a tenth with its noise, and other work on the machine only ever adds time.

The last figure is the time from submitting a deployed run to its state RUNNING, on a server and a worker as `dpflow ui` starts them: until
the worker has found it, and until its process runs the flow. This is wall time and depends on other work on the machine.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.overhead_runs import SIZES, Bench, cpu_seconds
from tests.flows.stack import Stack, started_stack

BAR = 12.0
"""The most that a task may cost, in milliseconds of client CPU beyond the step itself."""
HEADLINE = "sample"
AS_SERVED = {"PREFECT_WORKER_QUERY_SECONDS": "2"}  # as in `dpflow serve`; the tests poll more often


def main() -> None:
    """Run the benchmark and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, action="append", help="measure only this table")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=6, help="runs of each kind; a third of them for the large table")
    parser.add_argument("--starts", type=int, default=3, help="the number of deployed runs whose start is timed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"bar": BAR, "rounds": arguments.rounds, "repeats": arguments.repeats}
    with tempfile.TemporaryDirectory(prefix="dpflow-overhead-") as folder, contextlib.chdir(folder):
        result |= _cpu(Path(folder), arguments)
    if arguments.starts:
        result["submit_to_running"] = seconds_to_running(arguments.starts)
    if HEADLINE in result["sizes"]:
        result["ms_per_task"] = result["sizes"][HEADLINE]["ms_per_task"]
        result["bar_met"] = result["ms_per_task"] <= BAR
    print(json.dumps(result) if arguments.json else _text(result))


def _cpu(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    os.environ["DPFLOW_LEDGER_URL"] = f"sqlite:///{folder / 'ledger.sqlite'}"
    os.environ["PREFECT_HOME"] = str(folder / "prefect")
    bench = Bench(folder, rounds=arguments.rounds)
    begin = cpu_seconds()
    from flows.cli.quiet import quiet  # noqa: PLC0415  importing Prefect is part of what is measured

    with quiet() as url:
        import flows.synthesize  # noqa: F401, PLC0415  likewise

        imported = cpu_seconds() - begin
        bench.warm_up()
        sizes = {}
        for size in arguments.size or SIZES:
            repeats = max(1, arguments.repeats // 3) if size == "large" else arguments.repeats
            sizes[size] = figures(bench.in_turns(size, repeats), imported, tasks=bench.tasks(url))
        cold = bench.cold(HEADLINE, url) if HEADLINE in sizes else None
    return {"import_seconds": imported, "sizes": sizes, "cold": cold}


def figures(runs: dict[str, list[float]], imported: float, *, tasks: int) -> dict[str, Any]:
    """Summarize the CPU seconds of the runs of each kind and of the import."""
    without, through = min(runs["without"]), min(runs["with"])
    return {
        "without_seconds": without,
        "with_seconds": through,
        "ratio": through / without,
        "ratio_of_medians": statistics.median(runs["with"]) / statistics.median(runs["without"]),
        "ratio_with_import": (through + imported) / without,
        "tasks": tasks,
        "ms_per_task": 1000 * (through - without) / tasks,
        "all": runs,
    }


def seconds_to_running(starts: int) -> dict[str, float]:
    """Start everything as `dpflow ui` does, submit runs one after another, and return the medians of their waits."""
    with (
        tempfile.TemporaryDirectory(prefix="dpflow-start-") as folder,
        started_stack(Path(folder) / "stack", more=AS_SERVED) as stack,
    ):
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


def _text(result: dict[str, Any]) -> str:
    lines = [
        f"{'CPU seconds':14}{'without':>9}{'with':>9}{'ratio':>8}{'ms per task':>12}{'tasks':>7}{'with import':>13}"
    ]
    lines += [
        f"{size:14}{it['without_seconds']:>9.2f}{it['with_seconds']:>9.2f}{it['ratio']:>8.3f}"
        f"{it['ms_per_task']:>12.2f}{it['tasks']:>7}{it['ratio_with_import']:>13.2f}"
        for size, it in result["sizes"].items()
    ]
    lines.append(f"importing Prefect takes {result['import_seconds']:.2f} s")
    if cold := result["cold"]:
        lines.append(
            f"whole processes: {cold['without_seconds']:.2f} s without, {cold['with_seconds']:.2f} s with, {cold['ratio']:.2f}"
        )
    if start := result.get("submit_to_running"):
        lines.append(
            f"from submit to RUNNING {start['seconds']:.1f} s of wall time: {start['found_seconds']:.1f} s until a worker "
            f"has found it, {start['process_seconds']:.1f} s until its process runs the flow"
        )
    if "bar_met" in result:
        cost = f"{result['ms_per_task']:.1f} ms of client CPU per task on the {HEADLINE} table"
        lines.append(f"{cost}; bar of {BAR:g} ms met: {result['bar_met']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # Prefect's threads may still wait for a server that is gone
