"""Processes for tests to kill: forked from a clean one that has everything loaded, so that a run begins at once."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from dpcore.ledger import Ledger

ROOT = Path(__file__).parents[1]
BOUNDARIES = ("reserve", "lease", "record_data_version", "charge", "commit", "settle")
LOADED = [
    "tests.conftest",
    "tests.few_replicates",
    "tests.contracts.mechanism",
    "dpcore.runs.steps",
    "dpcore.session.session",
    "pandas",
    "pyarrow.parquet",
]


def forked() -> ForkServerContext:
    """Return the context of such processes. The clean one has none of a test's variables, and ends with this process.

    Loading takes ten times as long as a small run. Importing `dpcore` alone loads nothing, since its names are imported on first use.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith("DPFLOW_")]:
            patch.delenv(variable)
        patch.setenv("PYTHONPATH", str(ROOT))  # it imports before it is told where
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        forkserver.ensure_running()
    return context


def die_at(call: int, *, methods: tuple[str, ...] = BOUNDARIES) -> None:
    """Be killed at the ledger's call with this number, of those that change it: odd numbers before the call, even ones after."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == call:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(method: Callable[..., object]) -> Callable[..., object]:
        def called(*arguments: object, **more: object) -> object:
            step()
            result = method(*arguments, **more)
            step()
            return result

        return called

    for name in methods:
        setattr(Ledger, name, counted(getattr(Ledger, name)))
