"""Complete releases, from a CSV file to Parquet, let no more canaries be guessed than they promise; faults anywhere on the way show."""

import os
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcore.answers import replicates
from dpcore.audit import guarantees, run
from dpcore.audit.case import Audited, Bug
from dpcore.audit.checks import MISS, MOST_CHECKS, Finding
from dpcore.audit.whole_run import RELEASES, cases, faults
from dpcore.audit.whole_run.check import MISS_OF_RULE, ReleaseCheck
from dpcore.audit.whole_run.guessing import RULES, measurements, right_guesses
from dpcore.audit.whole_run.settings import chain_of_three
from dpcore.curator.curator import Curator
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.privacy.protection import Protection
from dpcore.runs import steps, synthesis
from dpcore.strategies.mwem import Mwem
from dpcore.tables.ingest import coding, records

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "whole-run.md"
QUARTER = 0.25
"""Of the canaries: still 14 standard deviations away from missing any of these bugs."""

IN_ONE_RUN = {cases.ROWS.name: QUARTER, cases.PERSONS.name: QUARTER, cases.HOUSEHOLDS.name: 0.5}
BUGS = [(name, bug) for name in IN_ONE_RUN for bug in RELEASES[name]().bugs]


@pytest.mark.parametrize("name", IN_ONE_RUN)
def test_releases_in_pure_epsilon_show_no_more_than_they_promise_and_not_much_less(name: str) -> None:
    (check,) = RELEASES[name]().checks
    finding = check.run(effort=IN_ONE_RUN[name])
    assert finding.sound
    assert finding.charged == cases.ROWS.promised / AMOUNT_OF_ONE  # which both settings reserve
    assert 0.4 * finding.charged < finding.measured <= finding.charged


@pytest.mark.parametrize(("name", "bug"), BUGS, ids=[f"{name}: {bug.name}" for name, bug in BUGS])
def test_a_bug_on_the_way_to_a_release_in_pure_epsilon_is_caught(name: str, bug: Bug) -> None:
    finding = bug.check.run(effort=IN_ONE_RUN[name])
    assert not finding.sound
    assert finding.measured > finding.charged


def test_replacing_a_row_is_paid_for_and_shows_where_it_is_not() -> None:
    case = RELEASES[cases.REPLACED.name]()
    (check,), (bug,) = case.checks, case.bugs
    sound, ignored = check.run(effort=QUARTER), bug.check.run(effort=0.5)
    assert 0.25 * sound.charged < sound.measured <= sound.charged < ignored.measured


@pytest.mark.parametrize("setting", [cases.PERSONS_ZCDP, cases.ADAPTIVE], ids=lambda setting: setting.name)
def test_releases_in_other_currencies_show_no_more_than_they_promise_and_exact_counts_do(
    setting: cases.Setting,
) -> None:
    few = replace(setting, canaries=1000, releases=3)
    sound = ReleaseCheck(of=few).run(effort=1.0)
    assert sound.sound
    assert sound.measured > 0
    assert not ReleaseCheck(of=few, fault=faults.exact_counts_published).run(effort=1.0).sound


def test_half_the_noise_shows_in_a_currency_that_allows_for_unlikely_losses() -> None:
    (half,) = (bug for bug in RELEASES[cases.ADAPTIVE.name]().bugs if bug.name == "half noise")
    assert not half.check.run(effort=1.0).sound


def test_a_chain_shows_no_more_than_its_last_release_states_and_more_than_its_last_run_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicates, "REPLICATES", 2)  # no interval is asked for
    few = replace(cases.ROWS, epsilon=1.0, canaries=3000)
    sound = ReleaseCheck(of=few, driver=chain_of_three).run(effort=1.0)
    assert sound.sound
    assert sound.charged == 3 * few.promised / AMOUNT_OF_ONE
    own = ReleaseCheck(of=few, driver=chain_of_three, fault=faults.own_run_stated).run(effort=1.0)
    assert not own.sound
    assert own.charged == few.promised / AMOUNT_OF_ONE < min(own.measured, sound.measured)


def test_bugs_are_planted_in_every_part_of_the_way_and_in_every_setting() -> None:
    planted = [bug for make in RELEASES.values() for bug in make().bugs]
    assert len(planted) >= 18
    assert len({bug.name for bug in planted}) >= 12
    assert all(make().bugs for make in RELEASES.values())
    assert all(bug.how and not bug.how.endswith(".") for bug in planted)


def test_all_rules_and_settings_together_accuse_sound_code_less_than_once_in_a_million_audits() -> None:
    assert pytest.approx(MISS) == MISS_OF_RULE * len(RULES)
    assert len(RELEASES) <= MOST_CHECKS


def test_a_fault_is_gone_when_the_releases_are_made_and_so_is_the_audits_own_ledger() -> None:
    def product() -> list[Any]:
        return [
            records.bound,
            records.read_piece,
            coding.hash_ids,
            synthesis.Curator,
            synthesis.Curator.receive,
            Protection.sensitivity,
            synthesis.Synthesis.publish,
            Mwem.conclude,
        ]

    before = product()
    places = dict(os.environ)
    for bug in (bug for make in RELEASES.values() for bug in make().bugs):
        with bug.check.fault():
            pass
    with pytest.raises(ZeroDivisionError), faults.not_bounded():
        raise ZeroDivisionError
    coins = np.zeros(100, dtype=np.bool_)
    with replace(cases.ROWS, canaries=100).released(coins) as outcome:
        assert Path(outcome.release, "manifest.json").exists()
        assert os.environ["DPFLOW_LEDGER_URL"] != places.get("DPFLOW_LEDGER_URL")
    assert not Path(outcome.release).exists()
    assert dict(os.environ) == places
    assert product() == before
    assert synthesis.Curator is Curator


def test_the_guesser_reads_the_published_folder_alone(tmp_path: Path) -> None:
    few = replace(cases.ROWS, canaries=100)
    coins = np.arange(100) % 2 == 0
    with few.released(coins) as outcome:
        Path(outcome.release).rename(tmp_path / "copy")
    assert [len(one.counts["y"]) for one in measurements(tmp_path / "copy")] == [100, 100]
    found = right_guesses(tmp_path / "copy", setting=few, coins=coins)
    assert [guesses for guesses, _ in found.values()] == [100, 25, 10, 25, 25]


def test_a_run_that_pays_more_than_it_reserved_is_a_fault_whatever_was_guessed() -> None:
    few = replace(cases.ROWS, canaries=100)

    class Dear:
        def __init__(self, release: str) -> None:
            self.release, self.spent = release, 1.01 * few.promised / AMOUNT_OF_ONE

    check = ReleaseCheck(of=few, driver=lambda spec: Dear(steps.synthesize(spec).release))
    assert not check.run(effort=1.0).sound


def unmeasured(check: ReleaseCheck, *, sound: bool) -> Finding:
    return Finding(
        check=check.kind,
        setting=check.setting,
        sound=sound,
        shown="",
        currency=check.of.currency,
        charged=check.of.promised / AMOUNT_OF_ONE,
        measured=0.0,
    )


def test_the_page_of_releases_is_what_the_audit_writes_but_for_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReleaseCheck, "run", lambda check, *, effort: unmeasured(check, sound=True))
    audited: list[Audited] = [run.audit_case(name, 1.0) for name in RELEASES]
    written = guarantees.page(audited, day=date(2026, 1, 1))
    committed = PAGE.read_text(encoding="utf-8")
    hint = "write it again with: dpflow audit --whole-run --markdown docs/explanation/whole-run.md"
    assert guarantees.lasting_part(committed) == guarantees.lasting_part(written), hint


def test_the_page_shows_no_more_than_was_promised_and_that_every_bug_was_caught() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sound = re.findall(r"\| (?:epsilon|rho|mu\^2) ([\d.e-]+) \| measured \S+ >= ([\d.]+);", page)
    caught = re.findall(r"measured \S+ >= ([\d.]+), charged ([\d.e-]+);", page)
    assert len(sound) == len(RELEASES)
    assert len(caught) >= 18
    assert all(0 < float(measured) <= float(charged) for charged, measured in sound)
    assert all(float(measured) > float(charged) for measured, charged in caught)
    assert "NOT CAUGHT" not in page
