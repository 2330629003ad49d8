"""`dpflow audit` says what was measured and charged, and ends with 1 if anything speaks against the code."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dpcore.audit import run
from dpcore.audit.cases import CASES
from dpcore.audit.whole_run import RELEASES
from dpcore.audit.whole_run.check import ReleaseCheck
from dpcore.cli import audit
from dpcore.cli.output import Answer
from dpcore.errors import OutputError, UsageError


def answer(*arguments: str) -> Answer:
    parser, common = argparse.ArgumentParser(), argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true")
    audit.add_verbs(parser.add_subparsers(), common)
    parsed = parser.parse_args(["audit", *arguments])
    given: Answer = parsed.verb(parsed)
    return given


def test_one_mechanism_is_audited_with_its_charges_bounds_and_bugs() -> None:
    given = answer("--mechanism", "randomized-response")
    assert given.exit_code == 0
    data = json.loads("".join(given.pieces(as_json=True)))
    (one,) = data["mechanisms"]
    assert (data["holds"], data["caught"], data["faults"]) == (True, True, [])
    assert one["name"] == "randomized-response"
    assert all(bug["caught"] for bug in one["bugs"])
    first = one["findings"][0]
    assert first["charged"] == pytest.approx(1.0986, abs=1e-4)
    assert first["epsilon"] >= first["charged"] * (1 - 1e-5)
    assert 0.8 * first["charged"] < first["measured"] <= first["charged"]
    assert "all 1 hold, and all 4 planted bugs are caught" in given.text
    assert max(map(len, given.text.splitlines())) <= 120


def test_a_fault_ends_with_1_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["randomized-response"]()
    swapped = type(case)(**(vars(case) | {"checks": tuple(bug.check for bug in case.bugs), "bugs": ()}))
    monkeypatch.setattr(run, "CASES", {"randomized-response": lambda: swapped})
    given = answer("--mechanism", "randomized-response")
    assert given.exit_code == 1
    assert given.text.count("do not use it, and report this") == 4
    assert "  NO  " in given.text
    assert not given.data["holds"]


def test_a_bug_that_goes_unnoticed_ends_with_1_too(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["randomized-response"]()
    blind = type(case)(**(vars(case) | {"bugs": (type(case.bugs[0])(name="b", how="h", check=case.checks[0]),)}))
    monkeypatch.setattr(run, "CASES", {"randomized-response": lambda: blind})
    given = answer("--mechanism", "randomized-response")
    assert given.exit_code == 1
    assert "the planted bug 'b' was not caught" in given.text


def test_the_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    page = tmp_path / "guarantees.md"
    answer("--mechanism", "randomized-response", "--markdown", str(page), "--draws", "0.01")
    assert "## randomized-response" in page.read_text(encoding="utf-8")
    with pytest.raises(OutputError, match="name a file"):
        answer("--mechanism", "randomized-response", "--draws", "0.01", "--markdown", str(tmp_path / "no" / "page.md"))


def test_several_mechanisms_are_audited_in_processes_of_their_own_and_told_in_their_usual_order() -> None:
    given = answer("--mechanism", "measuring-step", "--mechanism", "randomized-response", "--draws", "0.05")
    assert [one["name"] for one in given.data["mechanisms"]] == ["randomized-response", "measuring-step"]


def test_the_human_table_fits_120_columns_for_all_settings() -> None:
    widest = max(len(check.setting) for make in CASES.values() for check in make().checks)
    assert widest <= 42


def test_complete_releases_are_audited_by_a_switch_and_told_like_mechanisms(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "release-persons-pure"
    few = replace(RELEASES[name]().checks[0].of, canaries=2000)  # type: ignore[attr-defined]
    case = replace(RELEASES[name](), checks=(ReleaseCheck(of=few),), bugs=RELEASES[name]().bugs[:1])
    monkeypatch.setattr(run, "RELEASES", {name: lambda: case})
    given = answer("--whole-run")
    assert given.exit_code == 0
    (one,) = given.data["mechanisms"]
    (finding,) = one["findings"]
    assert (finding["check"], finding["epsilon"], finding["sound"]) == ("whole run", 2.0, True)
    assert finding["measured"] <= finding["charged"]
    assert [bug["name"] for bug in one["bugs"] if bug["caught"]] == ["not bounded"]
    assert "all 1 hold, and all 1 planted bugs are caught" in given.text
    unsound = replace(case, checks=(case.bugs[0].check,), bugs=())
    monkeypatch.setattr(run, "RELEASES", {name: lambda: unsound})
    assert answer("--whole-run").exit_code == 1


def test_mechanisms_and_complete_releases_are_audited_apart() -> None:
    with pytest.raises(UsageError, match="drop --mechanism or --whole-run"):
        answer("--whole-run", "--mechanism", "exponential")
