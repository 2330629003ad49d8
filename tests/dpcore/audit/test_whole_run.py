"""Complete releases, from a CSV file to Parquet, let no more canaries be guessed than they promise; faults anywhere on the way show."""

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcore.audit import guarantees, run
from dpcore.audit.case import Audited
from dpcore.audit.checks import MISS, Finding
from dpcore.audit.whole_run import RELEASES, cases, drivers, faults
from dpcore.audit.whole_run.check import MISS_OF_RULE, ReleaseCheck
from dpcore.audit.whole_run.features import UNREACHED, features_of, product_features
from dpcore.audit.whole_run.guessing import RULES, measured_cells, read_published, right_guesses
from dpcore.audit.whole_run.settings import Setting
from dpcore.curator.curator import Curator
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Protection
from dpcore.runs import synthesis
from dpcore.strategies.mwem import Mwem
from dpcore.tables.ingest import records
from tests.campaign import CAMPAIGN, often
from tests.dpcore.audit.test_cases import lasting_part

pytestmark = pytest.mark.usefixtures("rough_models")

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "whole-run.md"
FEW = 0.25
"""Of the canaries: still 14 standard deviations away from missing any of these bugs, and 8 with a tenth of the rows."""

LARGE = {
    cases.PERSONS: FEW,
    cases.HOUSEHOLDS: 0.5,
    cases.REPLACED: FEW,
    cases.AUTO: FEW,
    cases.ROWS: often(0.1, campaign=FEW),
    cases.DEPENDS: often(FEW, campaign=1.0),  # the bug tells all 500 coins
}
"""Settings with many canaries, and the part of them that the tests take."""

LEAST_SHOWN = {
    cases.ROWS: 0.4,
    cases.PERSONS: 0.4,
    cases.HOUSEHOLDS: 0.4,
    cases.REPLACED: 0.25,
    cases.AUTO: 0.25,
    cases.DEPENDS: 0.4,
}
"""The least share of what is charged that an audit with this power measures."""

AGAIN = {
    *(faults.half_noise, faults.redrawn, faults.underpriced, faults.rows_of_a_person_forgotten),
    *(faults.neighbours_ignored, faults.units_priced_as_added, faults.limit_not_kept, faults.weights_not_clipped),
    *(faults.noise_for_what_is_there, faults.orders_repaired_by_the_batch, faults.sums_repaired_by_the_batch),
    *(faults.all_blocks_read, faults.blocks_and_neighbours_ignored, faults.exact_the_second_time),
    *(faults.partitions_bounded_one_by_one,),
}
"""Bugs that tests/power plants too, and catches in every `make test`: only a campaign also makes releases with them, and without any bug in
settings that have no others."""

GAUSSIAN = [replace(setting, canaries=1000, releases=3) for setting in (cases.PERSONS_ZCDP, cases.ADAPTIVE)]
PURE = [(setting, planted) for setting, planted in cases.PLANTED.items() if setting.currency is Currency.PURE]
FEWER = {} if CAMPAIGN else {cases.ONLINE: 14, cases.SIZES: 4}
"""Of settings that are released many times, the number of releases that still catch their bugs."""

PLANTED = [
    *(
        (replace(setting, releases=FEWER.get(setting, setting.releases)), fault)
        for setting, planted in PURE
        for fault in planted
        if CAMPAIGN or fault not in AGAIN
    ),
    *((setting, faults.exact_counts_published) for setting in GAUSSIAN),
    *(((cases.ADAPTIVE, faults.half_noise),) if CAMPAIGN else ()),
]


def name_of(part: Any) -> str:
    return str(getattr(part, "name", None) or part.__name__)


@pytest.mark.campaign
@pytest.mark.parametrize("setting", dict.fromkeys(setting for setting, _ in PLANTED), ids=name_of)
def test_a_release_shows_no_more_than_it_promises(setting: Setting) -> None:
    finding = ReleaseCheck(of=setting).run(effort=LARGE.get(setting, 1.0))
    assert finding.sound, finding
    if setting in LARGE or setting in GAUSSIAN:
        assert finding.measured > LEAST_SHOWN.get(setting, 0.0) * finding.charged


@pytest.mark.campaign
@pytest.mark.parametrize(("setting", "fault"), PLANTED, ids=name_of)
def test_a_bug_on_the_way_to_a_release_is_caught(
    setting: Setting, fault: Callable[[], AbstractContextManager[None]]
) -> None:
    finding = ReleaseCheck(of=setting, fault=fault).run(effort=LARGE.get(setting, 1.0))
    assert not finding.sound, finding
    assert finding.measured > finding.charged


def spending_modules() -> set[str]:
    """Return the modules of the product that reserve budget in a ledger."""
    root = Path(cases.__file__).parents[3]
    inside = {path.relative_to(root): path for path in (root / "dpcore").rglob("*.py")}
    return {
        place.as_posix()
        for place, path in inside.items()
        if not {"ledger", "audit"} & set(place.parts[:-1]) and "ledger.reserve(" in path.read_text(encoding="utf-8")
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
    assert {*drivers.VERBS.values()} == {"session", "online", "ask"}  # any other driver is the verb `run`
    assert spending_modules() == {
        "dpcore/runs/reservation.py",  # run, check
        "dpcore/starter/charged_look.py",  # init
        "dpcore/session/opening.py",  # session
        "dpcore/session/publishing.py",  # session
        "dpcore/textbook/online/opening.py",  # online
        "dpcore/curator/ask.py",  # ask
        "dpcore/comparison/figures.py",  # report
        "dpcore/budget/steps.py",  # no verb: what a caller's own code draws, which no audit of ours can reach
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
    assert len(RELEASES) * MISS <= 1e-6


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
    once = replace(cases.ROWS, canaries=100, driver=partial(drivers.run, times=2))
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
    page = lasting_part(page).replace("NOT CAUGHT", "caught")  # nothing is measured here
    return re.sub(r"(?m)^(\| whole run: [^|]+\|).*", r"\1", page)


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
    sound = re.findall(r"\| (?:epsilon|rho|mu\^2) ([\d.e-]+) \| >= ([\d.]+) \|", page)
    assert len(sound) == len(RELEASES)
    assert all(0 <= float(measured) <= float(charged) for charged, measured in sound)
    assert sum(line.count(",") + 1 for line in page.splitlines() if line.startswith("Planted and caught: ")) >= 46
    assert "NOT CAUGHT" not in page
