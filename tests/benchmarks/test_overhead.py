"""The benchmark of what Prefect costs: a small run of it, and the figures it makes of what it measured."""

from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.overhead import BAR, HEADLINE, _cpu, _text, figures
from benchmarks.overhead_runs import STEPS_BESIDE_ROUNDS

ROUNDS = 3


@pytest.mark.prefect
def test_a_small_run_has_all_figures_and_every_step_as_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DPFLOW_LEDGER_URL", "PREFECT_HOME"):  # which the benchmark sets
        monkeypatch.setenv(variable, "")
    small = _cpu(tmp_path, Namespace(size=["small"], rounds=ROUNDS, repeats=1))["sizes"]["small"]
    assert small["tasks"] == 3 * ROUNDS + STEPS_BESIDE_ROUNDS
    assert min(small["without_seconds"], small["with_seconds"]) > 0
    assert small["ratio_with_import"] > small["ratio"]


def test_the_best_of_the_repetitions_counts() -> None:
    got = figures({"without": [2.0, 4.0, 3.0], "with": [2.5, 9.0, 4.5]}, 1.0, tasks=100)
    assert (got["without_seconds"], got["with_seconds"], got["ratio"]) == (2.0, 2.5, 1.25)
    assert got["ratio_of_medians"] == pytest.approx(1.5)
    assert got["ratio_with_import"] == pytest.approx(1.75)
    assert got["ms_per_task"] == pytest.approx(5.0)


def test_the_bar_is_printed_with_what_a_task_costs() -> None:
    sizes = {HEADLINE: figures({"without": [2.0], "with": [4.0]}, 1.0, tasks=100)}
    text = _text({"sizes": sizes, "import_seconds": 1.0, "cold": None, "ms_per_task": 20.0, "bar_met": False})
    assert text.endswith(f"20.0 ms of client CPU per task on the {HEADLINE} table; bar of {BAR:g} ms met: False")
