"""The comparison with other libraries, without any of them: scripts of the test's own stand for peers."""

import argparse
import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

import benchmarks.peers as compared
from benchmarks.peers_catalogue import PEERS
from benchmarks.peers_environments import InstallError, interpreter_for, last_words
from benchmarks.peers_runs import SCRIPTS, Budget, Limits, Outcome, run_peer
from benchmarks.peers_table import Row, mean_row, ratios, ratios_text, settings_text, table_text

BUDGET = Budget(1.0, 1e-9, 0.0117)
AMPLE = Limits(60.0, 4000.0)
SIZES = {"a": 3, "b": 2, "c": 4}
GOOD = """
import sys
sys.path.insert(0, {scripts!r})
from measured import run_measured
run_measured(lambda job, codes: codes)
"""


class Table:
    """What the errors and the peers need of a benchmark's table."""

    name = "small"
    sizes = SIZES

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.frame = pd.DataFrame({column: rng.integers(0, size, 200) for column, size in SIZES.items()})


def _run(folder: Path, script: str, *, limits: Limits = AMPLE) -> Outcome:
    path = folder / "peer.py"
    path.write_text(script, encoding="utf-8")
    return run_peer([sys.executable, str(path)], table=Table(), budget=BUDGET, settings={"rounds": 1}, limits=limits)


def _outcome(error: float, cpu: float | None = 1.0) -> Outcome:
    return Outcome({1: error / 4, 2: error / 2, 3: error}, cpu, 100.0, 2.0)


def _row(name: str, outcome: Outcome, note: str = "") -> Row:
    return Row(name, "defaults", "60 s", outcome, "1", note)


def test_a_peer_that_returns_the_table_itself_has_no_error_and_a_cost(tmp_path: Path) -> None:
    outcome = _run(tmp_path, GOOD.format(scripts=str(SCRIPTS)))
    assert outcome.reason == ""
    assert outcome.error == {1: 0.0, 2: 0.0, 3: 0.0}
    assert outcome.cpu_seconds is not None
    assert 0 <= outcome.cpu_seconds < 10
    assert outcome.peak_memory_mb is not None
    assert outcome.peak_memory_mb > 5
    assert outcome.wall_seconds is not None


def test_a_peer_is_told_columns_sizes_budget_and_settings(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    script = f"import pathlib, sys\npathlib.Path({str(kept)!r}).write_bytes((pathlib.Path(sys.argv[1]) / 'job.json').read_bytes())\n"
    _run(tmp_path, script)
    assert json.loads(kept.read_text(encoding="utf-8")) == {
        "columns": ["a", "b", "c"],
        "sizes": [3, 2, 4],
        "epsilon": 1.0,
        "delta": 1e-9,
        "rho": 0.0117,
        "settings": {"rounds": 1},
    }


def test_a_peer_over_the_time_limit_is_ended_with_what_it_started(tmp_path: Path) -> None:
    named = tmp_path / "child"
    script = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(named)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    outcome = _run(tmp_path, script, limits=Limits(3.0, 4000.0))
    assert outcome.reason == "ended at the limit of 3 s"
    assert outcome.error == {}
    child = int(named.read_text(encoding="utf-8"))
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(child).wait(timeout=10)


def test_a_peer_over_the_memory_limit_is_ended(tmp_path: Path) -> None:
    outcome = _run(tmp_path, "import time\nkept = bytearray(80_000_000)\ntime.sleep(600)\n", limits=Limits(60.0, 50.0))
    assert outcome.reason == "ended at the limit of 50 MB"


def test_a_crash_is_a_reason_in_one_line(tmp_path: Path) -> None:
    outcome = _run(tmp_path, "raise MemoryError('no room for the histogram')\n")
    assert outcome.reason == "failed (1): MemoryError: no room for the histogram"


def test_a_peer_that_ends_well_without_rows_has_no_usable_rows(tmp_path: Path) -> None:
    assert _run(tmp_path, "").reason.startswith("no usable rows")


def test_codes_that_no_column_has_are_no_usable_rows(tmp_path: Path) -> None:
    outcome = _run(tmp_path, GOOD.format(scripts=str(SCRIPTS)).replace("codes)", "codes + 1)"))
    assert outcome.reason.startswith("no usable rows")


def test_what_cannot_be_installed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(InstallError, match="not installed: "):
        interpreter_for(("some-peer==1.0",), folder=tmp_path / "environments")


def test_a_complete_environment_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def make(command: list[str]) -> None:
        calls.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)

    monkeypatch.setattr("benchmarks.peers_environments._call", make)
    first = interpreter_for(("some-peer==1.0",), folder=tmp_path)
    assert interpreter_for(("some-peer==1.0",), folder=tmp_path) == first
    assert len(calls) == 2
    assert calls[1][-1] == "some-peer==1.0"
    assert interpreter_for(("some-peer==1.1",), folder=tmp_path) != first


def test_last_words_are_the_last_line_that_says_something() -> None:
    assert last_words("Traceback\n  in a\nMemoryError: no room\n\n") == "MemoryError: no room"
    assert last_words(" \n") == "no output"


def test_every_peer_is_pinned_and_has_a_script_or_a_reason() -> None:
    for peer in PEERS.values():
        if peer.absent:
            assert not peer.requirements
            continue
        assert all("==" in requirement and "://" not in requirement for requirement in peer.requirements)
        text = (SCRIPTS / peer.script).read_text(encoding="utf-8")
        assert "dpcore" not in text
        assert "benchmarks" not in text
        assert peer.note


def test_a_large_table_gets_a_limit_and_a_small_one_none() -> None:
    aim = PEERS["dpmm-aim"]
    assert aim.settings_for({"a": 10, "b": 10}) == {"mechanism": "aim", "degree": 3}
    large = dict.fromkeys("abcdefghi", 10)
    assert aim.settings_for(large) == {"mechanism": "aim", "degree": 3, "max_model_size": 4}


def test_a_row_is_the_mean_of_the_runs_that_finished() -> None:
    row = mean_row(
        "x", [_outcome(0.1, 10.0), _outcome(0.3, 30.0), Outcome(reason="failed (1): bad")], settings="", limits=""
    )
    assert row.outcome.error[3] == pytest.approx(0.2)
    assert row.outcome.cpu_seconds == 20.0
    assert (row.runs, row.note) == ("2 of 3", "One run failed (1): bad.")


def test_a_row_without_a_finished_run_keeps_the_reason() -> None:
    row = mean_row("x", [Outcome(reason="failed (1): bad")], settings="", limits="")
    assert (row.outcome.reason, row.outcome.error, row.runs) == ("failed (1): bad", {}, "0 of 1")


def test_the_ratios_are_to_the_finished_peer_with_the_least_error() -> None:
    rows = [
        _row("bootstrap", _outcome(0.01)),
        _row("dpflow", _outcome(0.03, 5.0)),
        _row("slow", _outcome(0.04, 100.0)),
        _row("quick", _outcome(0.06, 1.0)),
        _row("ended", Outcome(cpu_seconds=9.0, reason="ended at the limit of 1 s")),
    ]
    found = ratios(rows, peers={"slow", "quick", "ended"})
    assert found == {"best_peer": "slow", "error": pytest.approx(0.75), "cpu": pytest.approx(0.05)}
    assert ratios_text("adult7", found) == (
        "adult7: dpflow over the best peer that finished, slow: 3-way error 0.75, CPU 0.05"
    )


def test_without_a_finished_peer_there_is_no_ratio() -> None:
    rows = [_row("dpflow", _outcome(0.03)), _row("ended", Outcome(reason="ended"))]
    assert ratios(rows, peers={"ended"}) is None
    assert "no ratio" in ratios_text("adult7", None)


def test_the_table_is_aligned_has_reasons_and_each_note_once() -> None:
    rows = [
        _row("dpflow", _outcome(0.03)),
        _row("one", _outcome(0.04), note="Pure."),
        _row("two", Outcome(cpu_seconds=1234.5, reason="ended at the limit of 60 s"), note="Pure."),
        Row("three", "", "", Outcome(reason="not on PyPI")),
    ]
    title, head, ours, one, two, three, *notes = table_text("adult7: 10 rows", rows).splitlines()
    assert title == "adult7: 10 rows"
    assert one.startswith("one [1]")
    assert two.startswith("two [1]")
    assert ours.index("0.0300") + 6 == head.index("3-way") + 5 == one.index("0.0400") + 6
    assert ">1,234.5" in two
    assert two.endswith("ended at the limit of 60 s")
    assert three.endswith("not on PyPI")
    assert notes == ["[1] Pure."]


def test_settings_are_told_without_the_mechanism() -> None:
    assert settings_text({"mechanism": "mst"}) == "defaults"
    assert settings_text({"mechanism": "aim", "degree": 3, "rounds": 4}) == "degree=3, rounds=4"


def test_peers_and_settings_on_the_command_line_are_checked() -> None:
    assert compared._names("dpmm-mst,mbi") == ["dpmm-mst", "mbi"]
    assert compared._setting("dpmm-aim.max_model_size=1") == ("dpmm-aim", "max_model_size", 1)
    for refused in ("nobody.degree=2", "dpmm-aim=2", "dpmm-aim.degree=two"):
        with pytest.raises(argparse.ArgumentTypeError):
            compared._setting(refused)
    with pytest.raises(argparse.ArgumentTypeError, match="unknown: nobody"):
        compared._names("nobody")
