"""Complete releases, from a CSV file to Parquet, let no more canaries be guessed than they promise; faults anywhere on the way show."""

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcore.audit import guarantees, run
from dpcore.audit.case import Audited, Bug
from dpcore.audit.checks import MISS, MOST_CHECKS, Finding
from dpcore.audit.whole_run import RELEASES, cases, drivers, faults
from dpcore.audit.whole_run.check import MISS_OF_RULE, ReleaseCheck
from dpcore.audit.whole_run.features import UNREACHED, features_of, product_features
from dpcore.audit.whole_run.guessing import RULES, measured_cells, read_published, right_guesses
from dpcore.audit.whole_run.settings import Setting
from dpcore.curator.curator import Curator
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.privacy.protection import Protection
from dpcore.runs import synthesis
from dpcore.strategies.mwem import Mwem
from dpcore.tables.ingest import records

pytestmark = pytest.mark.usefixtures("rough_models")

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "whole-run.md"
QUARTER = 0.25
"""Of the canaries: still 14 standard deviations away from missing any of these bugs."""

FIRST = (cases.ROWS, cases.PERSONS, cases.HOUSEHOLDS, cases.AUTO, cases.REPLACED, cases.PERSONS_ZCDP, cases.ADAPTIVE)
"""Settings with so many canaries that each has a test of its own. All others are small."""

SMALL = [setting for setting in cases.PLANTED if setting not in FIRST]
PLANTED = [(setting, fault) for setting in SMALL for _, fault in cases.PLANTED[setting]]

IN_ONE_RUN = {cases.ROWS.name: QUARTER, cases.PERSONS.name: QUARTER, cases.HOUSEHOLDS.name: 0.5}
BUGS = [(name, bug) for name in IN_ONE_RUN for bug in RELEASES[name]().bugs]


@pytest.mark.parametrize("name", IN_ONE_RUN)
def test_releases_in_pure_epsilon_show_no_more_than_they_promise_and_not_much_less(name: str) -> None:
    (check,) = RELEASES[name]().checks
    finding = check.run(effort=IN_ONE_RUN[name])
    assert finding.sound
    assert 0.4 * finding.charged < finding.measured <= finding.charged


@pytest.mark.parametrize(("name", "bug"), BUGS, ids=[f"{name}: {bug.name}" for name, bug in BUGS])
def test_a_bug_on_the_way_to_a_release_in_pure_epsilon_is_caught(name: str, bug: Bug) -> None:
    finding = bug.check.run(effort=IN_ONE_RUN[name])
    assert not finding.sound
    assert finding.measured > finding.charged


def test_replacing_a_row_is_paid_for_and_shows_where_it_is_not() -> None:
    case = RELEASES[cases.REPLACED.name]()
    (check,), (bug,) = case.checks, case.bugs
    sound, ignored = check.run(effort=QUARTER), bug.check.run(effort=QUARTER)
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


@pytest.mark.parametrize("setting", SMALL, ids=lambda setting: setting.name)
def test_every_feature_shows_no_more_than_it_promises(setting: Setting) -> None:
    finding = ReleaseCheck(of=setting).run(effort=1.0)
    assert finding.sound, finding


@pytest.mark.parametrize(("setting", "fault"), PLANTED, ids=lambda each: getattr(each, "name", None) or each.__name__)
def test_a_bug_in_every_feature_is_caught(setting: Setting, fault: Callable[[], AbstractContextManager[None]]) -> None:
    finding = ReleaseCheck(of=setting, fault=fault).run(effort=1.0)
    assert not finding.sound, finding
    assert finding.measured > finding.charged


def spending_modules() -> set[str]:
    """Return the modules of the product that reserve budget in a ledger."""
    root = Path(cases.__file__).parents[3]
    inside = [
        path for path in (root / "dpcore").rglob("*.py") if path.parts[-2] != "ledger" and "audit" not in path.parts
    ]
    return {
        path.relative_to(root).as_posix() for path in inside if "ledger.reserve(" in path.read_text(encoding="utf-8")
    }


def test_every_feature_of_the_product_has_a_setting_or_a_reason() -> None:
    covered = {feature for setting in cases.PLANTED for feature in features_of(setting)}
    missing = [
        feature
        for feature in product_features()
        if feature not in covered
        and not UNREACHED.keys() & {feature.partition(".")[0], feature.rpartition(".")[2].partition(":")[0]}
    ]
    assert not missing, f"add a setting to dpcore/audit/whole_run/cases.py for {missing}"


def test_every_reason_is_for_a_feature_and_every_place_that_spends_is_a_verb() -> None:
    words = {word for feature in product_features() for word in re.split(r"[.:] ?", feature)}
    assert words >= UNREACHED.keys()
    assert {*drivers.VERBS.values()} == {"run", "session", "online", "ask"}
    assert spending_modules() == {
        "dpcore/runs/reservation.py",  # run, check
        "dpcore/starter/charged_look.py",  # init
        "dpcore/session/opening.py",  # session
        "dpcore/session/publishing.py",  # session
        "dpcore/textbook/online/opening.py",  # online
        "dpcore/curator/ask.py",  # ask
        "dpcore/comparison/figures.py",  # report
    }


def test_a_feature_without_a_setting_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(cases.PLANTED, cases.ORDER)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"constraints\.order"):
        test_every_feature_of_the_product_has_a_setting_or_a_reason()


def test_what_is_exported_is_the_ledger_event_by_event() -> None:
    few = replace(cases.EXPORTED, canaries=100)
    with few.published(np.arange(100) % 2 == 0) as folder:
        exported = read_published(folder, few)
        with open_ledger() as ledger:
            events = "\n".join(event.body for event in ledger.history(None))
    assert (exported.measurements, exported.releases, exported.promised) == ((), (), 0)
    assert events in exported.texts
    assert len(exported.texts) == 3  # history, statement as JSON and as Markdown


def test_bugs_are_planted_in_every_part_of_the_way_and_in_every_setting() -> None:
    planted = [bug for make in RELEASES.values() for bug in make().bugs]
    assert len(planted) >= 46
    assert len({bug.name for bug in planted}) >= 33
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
    few = replace(cases.ROWS, canaries=100)
    with few.published(np.zeros(100, dtype=np.bool_)) as folder:
        assert list(folder.rglob("manifest.json"))
        assert os.environ["DPFLOW_LEDGER_URL"] != places.get("DPFLOW_LEDGER_URL")
    assert not folder.exists()
    assert dict(os.environ) == places
    assert product() == before
    assert synthesis.Curator is Curator


def test_the_guesser_reads_what_is_published_and_each_answer_once() -> None:
    few = replace(cases.ROWS, canaries=100)
    coins = np.arange(100) % 2 == 0
    with few.published(coins) as folder:
        (folder / "table.csv").unlink()
        published = read_published(folder, few)
        found = right_guesses(published, setting=few, coins=coins)
    measured = [one for each in published.measurements for one in measured_cells(each, setting=few)]
    assert [(one.canaries.size, one.others.size) for one in measured] == [(100, 100)] * 2
    assert [guesses for guesses, _ in found.values()] == [100, 50, 25, 10, 25, 100, 25, 10, 25, 25, 100, 100]
    assert published.spent == published.promised


def test_runs_that_pay_more_than_was_promised_are_a_fault_whatever_was_guessed() -> None:
    once = replace(cases.ROWS, canaries=100, driver=drivers.run_twice)
    assert not ReleaseCheck(of=once).run(effort=1.0).sound
    assert ReleaseCheck(of=replace(once, paid=2)).run(effort=1.0).sound


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


def lasting(page: str) -> str:
    """Return the part of a page that is the same in every run. What some settings have charged follows from noisy choices."""
    return re.sub(r"(?m)^(\| whole run: [^|]+\|).*", r"\1", guarantees.lasting_part(page))


def test_the_page_of_releases_is_what_the_audit_writes_but_for_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReleaseCheck, "run", lambda check, *, effort: unmeasured(check, sound=True))
    audited: list[Audited] = [run.audit_case(name, 1.0) for name in RELEASES]
    written = guarantees.page(audited, day=date(2026, 1, 1))
    committed = PAGE.read_text(encoding="utf-8")
    hint = "write it again with: dpflow audit --whole-run --markdown docs/explanation/whole-run.md"
    assert lasting(committed) == lasting(written), hint


def test_the_page_shows_no_more_than_was_promised_and_that_every_bug_was_caught() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sound = re.findall(r"\| (?:epsilon|rho|mu\^2) ([\d.e-]+) \| measured \S+ >= ([\d.]+);", page)
    caught = re.findall(r"measured \S+ >= ([\d.]+), charged ([\d.e-]+);", page)
    assert len(sound) == len(RELEASES)
    assert len(caught) >= 46
    assert all(0 <= float(measured) <= float(charged) for charged, measured in sound)
    assert all(float(measured) > float(charged) for measured, charged in caught)
    assert "NOT CAUGHT" not in page
