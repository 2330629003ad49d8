"""Processes for tests to kill: forked from a clean one that has everything loaded, so that a run begins at once."""

import multiprocessing
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
