"""Run the audit: each case by itself, in up to four parallel processes."""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from dpcore.audit.case import Audited
from dpcore.audit.cases import CASES
from dpcore.audit.whole_run import RELEASES
from dpcore.errors import UsageError


def checked_names(names: Sequence[str]) -> list[str]:
    """Return the given case names in display order, or all names if none is given. Raise on an unknown name."""
    for name in names:
        if name not in CASES:
            raise UsageError(f"there is no mechanism {name} to audit; choose from {', '.join(CASES)}")
    return [name for name in CASES if not names or name in names]


def audit_case(name: str, effort: float) -> Audited:
    """Audit one mechanism, or complete releases of one kind, in this process."""
    return {**RELEASES, **CASES}[name]().run(effort=effort)


def audit_mechanisms(names: Sequence[str], *, effort: float) -> list[Audited]:
    """Audit the named mechanisms, or all if none is named."""
    return _audited(checked_names(names), effort=effort)


def audit_releases(*, effort: float) -> list[Audited]:
    """Audit complete releases, from the source file to Parquet."""
    return _audited(list(RELEASES), effort=effort)


def _audited(chosen: Sequence[str], *, effort: float) -> list[Audited]:
    """Audit the cases in newly spawned processes, which inherit no random state: each reads the operating system's entropy itself."""
    workers = min(len(chosen), 4, os.cpu_count() or 1)
    if workers == 1:
        return [audit_case(name, effort) for name in chosen]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=workers, mp_context=context) as pool:
        return list(pool.map(audit_case, chosen, [effort] * len(chosen)))
