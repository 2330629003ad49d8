"""Measure the cost of a whole release, from its spec to its Parquet files, in a separate process."""

import multiprocessing
import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any

import yaml

STEPS = ("reserve", "ingest", "histogram", "begin", "select", "measure", "update", "sample", "publish", "settle")


def cost_of_release(folder: Path, *, currency: str | None = None, profile: Path | None = None) -> dict[str, Any]:
    """Make the release of `spec.yaml` in a folder, and return its CPU seconds, in total and by step, and its peak memory.

    Both are those of the separate process. CPU seconds do not include its imports; the memory does.

    Args:
        folder: Contains the spec and the table, and receives a ledger and the release.
        currency: The currency of the account; None to choose it by delta.
        profile: Where to write a profile for pstats. The seconds are then those of the profiled run.
    """
    with ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as pool:  # it raises if the process is killed
        return pool.submit(
            _release, str(folder), currency, None if profile is None else str(profile.resolve())
        ).result()


def _release(folder: str, currency_name: str | None, profile: str | None) -> dict[str, Any]:
    os.chdir(folder)
    from dpcore import synthesize  # noqa: PLC0415  the measured process's own imports
    from dpcore.ledger import open_ledger  # noqa: PLC0415
    from dpcore.mechanisms.pricing import currency_for  # noqa: PLC0415
    from dpcore.privacy.accounting import Currency, budget_of  # noqa: PLC0415
    from dpcore.privacy.protection import Neighbours  # noqa: PLC0415

    spec = yaml.safe_load(Path("spec.yaml").read_text(encoding="utf-8"))
    epsilon, delta = spec["privacy"]["epsilon"], spec["privacy"]["delta"]
    unit, neighbours = spec["privacy"]["unit"], Neighbours.ADD_REMOVE
    wanted = (
        Currency(currency_name)
        if currency_name
        else currency_for(epsilon, delta=delta, unit=unit, neighbours=neighbours)
    )
    currency, cap = budget_of(epsilon, delta=delta, currency=wanted)
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            spec["dataset"],
            currency=currency,
            cap=cap,
            epsilon=epsilon,
            delta=delta,
            unit=unit,
            neighbours=neighbours,
        )
    steps = _timed_steps()
    begin = time.process_time()
    if profile is None:
        synthesize("spec.yaml")
    else:
        _profiled(lambda: synthesize("spec.yaml"), profile)
    return {"cpu_seconds": time.process_time() - begin, "steps": dict(steps), "peak_memory_mb": peak_memory_mb()}


def _timed_steps() -> dict[str, float]:
    """Instrument the steps of a run. Return a dict in which they add up their CPU seconds, by name."""
    from dpcore.runs import steps  # noqa: PLC0415  see above

    seconds: dict[str, float] = defaultdict(float)

    def timed(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(step)
        def run(*arguments: Any) -> Any:
            begin = time.process_time()
            try:
                return step(*arguments)
            finally:
                seconds[name] += time.process_time() - begin

        return run

    for step in (steps.RESERVE, *steps.LEARNING, *steps.ROUND, *steps.RELEASING, steps.SETTLE):
        object.__setattr__(step, "act", timed(step.name, step.act))
    return seconds


def _profiled(run: Callable[[], Any], path: str) -> None:
    import cProfile  # noqa: PLC0415  only needed here

    with cProfile.Profile() as profiler:
        run()
    profiler.dump_stats(path)


def peak_memory_mb() -> float:
    """Return the peak memory of this process.

    On Linux it is read from /proc, because `ru_maxrss` of a new process starts at the size of its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
