"""Running the audit: every case by itself, in as many processes as there are processors to spare."""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from dpcore.audit.case import Audited
from dpcore.audit.cases import CASES
from dpcore.audit.whole_run import RELEASES
from dpcore.errors import UsageError

MOST_WORKERS = 4

_LONGEST = ("exponential", "sparse-vector", "bounded-mean", "report-noisy-max", "above-threshold")
"""The cases that take longest: they are begun first, so that none of them is left to the end."""


def checked_names(names: Sequence[str]) -> list[str]:
    """Return the names of cases in their usual order, all of them if none is given, or refuse one that is not known."""
    for name in names:
        if name not in CASES:
            raise UsageError(f"there is no mechanism {name} to audit; choose among {', '.join(CASES)}")
    return [name for name in CASES if not names or name in names]


def audit_case(name: str, effort: float) -> Audited:
    """Audit one mechanism, or complete releases of one kind, in this process."""
    return {**RELEASES, **CASES}[name]().run(effort=effort)


def audit_mechanisms(names: Sequence[str], *, effort: float) -> list[Audited]:
    """Audit some mechanisms, or all."""
    return _audited(checked_names(names), effort=effort)


def audit_releases(*, effort: float) -> list[Audited]:
    """Audit complete releases, from the file to Parquet."""
    return _audited(list(RELEASES), effort=effort)


def _audited(chosen: Sequence[str], *, effort: float) -> list[Audited]:
    """Audit each case in a process that is started anew and takes the operating system's entropy itself: none inherits any randomness."""
    workers = min(len(chosen), MOST_WORKERS, os.cpu_count() or 1)
    if workers == 1:
        return [audit_case(name, effort) for name in chosen]
    order = sorted(chosen, key=lambda name: _LONGEST.index(name) if name in _LONGEST else len(_LONGEST))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=workers, mp_context=context) as pool:
        started = {name: pool.submit(audit_case, name, effort) for name in order}
        return [started[name].result() for name in chosen]
