"""The harness that kills whoever uses a ledger: a small run of it on both stores, and proof that it would find a fault."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ledger_places import STORES
from benchmarks.ledger_scenario import DRAWN, JOBS, Journal, Step, draw, play, read_journal
from dpcore.ledger import EventKind, Ledger
from tests.campaign import CAMPAIGN, often
from tests.faults.ledger_oracle import Fault, examine, examine_end
from tests.faults.ledger_planted import PLANTED, sound

ROOT = Path(__file__).parents[2]
SMALL = () if CAMPAIGN else ("--small",)
MEMORY = Path("/dev/shm")  # noqa: S108  the harness makes a folder of its own in it
TELLING = {
    "pays-after-drawing": ("before COMMIT", Fault.UNCOVERED),
    "answers-before-storing": ("before COMMIT", Fault.LOST),
    "changes-piece-by-piece": ("after INSERT", Fault.UNVERIFIED),
}
"""Where a death shows each of the planted faults, and as what."""


def harness(*options: str, private: Path | None = None) -> subprocess.Popen[str]:
    """Start it in a process of its own: it forks, and this one may have threads.

    The machine stays alive, so that its memory keeps what a process left as well as a disk would, and sooner.
    """
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 1 << 30
    where = ("--folder", str(MEMORY)) if in_memory else ()
    command = [sys.executable, "-m", "tests.faults.ledger_faults", "--json", *where, *options]
    more = {} if private is None else {"DPFLOW_PRIVATE": str(private)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | more, text=True, **pipes)


def result_of(started: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    printed, errors = started.communicate()
    assert not errors
    return started.returncode, json.loads(printed)


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where heads of a ledger in a database are remembered: not in this project. Those of a file are beside it."""
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="module")
def small_runs(private: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start both at once: each waits for its disk most of the time."""
    started = {
        store: harness(*SMALL, "--store", store, private=private if store == "postgresql" else None) for store in STORES
    }
    yield started
    for run in started.values():
        run.kill()
        run.wait()


@pytest.mark.campaign
@pytest.mark.parametrize("store", STORES)
def test_no_death_loses_doubles_or_leaves_anything_unpaid(
    store: str, small_runs: dict[str, subprocess.Popen[str]], private: Path
) -> None:
    code, result = result_of(small_runs[store])
    assert store != "postgresql" or list((private / "heads").iterdir())
    assert (code, result["findings"]) == (0, [])
    assert not any(result[fault] for fault in Fault)
    kills = result["kills"][store]
    assert kills["boundary"] >= often(3, campaign=100)
    assert kills["random"] == often(2, campaign=300)
    assert kills.get("shutdown", 0) == (often(1, campaign=10) if store == "postgresql" else 0)
    assert result["boundaries"][store] > 500
    assert result["verifications"] > result["resumes"] == kills["boundary"] + kills["random"]


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(planted: str) -> None:
    boundary, fault = TELLING[planted]
    options = ("--store", "sqlite", "--at", boundary, "--every", "24", "--kills", "0")
    code, result = result_of(harness(*options, "--planted", planted))
    assert code == 1
    assert result[fault]


@pytest.fixture
def played(tmp_path: Path) -> Iterator[tuple[Ledger, Journal]]:
    """The whole scenario, undisturbed."""
    with sound(f"sqlite:///{tmp_path / 'ledger.sqlite'}") as ledger:
        journal = Journal(tmp_path / "journal")
        play(ledger, journal)
        yield ledger, journal


def test_an_undisturbed_life_leaves_nothing_to_find(played: tuple[Ledger, Journal]) -> None:
    ledger, journal = played
    assert not [*examine(ledger, journal.lines), *examine_end(ledger, JOBS, deaths=0, workers=1)]


@pytest.mark.parametrize(
    ("told", "faults"),
    [
        ((DRAWN, {"step": "age", "attempt": 2, "amount": 1_000}), {Fault.UNCOVERED}),
        ((DRAWN, {"step": "age", "attempt": 1, "amount": 1_001}), {Fault.UNCOVERED}),
        ((EventKind.COMMITTED, {"step": "age", "attempt": 1, "sha256": "0" * 64}), {Fault.LOST, Fault.DUPLICATE}),
        ((EventKind.COMMITTED, {"step": "height", "attempt": 1, "sha256": "0" * 64}), {Fault.LOST}),
        ((EventKind.SETTLED, {"release": "visits/2"}), {Fault.LOST}),
        ((EventKind.LEASED, {"fence": 7}), {Fault.LOST}),
    ],
)
def test_what_the_journal_tells_and_the_ledger_does_not_is_found(
    told: tuple[str, dict[str, Any]], faults: set[Fault], played: tuple[Ledger, Journal]
) -> None:
    ledger, journal = played
    what, details = told
    journal.tell(what, account="visits", run="visits-1", **details)
    assert {finding.fault for finding in examine(ledger, journal.lines)} == faults


def test_an_attempt_too_many_and_a_step_too_few_are_found(played: tuple[Ledger, Journal]) -> None:
    ledger, _ = played
    first, *others = JOBS
    steps = tuple(replace(step, abandoned=0) for step in first.steps)
    once = replace(first, steps=steps)
    more = replace(first, steps=(*first.steps, Step("height", 1)))
    assert {finding.fault for finding in examine_end(ledger, [once, *others], deaths=0, workers=1)} == {Fault.OVERPAID}
    assert not list(examine_end(ledger, [once, *others], deaths=1, workers=1))
    assert {finding.fault for finding in examine_end(ledger, [more, *others], deaths=0, workers=1)} == {Fault.BROKEN}


def test_a_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path).tell(DRAWN, account="visits", run="visits-1", step="age", attempt=1, amount=1)
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole + whole[:-1], encoding="utf-8")
    assert len(read_journal(path)) == 1


def test_two_attempts_never_draw_the_same() -> None:
    step = Step("age", 1)
    assert draw("run", step, attempt=1) == draw("run", step, attempt=1) != draw("run", step, attempt=2)
