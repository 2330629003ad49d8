"""What a whole release costs: made in a process of its own, from its spec to its Parquet files."""

import multiprocessing
import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import yaml

STEPS = ("reserve", "ingest", "histogram", "begin", "select", "measure", "update", "sample", "publish", "settle")


def cost_of_release(folder: Path, *, currency: str | None = None, profile: Path | None = None) -> dict[str, Any]:
    """Make the release of `spec.yaml` in a folder, and return its CPU seconds, those of each step, and its peak memory.

    Both are the process's own. CPU seconds are counted from after its imports; the memory has them in it.

    Args:
        folder: Holds the spec and the table, and gets a ledger and the release.
        currency: What the account counts; None for what suits delta.
        profile: Where to write a profile by function, for pstats; the seconds are then those of the profiled run.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_release, (str(folder), currency, None if profile is None else str(profile.resolve())))


def _release(folder: str, currency_name: str | None, profile: str | None) -> dict[str, Any]:
    os.chdir(folder)
    from dpcore import synthesize  # noqa: PLC0415  the measured process's own imports
    from dpcore.ledger import open_ledger  # noqa: PLC0415
    from dpcore.privacy.accounting import Currency, budget_of  # noqa: PLC0415
    from dpcore.privacy.protection import Neighbours  # noqa: PLC0415

    spec = yaml.safe_load(Path("spec.yaml").read_text(encoding="utf-8"))
    epsilon, delta = spec["privacy"]["epsilon"], spec["privacy"]["delta"]
    wanted = Currency(currency_name) if currency_name else None
    currency, cap = budget_of(epsilon, delta=delta, currency=wanted)
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            spec["dataset"],
            currency=currency,
            cap=cap,
            epsilon=epsilon,
            delta=delta,
            unit="row",
            neighbours=Neighbours.ADD_REMOVE,
        )
    steps = _timed_steps()
    begin = time.process_time()
    if profile is None:
        synthesize("spec.yaml")
    else:
        _profiled(lambda: synthesize("spec.yaml"), profile)
    return {"cpu_seconds": time.process_time() - begin, "steps": dict(steps), "peak_memory_mb": peak_memory_mb()}


def _timed_steps() -> dict[str, float]:
    """Let each step of a run add its CPU seconds to what is returned, by its name."""
    from dpcore.runs.synthesis import Synthesis  # noqa: PLC0415  see above

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

    for name in STEPS:
        setattr(Synthesis, name, timed(name, getattr(Synthesis, name)))
    return seconds


def _profiled(run: Callable[[], Any], path: str) -> None:
    import cProfile  # noqa: PLC0415  nobody else needs it

    with cProfile.Profile() as profiler:
        run()
    profiler.dump_stats(path)


def peak_memory_mb() -> float:
    """Return the most memory that this process has held.

    Where Linux says so for the program itself: `ru_maxrss` of a process that was just started begins with the size of the one that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
