"""The benchmark of noise: a small run of it reports every row, and its verdict is that of the worst one."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.noise import BARS, SCALES, WIDE, in_turns, verdict

ROOT = Path(__file__).parents[2]
SMALL = ["--draws", "2000", "--opendp-draws", "200", "--candidates", "500", "--rounds", "1"]


def test_a_small_run_reports_every_noise_scale_and_selection() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.noise", *SMALL, "--json"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    rows = [(row["noise"], row["scale"]) for row in result["noise"]]
    assert rows == [
        *itertools.product(("discrete-laplace", "discrete-gaussian", "rounded-gaussian"), SCALES),
        ("discrete-laplace", WIDE),
        ("discrete-gaussian", WIDE),
    ]
    assert [row["noise"] for row in result["selections"]] == ["gumbel", "permute-and-flip", "laplace"]
    for row in result["noise"] + result["selections"]:
        assert row["to_numpy"] == pytest.approx(row["seconds"] / row["numpy_seconds"])
    without = [row["noise"] for row in result["noise"] + result["selections"] if row["opendp_seconds"] is None]
    assert without == ["rounded-gaussian"] * 3 + ["laplace"]  # opendp has neither
    assert set(result["worst"]) == set(result["bars"]) == set(BARS)


def row(*, scale: float = 2.0, to_numpy: float = 1.0, faster: float | None = 1000.0) -> dict:
    return {"scale": scale, "to_numpy": to_numpy, "faster_than_opendp": faster}


def test_the_worst_row_decides_and_wide_noise_has_no_bar() -> None:
    fine = [row(), row(to_numpy=8.0), row(faster=50.0), row(faster=None), row(scale=WIDE, to_numpy=99.0, faster=1.0)]
    assert verdict(fine, [row(to_numpy=5.0)])["bars_met"]
    for slow in (row(to_numpy=8.1), row(faster=49.0)):
        assert not verdict([*fine, slow], [row()])["bars_met"]
    assert not verdict(fine, [row(), row(to_numpy=5.1)])["bars_met"]


def test_contestants_take_turns() -> None:
    turns: list[str] = []
    best = in_turns({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, rounds=3)
    assert turns == ["a", "b"] * 3
    assert set(best) == {"a", "b"}
