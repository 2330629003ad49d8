"""`dpflow audit` says what was measured and charged, and ends with 1 if anything speaks against the code."""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from dpcore.audit import guarantees, run
from dpcore.audit.case import Bug, Case
from dpcore.audit.cases import CASES
from dpcore.audit.checks import Finding
from dpcore.audit.whole_run import RELEASES
from dpcore.audit.whole_run.check import ReleaseCheck
from dpcore.cli import audit
from dpcore.cli.output import Answer
from dpcore.errors import OutputError, UsageError
from dpcore.privacy.accounting import Currency


def answer(*arguments: str) -> Answer:
    parser = argparse.ArgumentParser()
    audit.add_verbs(parser.add_subparsers())
    parsed = parser.parse_args(["audit", *arguments])
    given: Answer = parsed.verb(parsed)
    return given


@dataclass(frozen=True)
class Decided:
    """A check whose result is known."""

    kind: ClassVar[str] = "event"

    measured: float
    setting: str = "s"

    def run(self, *, effort: float) -> Finding:
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=self.measured <= 1,
            shown=f"at effort {effort:g}",
            currency=Currency.ZCDP,
            charged=1.0,
            measured=self.measured,
        )


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    """One mechanism that holds, with a bug that is caught, in place of all others."""
    return planted(
        monkeypatch,
        Case(
            name="randomized-response",
            theorem="A theorem.",
            reference="Warner 1965",
            prices={Currency.ZCDP: "rho"},
            checks=(Decided(0.9),),
            bugs=(Bug(name="b", how="h", check=Decided(1.1)),),
        ),
    )


def planted(monkeypatch: pytest.MonkeyPatch, case: Case) -> Case:
    for module in (run, guarantees):
        monkeypatch.setattr(module, "CASES", {case.name: lambda: case})
    return case


@pytest.mark.usefixtures("case")
def test_one_mechanism_is_audited_with_its_charges_bounds_and_bugs() -> None:
    given = answer("--mechanism", "randomized-response", "--draws", "0.5")
    assert given.exit_code == 0
    data = json.loads("".join(given.pieces(as_json=True)))
    (one,) = data["mechanisms"]
    assert (data["holds"], data["caught"], data["faults"]) == (True, True, [])
    (finding,), (bug,) = one["findings"], one["bugs"]
    assert (one["name"], finding["charged"], finding["measured"]) == ("randomized-response", 1.0, 0.9)
    assert finding["epsilon"] == pytest.approx(7.766, abs=0.001)  # of a rho of 1, at the delta of the page
    assert (finding["shown"], bug["caught"], bug["finding"]["sound"]) == ("at effort 0.5", True, False)
    assert "all 1 hold, and all 1 planted bugs are caught" in given.text
    assert max(map(len, given.text.splitlines())) <= 120


def test_a_fault_and_a_bug_that_goes_unnoticed_end_with_1_and_say_which(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch, replace(case, checks=(Decided(1.5), Decided(1.6, "t"), Decided(0.1))))
    given = answer("--mechanism", "randomized-response")
    assert given.exit_code == 1
    assert given.text.count("do not use it, and report this") == 2
    assert "  NO  " in given.text
    assert not given.data["holds"]
    planted(monkeypatch, replace(case, bugs=(replace(case.bugs[0], check=Decided(0.9)),)))
    given = answer("--mechanism", "randomized-response")
    assert given.exit_code == 1
    assert "the planted bug 'b' was not caught" in given.text


def test_the_page_is_written_where_it_is_asked_for(case: Case, tmp_path: Path) -> None:
    page = tmp_path / "guarantees.md"
    answer("--mechanism", case.name, "--markdown", str(page))
    assert "## randomized-response" in page.read_text(encoding="utf-8")
    with pytest.raises(OutputError, match="name a file"):
        answer("--mechanism", case.name, "--markdown", str(tmp_path / "no" / "page.md"))


def test_several_mechanisms_are_audited_in_processes_of_their_own_and_told_in_their_usual_order() -> None:
    given = answer("--mechanism", "bought-sums", "--mechanism", "asking-step", "--draws", "0.01")
    assert [one["name"] for one in given.data["mechanisms"]] == ["asking-step", "bought-sums"]


def test_the_human_table_fits_120_columns_for_all_settings() -> None:
    widest = max(len(check.setting) for make in CASES.values() for check in make().checks)
    assert widest <= 42


def test_complete_releases_are_audited_by_a_switch_and_told_like_mechanisms(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_quickly(check: ReleaseCheck, *, effort: float) -> Finding:
        measured = 1.5 if check.of.name == name and check.fault.__name__ == "nullcontext" else 2.5
        found = Decided(measured).run(effort=effort)
        return replace(found, check="whole run", currency=Currency.PURE, charged=2.0, sound=measured <= 2)

    name = "release-persons-pure"
    case = RELEASES[name]()
    monkeypatch.setattr(ReleaseCheck, "run", run_quickly)
    monkeypatch.setattr(run, "RELEASES", {name: lambda: case})
    given = answer("--whole-run")
    assert given.exit_code == 0
    (one,) = given.data["mechanisms"]
    (finding,) = one["findings"]
    assert (finding["check"], finding["epsilon"], finding["sound"]) == ("whole run", 2.0, True)
    assert "all 1 hold, and all 4 planted bugs are caught" in given.text
    unsound = replace(case, checks=(case.bugs[0].check,), bugs=())
    monkeypatch.setattr(run, "RELEASES", {name: lambda: unsound})
    assert answer("--whole-run").exit_code == 1


def test_mechanisms_and_complete_releases_are_audited_apart() -> None:
    with pytest.raises(UsageError, match="drop --mechanism or --whole-run"):
        answer("--whole-run", "--mechanism", "exponential")
